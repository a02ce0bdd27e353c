//! The database divided between three kinds of work, so that one kind cannot use up all connections.
//!
//! PostgreSQL: each share is a pool of its own. SQLite has one connection that writes: the shares queue
//! for it in stages. At most one transaction of a stage is in the queue of the next one, so a
//! transaction of the first stage waits for one transaction of each other stage at most.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    ACQUIRE_TIMEOUT, Db, Location, change_to_wal, named, postgres_pool, sqlite_options,
    sqlite_readers, sqlite_writer,
};

/// Connections to PostgreSQL, and readers on SQLite, of each share.
const SIGNED_IN: (u32, u32) = (12, 4);
const AUTHORITY: (u32, u32) = (4, 2);
const UNAUTHENTICATED: (u32, u32) = (4, 2);

/// The database of one broker, by who uses it.
#[derive(Clone, Debug)]
pub struct Shares {
    /// For people and machines that are signed in, and for whatever has no share of its own.
    pub signed_in: Db,
    /// For what takes authority away: suspensions, the sweep, and the watch over what was revoked.
    pub authority: Db,
    /// For whoever is not signed in.
    pub unauthenticated: Db,
}

impl Shares {
    /// Connects; makes the file of a SQLite database.
    ///
    /// # Errors
    /// The server does not answer in time or refuses; the file cannot be opened.
    pub async fn connect(location: &Location) -> sqlx::Result<Self> {
        match location {
            Location::Postgres(options) => {
                let options = named(options);
                // One pool connects now, to find out whether it can; the others when they are needed.
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
                let share = |readers: u32, stages: &[&Arc<Semaphore>]| Db::Sqlite {
                    read: sqlite_readers(readers).connect_lazy_with(options.clone()),
                    write: write.clone(),
                    turns: Turns(stages.iter().copied().map(Arc::clone).collect()),
                };
                let all_others = Arc::new(Semaphore::new(1));
                let unauthenticated = Arc::new(Semaphore::new(1));
                Ok(Self {
                    signed_in: share(SIGNED_IN.1, &[&all_others]),
                    authority: share(AUTHORITY.1, &[]),
                    unauthenticated: share(UNAUTHENTICATED.1, &[&unauthenticated, &all_others]),
                })
            }
        }
    }

    /// Closes the connections, once what is under way has ended.
    pub async fn close(&self) {
        self.unauthenticated.close().await;
        self.signed_in.close().await;
        self.authority.close().await;
    }
}

/// Semaphores that a transaction passes, in this order, before it queues for SQLite's writer. Each is
/// first in, first out.
#[derive(Clone, Debug, Default)]
pub struct Turns(Arc<[Arc<Semaphore>]>);

/// Passage through all of them, until the transaction ends.
#[derive(Debug, Default)]
pub(super) struct Turn(#[expect(dead_code, reason = "held, not read")] Vec<OwnedSemaphorePermit>);

impl Turns {
    /// Waits for a turn.
    ///
    /// # Errors
    /// [`sqlx::Error::PoolTimedOut`] after [`ACQUIRE_TIMEOUT`].
    pub(super) async fn wait(&self) -> sqlx::Result<Turn> {
        let all = async {
            let mut permits = Vec::with_capacity(self.0.len());
            for stage in self.0.iter() {
                let permit = Arc::clone(stage).acquire_owned().await;
                permits.push(permit.map_err(|_| sqlx::Error::PoolClosed)?);
            }
            Ok(Turn(permits))
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
    use crate::testing::{On, Place, on_both_engines};

    on_both_engines!(authority_waits_for_one_transaction_at_most);

    /// Transactions of each of the other shares: more than any share has connections.
    const OTHERS: usize = 20;

    async fn authority_waits_for_one_transaction_at_most(on: On) {
        let place = Place::new(on).await;
        let shares = place.shares().await;
        shares.signed_in.migrate().await.unwrap();
        // Each that has begun stays until there is a permit.
        let (begun, may_end) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(0)));
        let mut others = JoinSet::new();
        for (name, db) in
            [("unauthenticated", &shares.unauthenticated), ("signed in", &shares.signed_in)]
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
        let mut authority = Box::pin(shares.authority.begin());
        if let On::Sqlite = on {
            // It is in the queue now, and the transaction before it ends.
            assert!(poll!(authority.as_mut()).is_pending());
            may_end.add_permits(1);
        }
        let tx = authority.await.unwrap();
        assert_eq!(begun.lock().unwrap().len(), at_once, "another one was before it");
        may_end.add_permits(2 * OTHERS);
        tx.commit().await.unwrap();
        others.join_all().await;
        assert_eq!(begun.lock().unwrap().len(), 2 * OTHERS);
        shares.close().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_is_signed_in_waits_for_one_unauthenticated_transaction_at_most() {
        let place = Place::new(On::Sqlite).await;
        let shares = place.shares().await;
        shares.signed_in.migrate().await.unwrap();
        let first = shares.unauthenticated.begin().await.unwrap();
        let mut more: Vec<_> =
            (0..OTHERS).map(|_| Box::pin(shares.unauthenticated.begin())).collect();
        for waiting in &mut more {
            assert!(poll!(waiting.as_mut()).is_pending());
        }
        let mut signed_in = Box::pin(shares.signed_in.begin());
        assert!(poll!(signed_in.as_mut()).is_pending());
        first.commit().await.unwrap();
        let tx = signed_in.await.unwrap();
        for waiting in &mut more {
            assert!(poll!(waiting.as_mut()).is_pending(), "it was before the one signed in");
        }
        tx.commit().await.unwrap();
        drop(more);
        shares.close().await;
    }
}
