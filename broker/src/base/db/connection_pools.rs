//! Pools of database connections: three kinds of work have a pool each, so that
//! one kind cannot use up all of them.
//!
//! PostgreSQL: the pools are independent. SQLite has one writer: the kinds of work queue for it in
//! stages. At most one transaction of a stage is in the queue of the next one, so a transaction of
//! the first stage waits for at most one transaction of each other stage.

use std::sync::Arc;

use sqlx::{Database, Pool};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    ACQUIRE_TIMEOUT, Db, Location, change_to_wal, connect_options, postgres_pool, sqlite_options,
    sqlite_readers, sqlite_writer,
};

/// PostgreSQL connections and SQLite readers of each pool.
const SIGNED_IN: (u32, u32) = (12, 4);
const AUTHORITY: (u32, u32) = (4, 2);
const UNAUTHENTICATED: (u32, u32) = (4, 2);

/// The database of one broker, divided by kind of work.
#[derive(Clone, Debug)]
pub struct ConnectionPools {
    /// For signed-in users and machines, and for work that has no pool of its own.
    pub signed_in: Db,
    /// For work that revokes access: suspensions, the sweep, and the watch for revocations.
    pub authority: Db,
    /// For unauthenticated requests.
    pub unauthenticated: Db,
}

/// Open connections of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// Name of the pool: one of [`ConnectionPools::NAMES`].
    pub name: &'static str,
    /// Connections that nothing uses.
    pub idle: u32,
    /// Connections in use.
    pub used: u32,
    /// Maximum number of connections.
    pub limit: u32,
}

impl PoolUsage {
    fn of<DB: Database>(name: &'static str, pool: &Pool<DB>) -> Self {
        let idle = u32::try_from(pool.num_idle()).unwrap_or(u32::MAX);
        let used = pool.size().saturating_sub(idle);
        Self { name, idle, used, limit: pool.options().get_max_connections() }
    }
}

impl ConnectionPools {
    /// Names of the pools in metrics. `writer` is the single writer of SQLite, which the others,
    /// then readers only, have in common.
    pub const NAMES: [&str; 4] = ["signed_in", "authority", "unauthenticated", "writer"];

    /// Connects; creates the file of a SQLite database.
    ///
    /// # Errors
    /// The server refuses or does not answer in time; the file cannot be opened.
    pub async fn connect(location: &Location) -> sqlx::Result<Self> {
        match location {
            Location::Postgres(options) => {
                let options = connect_options(options);
                // One pool connects now, to find out whether it can; the others connect when they
                // are first used.
                let signed_in = postgres_pool(SIGNED_IN.0).connect_with(options.clone()).await?;
                let authority = postgres_pool(AUTHORITY.0).connect_lazy_with(options.clone());
                let unauthenticated = postgres_pool(UNAUTHENTICATED.0).connect_lazy_with(options);
                Ok(Self {
                    signed_in: Db::Postgres(signed_in),
                    authority: Db::Postgres(authority),
                    unauthenticated: Db::Postgres(unauthenticated),
                })
            }
            Location::Sqlite(path) => {
                let options = sqlite_options(path);
                change_to_wal(&options).await?;
                let write = sqlite_writer().connect_with(options.clone()).await?;
                let pool = |readers: u32, stages: &[&Arc<Semaphore>]| Db::Sqlite {
                    read: sqlite_readers(readers).connect_lazy_with(options.clone()),
                    write: write.clone(),
                    queue: WriteQueue(stages.iter().copied().map(Arc::clone).collect()),
                };
                let all_others = Arc::new(Semaphore::new(1));
                let unauthenticated = Arc::new(Semaphore::new(1));
                Ok(Self {
                    signed_in: pool(SIGNED_IN.1, &[&all_others]),
                    authority: pool(AUTHORITY.1, &[]),
                    unauthenticated: pool(UNAUTHENTICATED.1, &[&unauthenticated, &all_others]),
                })
            }
        }
    }

    /// The open connections of all pools.
    pub fn usage(&self) -> Vec<PoolUsage> {
        let [signed_in, authority, unauthenticated, writer] = Self::NAMES;
        let mut usage = Vec::with_capacity(Self::NAMES.len());
        for (name, db) in [
            (signed_in, &self.signed_in),
            (authority, &self.authority),
            (unauthenticated, &self.unauthenticated),
        ] {
            usage.push(match db {
                Db::Postgres(pool) => PoolUsage::of(name, pool),
                Db::Sqlite { read, .. } => PoolUsage::of(name, read),
            });
        }
        if let Db::Sqlite { write, .. } = &self.signed_in {
            usage.push(PoolUsage::of(writer, write));
        }
        usage
    }

    /// Uses this URL of the same PostgreSQL database for all connections that are opened from now
    /// on. Does nothing for SQLite.
    pub fn connect_with(&self, location: &Location) {
        let Location::Postgres(options) = location else { return };
        for db in [&self.signed_in, &self.authority, &self.unauthenticated] {
            if let Db::Postgres(pool) = db {
                pool.set_connect_options(connect_options(options));
            }
        }
    }

