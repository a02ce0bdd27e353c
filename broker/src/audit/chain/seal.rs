//! Gives rows their place in the chain.

use std::{sync::Arc, time::Duration};

use sqlx::QueryBuilder;

use super::{CHECKPOINT, Hash, Mark, State};
use crate::{
    audit::Row,
    clock::{Clock, ticks},
    db::{Db, Tx},
    on_engine, problem,
    signing::PrivateKey,
};

/// Rows of one batch at most: one statement and a few milliseconds of the writer.
pub(in crate::audit) const BATCH: usize = 500;
/// How long a row stays unsealed, about.
const EVERY: Duration = Duration::from_secs(1);

const UNSEALED: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM audit_logs WHERE sequence IS NULL ORDER BY created_at, id LIMIT $1"
);

/// Only one of several at once gets past this: the others find another head.
const MOVE_HEAD: &str = "\
UPDATE audit_chain SET sequence = $1, hash = $2, sealed_at = $3 WHERE sequence = $4";

const INSERT_CHECKPOINT: &str = "\
INSERT INTO audit_checkpoints (sequence, created_at, signed) VALUES ($1, $2, $3)";

/// Rows could not be sealed; they stay as they are, for the next time.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The database.
    #[error("the database failed")]
    Storage(#[from] sqlx::Error),
    /// The key.
    #[error("cannot sign")]
    Sign(#[from] jsonwebtoken::errors::Error),
    /// Somebody changed what is there.
    #[error("{0}: somebody else wrote to the audit tables; run `tenant-broker audit verify`")]
    Tampered(&'static str),
}

/// Seals rows. Any number may run at once: what each writes depends on a head that nobody moved
/// meanwhile, so exactly one of them gets its batch in, and none waits for a lock while it hashes.
#[derive(Clone, Debug)]
pub struct Sealer {
    db: Db,
    clock: Clock,
    key: Arc<PrivateKey>,
}

impl Sealer {
    /// Signs checkpoints with this key.
    pub fn new(db: Db, clock: Clock, key: Arc<PrivateKey>) -> Self {
        Self { db, clock, key }
    }

    /// Seals about once a second what there is, for ever.
    pub async fn keep(self) {
        let mut ticks = ticks(EVERY);
        loop {
            ticks.tick().await;
            if let Err(error) = self.take_turn().await {
                tracing::error!(
                    error = problem::chain(&error),
                    "audit rows stay unsealed until the cause is gone"
                );
            }
        }
    }

    /// Seals, unless another replica did within the last interval.
    async fn take_turn(&self) -> Result<(), SealError> {
        let since = self.clock.now_ms() - State::read(&self.db).await?.sealed_at;
        // A clock that is ahead of ours does not keep us from it.
        if (0..700).contains(&since) {
            return Ok(());
        }
        self.run().await.map(drop)
    }

    /// Seals all rows that are committed; returns how many.
    ///
    /// # Errors
    /// What is not sealed stays for the next time.
    pub async fn run(&self) -> Result<u64, SealError> {
        let mut sealed = 0;
        loop {
            let batch = self.batch().await?;
            sealed += batch as u64;
            if batch < BATCH {
                return Ok(sealed);
            }
        }
    }

    /// Seals one batch; 0 if there was nothing to do, or another replica was first.
    async fn batch(&self) -> Result<usize, SealError> {
        let Some((tx, rows)) = self.prepare().await? else { return Ok(0) };
        tx.commit().await?;
        Ok(rows)
    }

    /// Everything but the commit, and how many rows it is about.
    pub(super) async fn prepare(&self) -> Result<Option<(Tx, usize)>, SealError> {
        let head = State::read(&self.db).await?;
        let rows: Vec<Row> = on_engine!(self.db.reader(), pool => sqlx::query_as(UNSEALED)
            .bind(i64::try_from(BATCH).unwrap_or(i64::MAX))
            .fetch_all(pool).await)?;
        if rows.is_empty() {
            return Ok(None);
        }
        let (mut sequence, mut hash) = (head.sequence, head.hash);
        let mut links = Vec::with_capacity(rows.len());
        for row in &rows {
            sequence += 1;
            hash = hash.link(sequence, row);
            links.push((row.id, sequence, hash));
        }
        let now = self.clock.now();
        let signed = self.key.sign(CHECKPOINT, &Mark { sequence, hash, at: now })?;
        let now = now.as_millisecond();

        let mut tx = self.db.begin().await?;
        let moved = on_engine!(tx.connection(), c => sqlx::query(MOVE_HEAD)
            .bind(sequence).bind(hash.as_bytes()).bind(now).bind(head.sequence)
            .execute(c).await.map(|done| done.rows_affected() == 1))?;
        if !moved {
            return Ok(None);
        }
        if write(&mut tx, &links).await? != links.len() as u64 {
            return Err(SealError::Tampered("rows vanished before they were sealed"));
        }
        on_engine!(tx.connection(), c => sqlx::query(INSERT_CHECKPOINT)
            .bind(sequence).bind(now).bind(&signed)
            .execute(c).await.map(drop))?;
        Ok(Some((tx, links.len())))
    }
}

/// Writes all links in one statement; returns how many rows took theirs.
async fn write(tx: &mut Tx, links: &[(uuid::Uuid, i64, Hash)]) -> sqlx::Result<u64> {
    on_engine!(tx.connection(), c => {
        let mut statement = QueryBuilder::new("WITH links (id, sequence, hash) AS (");
        statement.push_values(links, |mut row, (id, sequence, hash)| {
            row.push_bind(*id).push_bind(*sequence).push_bind(hash.as_bytes().to_vec());
        });
        statement.push(
            ") UPDATE audit_logs SET sequence = links.sequence, hash = links.hash FROM links \
             WHERE audit_logs.id = links.id AND audit_logs.sequence IS NULL",
        );
        // Each length is a statement of its own; they would drive others out of the cache.
        let done = statement.build().persistent(false).execute(c).await;
        done.map(|done| done.rows_affected())
    })
}
