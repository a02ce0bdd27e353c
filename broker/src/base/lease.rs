//! Leases: work that one replica does at a time. A lease has a name and a holder, and expires at a
//! time that the holder can extend.

use uuid::Uuid;

use crate::{
    base::{
        clock::Clock,
        db::{Db, Engine, Tx},
    },
    on_engine,
};

/// `$4` is the time of a test. Without one the clock of PostgreSQL decides.
const ACQUIRE_ON_POSTGRES: &str = "\
INSERT INTO leases (name, holder, held_until) VALUES ($1, $2, \
COALESCE($4, CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)) + $3) \
ON CONFLICT (name) DO UPDATE SET holder = $2, held_until = \
COALESCE($4, CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)) + $3 \
WHERE leases.holder = $2 OR leases.held_until <= \
COALESCE($4, CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT))";

const ACQUIRE_ON_SQLITE: &str = "\
INSERT INTO leases (name, holder, held_until) VALUES ($1, $2, $4 + $3) \
ON CONFLICT (name) DO UPDATE SET holder = $2, held_until = $4 + $3 \
WHERE leases.holder = $2 OR leases.held_until <= $4";

/// Acquires or renews a lease for this many milliseconds; `false` if another holder has it.
///
/// The clock of PostgreSQL decides, because those of the replicas differ. Processes that share a
/// SQLite file run on one machine, with one clock.
///
/// # Errors
/// The database failed.
pub async fn acquire_lease(
    db: &Db,
    clock: &Clock,
    name: &str,
    holder: Uuid,
    milliseconds: i64,
) -> sqlx::Result<bool> {
    let mut tx = db.begin().await?;
    let rows = match tx.connection() {
        Engine::Postgres(c) => {
            let acquire = sqlx::query(ACQUIRE_ON_POSTGRES).bind(name).bind(holder);
            let acquired = acquire.bind(milliseconds).bind(clock.manual_ms()).execute(c).await;
            acquired.map(|done| done.rows_affected())
        }
        Engine::Sqlite(c) => {
            let acquire = sqlx::query(ACQUIRE_ON_SQLITE).bind(name).bind(holder);
            let acquired = acquire.bind(milliseconds).bind(clock.now_ms()).execute(c).await;
            acquired.map(|done| done.rows_affected())
        }
    }?;
    tx.commit().await?;
    Ok(rows == 1)
}

const RELEASE: &str = "DELETE FROM leases WHERE name = $1 AND holder = $2";

/// Releases a lease. Does nothing if this holder does not have it, because it expired and another
/// one acquired it.
///
/// # Errors
/// The database failed; the lease expires then.
pub async fn release_lease(db: &Db, name: &str, holder: Uuid) -> sqlx::Result<()> {
    let mut tx = db.begin().await?;
    on_engine!(tx.connection(), c => sqlx::query(RELEASE)
        .bind(name).bind(holder).execute(c).await.map(drop))?;
    tx.commit().await
}

/// `$2` is the time of a test, as in [`ACQUIRE_ON_POSTGRES`].
const DELETE_EXPIRED_ON_POSTGRES: &str = "DELETE FROM leases WHERE held_until <= \
COALESCE($2, CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)) - $1";
const DELETE_EXPIRED_ON_SQLITE: &str = "DELETE FROM leases WHERE held_until <= $2 - $1";

/// Deletes leases that ended this many milliseconds ago, or before, by the clock of
/// [`acquire_lease`]: their holders died. Their names may be used only once, as those of tenants are,
/// so nobody else takes them over.
///
/// # Errors
/// The database failed.
pub async fn delete_expired(tx: &mut Tx, clock: &Clock, milliseconds: i64) -> sqlx::Result<()> {
    match tx.connection() {
        Engine::Postgres(c) => {
            let delete = sqlx::query(DELETE_EXPIRED_ON_POSTGRES).bind(milliseconds);
            delete.bind(clock.manual_ms()).execute(c).await.map(drop)
        }
        Engine::Sqlite(c) => {
            let delete = sqlx::query(DELETE_EXPIRED_ON_SQLITE).bind(milliseconds);
            delete.bind(clock.now_ms()).execute(c).await.map(drop)
        }
    }
}

const DELETE_ALL: &str = "DELETE FROM leases";

