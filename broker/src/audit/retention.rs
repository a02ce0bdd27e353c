//! Retention of the audit trail: old rows are deleted up to a checkpoint, and a signed anchor
//! records that.

use super::{
    Action, Event,
    chain::{ANCHOR, CHECKPOINT, CheckpointClaims, SealError, State},
    record,
};
use crate::{
    base::{
        clock::Clock,
        db::Db,
        signing::{PrivateKey, PublicKeys},
    },
    on_engine,
};

/// A day, in milliseconds.
const DAY_MS: i64 = 24 * 3600 * 1000;
/// Approximate number of rows that one transaction deletes; other writers wait for it.
const MAX_ROWS: i64 = 10_000;

/// The last checkpoint that is old enough, and the time of the first checkpoint of all.
const LAST_EXPIRED: &str = "\
SELECT sequence, signed, (SELECT MIN(created_at) FROM audit_checkpoints) FROM audit_checkpoints \
WHERE created_at <= $1 AND sequence <= $2 ORDER BY sequence DESC LIMIT 1";

const MOVE_ANCHOR: &str = "\
UPDATE audit_chain SET anchor_sequence = $1, anchor = $2 WHERE anchor_sequence = $3";

const DELETE_ROWS: &str = "DELETE FROM audit_logs WHERE sequence <= $1";
const DELETE_CHECKPOINTS: &str = "DELETE FROM audit_checkpoints WHERE sequence <= $1";

/// Deletes rows that were sealed more than `days` days ago, once at least a day's worth of them has
/// expired. Returns the number of the last deleted row, if any. Several replicas may run this
/// concurrently.
///
/// The age is that of the signed checkpoint, so an attacker who can only write to the database
/// cannot have rows deleted early.
///
/// # Errors
/// The database or the signature check failed; nothing was deleted.
pub async fn prune(
    db: &Db,
    clock: &Clock,
    key: &PrivateKey,
    known: &PublicKeys,
    days: u32,
) -> Result<Option<i64>, SealError> {
    let limit = clock.now_ms() - i64::from(days) * DAY_MS;
    let state = State::read(db).await?;
    let old: Option<(i64, String, i64)> = on_engine!(db.reader(), pool => sqlx::query_as(LAST_EXPIRED)
        .bind(limit).bind(state.anchor_sequence + MAX_ROWS)
        .fetch_optional(pool).await)?;
    let Some((sequence, signed, first)) = old else { return Ok(None) };
    if first > limit - DAY_MS {
        return Ok(None);
    }
    let checkpoint: CheckpointClaims = known.verify(CHECKPOINT, &signed).map_err(|_| {
        SealError::Tampered("the checkpoint to prune up to is not signed by a known key")
    })?;
    if checkpoint.sequence != sequence || checkpoint.at.as_millisecond() > limit {
        return Err(SealError::Tampered(
            "the checkpoint to prune up to differs from what was signed",
        ));
    }
    let anchor = CheckpointClaims { at: clock.now(), ..checkpoint };
    let anchor = key.sign(ANCHOR, &anchor)?;

    let mut tx = db.begin().await?;
    let moved = on_engine!(tx.connection(), c => sqlx::query(MOVE_ANCHOR)
        .bind(sequence).bind(&anchor).bind(state.anchor_sequence)
        .execute(c).await.map(|done| done.rows_affected() == 1))?;
    if !moved {
        // Another replica was faster.
        return Ok(None);
    }
    for statement in [DELETE_ROWS, DELETE_CHECKPOINTS] {
        on_engine!(tx.connection(), c =>
            sqlx::query(statement).bind(sequence).execute(c).await.map(drop))?;
    }
    let event = Event {
        reason: Some(format!(
            "rows {} to {sequence}, sealed until {}, older than {days} days",
            state.anchor_sequence + 1,
            checkpoint.at
        )),
        ..Event::success(Action::CutAuditTrail)
    };
    record(&mut tx, clock, event).await?;
    tx.commit().await?;
    Ok(Some(sequence))
}