    /// Closes the connections after the statements in flight have ended.
    pub async fn close(&self) {
        self.unauthenticated.close().await;
        self.signed_in.close().await;
        self.authority.close().await;
    }
}

/// Semaphores that a transaction acquires, in this order, before it queues for the writer of
/// SQLite. Each is first in, first out.
#[derive(Clone, Debug, Default)]
pub struct WriteQueue(Arc<[Arc<Semaphore>]>);

/// The permits of all semaphores, held until the transaction ends.
#[derive(Debug, Default)]
pub(super) struct WriterPermits(
    #[expect(dead_code, reason = "held, not read")] Vec<OwnedSemaphorePermit>,
);

impl WriteQueue {
    /// Waits for the permits.
    ///
    /// # Errors
    /// [`sqlx::Error::PoolTimedOut`] after [`ACQUIRE_TIMEOUT`].
    pub(super) async fn wait(&self) -> sqlx::Result<WriterPermits> {
        let all = async {
            let mut permits = Vec::with_capacity(self.0.len());
            for stage in self.0.iter() {
                let permit = Arc::clone(stage).acquire_owned().await;
                permits.push(permit.map_err(|_| sqlx::Error::PoolClosed)?);
            }
            Ok(WriterPermits(permits))
        };
        tokio::time::timeout(ACQUIRE_TIMEOUT, all).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::poll;
    use tokio::task::JoinSet;

    use super::*;
    use crate::testing::{On, TestDatabase, on_both_engines};

    on_both_engines!(
        authority_waits_for_one_transaction_at_most,
        a_transaction_is_a_used_connection_of_its_share,
    );

    /// Transactions of each of the other pools: more than any pool has connections.
    const OTHERS: usize = 20;

    async fn authority_waits_for_one_transaction_at_most(on: On) {
        let place = TestDatabase::new(on).await;
        let pools = place.pools().await;
        pools.signed_in.migrate().await.unwrap();
        // Each transaction that has begun stays open until there is a permit.
        let (begun, may_end) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(0)));
        let mut others = JoinSet::new();
        for (name, db) in
            [("unauthenticated", &pools.unauthenticated), ("signed in", &pools.signed_in)]
        {
            for _ in 0..OTHERS {
                let (db, begun, may_end) = (db.clone(), Arc::clone(&begun), Arc::clone(&may_end));
                others.spawn(async move {
                    let tx = db.begin().await.unwrap();
                    begun.lock().unwrap().push(name);
                    may_end.acquire().await.unwrap().forget();
                    tx.commit().await.unwrap();
                });
            }
        }
        let at_once = match on {
            On::Postgres => (SIGNED_IN.0 + UNAUTHENTICATED.0) as usize,
            On::Sqlite => 1,
        };
        while begun.lock().unwrap().len() < at_once {
            tokio::task::yield_now().await;
        }
        let mut authority = Box::pin(pools.authority.begin());
        if let On::Sqlite = on {
            // The transaction is in the queue now, and the one before it ends.
            assert!(poll!(authority.as_mut()).is_pending());
            may_end.add_permits(1);
        }
        let tx = authority.await.unwrap();
        assert_eq!(begun.lock().unwrap().len(), at_once, "another transaction overtook it");
        may_end.add_permits(2 * OTHERS);
        tx.commit().await.unwrap();
        others.join_all().await;
        assert_eq!(begun.lock().unwrap().len(), 2 * OTHERS);
        pools.close().await;
    }

    async fn a_transaction_is_a_used_connection_of_its_share(on: On) {
        let place = TestDatabase::new(on).await;
        let pools = place.pools().await;
        let used = || {
            let used = pools.usage().into_iter().filter(|usage| usage.used > 0);
            used.map(|usage| (usage.name, usage.used)).collect::<Vec<_>>()
        };
        let (name, limit) = match on {
            On::Postgres => ("authority", AUTHORITY.0),
            On::Sqlite => ("writer", 1),
        };
        assert!(used().is_empty());
        let tx = pools.authority.begin().await.unwrap();
        assert_eq!(used(), [(name, 1)]);
        assert!(pools.usage().iter().any(|usage| (usage.name, usage.limit) == (name, limit)));
        tx.commit().await.unwrap();
        pools.close().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn signed_in_waits_for_one_unauthenticated_transaction_at_most() {
        let place = TestDatabase::new(On::Sqlite).await;
        let pools = place.pools().await;
        pools.signed_in.migrate().await.unwrap();
        let first = pools.unauthenticated.begin().await.unwrap();
        let mut more: Vec<_> =
            (0..OTHERS).map(|_| Box::pin(pools.unauthenticated.begin())).collect();
        for waiting in &mut more {
            assert!(poll!(waiting.as_mut()).is_pending());
        }
        let mut signed_in = Box::pin(pools.signed_in.begin());
        assert!(poll!(signed_in.as_mut()).is_pending());
        first.commit().await.unwrap();
        let tx = signed_in.await.unwrap();
        for waiting in &mut more {
            assert!(poll!(waiting.as_mut()).is_pending(), "it overtook the signed-in transaction");
        }
        tx.commit().await.unwrap();
        drop(more);
        pools.close().await;
    }
}