/// Deletes all leases, because after a restore their holders do not run any more.
///
/// # Errors
/// The database failed.
pub async fn delete_all(tx: &mut Tx) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(DELETE_ALL).execute(c).await.map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{On, Storage, on_both_engines, run_concurrently};

    on_both_engines!(
        one_replica_holds_a_lease_until_it_expires,
        only_its_holder_releases_a_lease,
        only_expired_leases_are_deleted,
    );

    /// Replicas whose clocks are an hour ahead and behind.
    #[tokio::test]
    async fn the_clock_of_a_replica_decides_over_no_lease_on_postgresql() {
        const HOUR_MS: i64 = 60 * 60 * 1000;
        let storage = Storage::new(On::Postgres).await;
        let [behind, right, ahead] = [-HOUR_MS, 0, HOUR_MS].map(Clock::ahead);
        for (name, holder, other) in [("a", &right, &ahead), ("b", &behind, &right)] {
            let acquire =
                |clock| acquire_lease(&storage.db, clock, name, right.random_id(), 60_000);
            assert!(acquire(holder).await.unwrap());
            assert!(!acquire(other).await.unwrap(), "{name} is held for a minute");
        }
        let end = || acquire_lease(&storage.db, &ahead, "c", ahead.random_id(), 1);
        assert!(end().await.unwrap());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        assert!(end().await.unwrap(), "a lease of a millisecond has expired");
    }

    const COUNT: &str = "SELECT COUNT(*) FROM leases";

    async fn acquire(storage: &Storage, name: &str, holder: Uuid) -> bool {
        acquire_lease(&storage.db, &storage.clock, name, holder, 1000).await.unwrap()
    }

    async fn one_replica_holds_a_lease_until_it_expires(on: On) {
        let storage = Storage::new(on).await;
        let processes = [storage.db.clone(), storage.database.connect().await];
        let held = run_concurrently((0..16).map(|n| {
            let (db, clock) = (processes[n % 2].clone(), storage.clock.clone());
            async move {
                let me = clock.random_id();
                (me, acquire_lease(&db, &clock, "drift", me, 1000).await.unwrap())
            }
        }))
        .await;
        let holders: Vec<Uuid> =
            held.into_iter().filter(|(_, held)| *held).map(|(me, _)| me).collect();
        let [holder] = holders[..] else { panic!("{holders:?}") };
        let other = storage.clock.random_id();
        let take = async |who| {
            acquire_lease(&processes[1], &storage.clock, "drift", who, 1000).await.unwrap()
        };
        storage.clock.advance(999);
        assert!(take(holder).await, "the holder renews it");
        storage.clock.advance(999);
        assert!(!take(other).await);
        assert!(acquire_lease(&storage.db, &storage.clock, "else", other, 1).await.unwrap());
        storage.clock.advance(1);
        assert!(take(other).await, "the holder died");
        assert!(!take(holder).await);
    }

    async fn only_its_holder_releases_a_lease(on: On) {
        let storage = Storage::new(on).await;
        let (one, other) = (storage.clock.random_id(), storage.clock.random_id());
        release_lease(&storage.db, "drift", one).await.unwrap();
        for name in ["drift", "else"] {
            assert!(acquire(&storage, name, one).await);
        }
        release_lease(&storage.db, "drift", other).await.unwrap();
        assert!(!acquire(&storage, "drift", other).await, "it is not the holder's");
        release_lease(&storage.db, "drift", one).await.unwrap();
        assert_eq!(storage.number(COUNT).await, 1, "the other lease stays");
        assert!(acquire(&storage, "drift", other).await, "nobody waits for its end");
        release_lease(&storage.db, "drift", one).await.unwrap();
        assert!(!acquire(&storage, "drift", one).await, "an earlier holder releases nothing");
    }

    async fn only_expired_leases_are_deleted(on: On) {
        let storage = Storage::new(on).await;
        let holder = storage.clock.random_id();
        assert!(acquire(&storage, "old", holder).await);
        let end = storage.clock.now_ms() + 1000;
        storage.clock.advance(1);
        assert!(acquire(&storage, "young", holder).await);
        for (before, left) in [(end - 1, 2), (end, 1)] {
            let mut tx = storage.db.begin().await.unwrap();
            let ago = storage.clock.now_ms() - before;
            delete_expired(&mut tx, &storage.clock, ago).await.unwrap();
            tx.commit().await.unwrap();
            assert_eq!(storage.number(COUNT).await, left);
        }
        assert!(!acquire(&storage, "young", storage.clock.random_id()).await);
        let mut tx = storage.db.begin().await.unwrap();
        delete_all(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(storage.number(COUNT).await, 0);
    }
}
