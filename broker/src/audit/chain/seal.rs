//! The sealer: gives audit rows their position in the chain and signs checkpoints.

use std::time::Duration;

use sqlx::QueryBuilder;

use super::{CHECKPOINT, CheckpointClaims, Hash, State};
use crate::{
    audit::{AuditKeys, TrailRow},
    base::{
        clock::{Clock, ticks},
        db::{Db, Tx},
        error_chain,
        reload::Reloaded,
        telemetry::Metrics,
    },
    on_engine,
};

/// Maximum rows of one batch: one statement, and a few milliseconds of the writer.
pub(in crate::audit) const MAX_BATCH_ROWS: usize = 500;
/// Interval of sealing: about the time that a row stays unsealed.
const SEAL_INTERVAL: Duration = Duration::from_secs(1);

const UNSEALED: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM audit_logs WHERE sequence IS NULL ORDER BY created_at, id LIMIT $1"
);

/// Only one of several concurrent sealers succeeds here: the others find that the head has moved.
const MOVE_HEAD: &str = "\
UPDATE audit_chain SET sequence = $1, hash = $2, sealed_at = $3 WHERE sequence = $4";

const INSERT_CHECKPOINT: &str = "\
INSERT INTO audit_checkpoints (sequence, created_at, signed) VALUES ($1, $2, $3)";

/// Rows could not be sealed; they stay unsealed until the next attempt.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The database failed.
    #[error("the database failed")]
    Storage(#[from] sqlx::Error),
    /// The signature could not be made.
    #[error("cannot sign")]
    Sign(#[from] jsonwebtoken::errors::Error),
    /// Somebody else changed the audit tables.
    #[error("{0}: somebody else wrote to the audit tables; run `tenant-broker audit verify`")]
    Tampered(&'static str),
}

impl SealError {
    /// Values of the label `cause` in metrics.
    pub const CAUSES: [&str; 3] = ["database", "signature", "tampered"];

    fn cause(&self) -> &'static str {
        let [database, signature, tampered] = Self::CAUSES;
        match self {
            Self::Storage(_) => database,
            Self::Sign(_) => signature,
            Self::Tampered(_) => tampered,
        }
    }
}

/// Seals rows. Any number of sealers may run concurrently: every write depends on an unchanged
/// head, so exactly one of them commits its batch, and none waits for a lock while it hashes.
#[derive(Clone, Debug)]
pub struct Sealer {
    db: Db,
    clock: Clock,
    keys: Reloaded<AuditKeys>,
    metrics: Metrics,
}

impl Sealer {
    /// A sealer that signs checkpoints with the signing key of these.
    pub fn new(db: Db, clock: Clock, keys: Reloaded<AuditKeys>, metrics: Metrics) -> Self {
        Self { db, clock, keys, metrics }
    }

    /// Seals new rows about once a second, forever.
    pub async fn run(self) {
        let mut ticks = ticks(SEAL_INTERVAL);
        loop {
            ticks.tick().await;
            match self.seal_if_due().await {
                Ok(()) => self.metrics.audit_sealed(self.clock.now()),
                Err(error) => {
                    self.metrics.audit_seal_failed(error.cause());
                    tracing::error!(error = error_chain(&error), "sealing audit rows failed");
                }
            }
        }
    }

    /// Seals, unless another replica did so within the last interval.
    async fn seal_if_due(&self) -> Result<(), SealError> {
        let since = self.clock.now_ms() - State::read(&self.db).await?.sealed_at;
        // A replica whose clock is ahead of ours does not stop us.
        if (0..700).contains(&since) {
            return Ok(());
        }
        self.seal_all().await.map(drop)
    }

    /// Seals all committed rows; returns their number.
    ///
    /// # Errors
    /// Rows that are not sealed stay for the next attempt.
    pub async fn seal_all(&self) -> Result<u64, SealError> {
        let mut sealed = 0;
        loop {
            let batch = self.seal_batch().await?;
            sealed += batch as u64;
            if batch < MAX_BATCH_ROWS {
                return Ok(sealed);
            }
        }
    }

    /// Seals one batch; 0 if there was nothing to do or another replica was faster.
    async fn seal_batch(&self) -> Result<usize, SealError> {
        let Some((tx, rows)) = self.prepare_batch().await? else { return Ok(0) };
        tx.commit().await?;
        Ok(rows)
    }

    /// Everything but the commit: the transaction and the number of its rows.
    pub(super) async fn prepare_batch(&self) -> Result<Option<(Tx, usize)>, SealError> {
        let head = State::read(&self.db).await?;
        let rows: Vec<TrailRow> = on_engine!(self.db.reader(), pool => sqlx::query_as(UNSEALED)
            .bind(i64::try_from(MAX_BATCH_ROWS).unwrap_or(i64::MAX))
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
        let claims = CheckpointClaims { sequence, hash, at: now };
        let signed = self.keys.get().signing.sign(CHECKPOINT, &claims)?;
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

/// Writes all sequence numbers and hashes in one statement; returns the number of updated rows.
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
        // Each batch length is a different statement; caching them would evict others.
        let done = statement.build().persistent(false).execute(c).await;
        done.map(|done| done.rows_affected())
    })
}
