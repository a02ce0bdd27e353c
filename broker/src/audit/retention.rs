//! Deletes old rows, up to a checkpoint, and signs that it did.

use super::{
    Action, Event,
    chain::{ANCHOR, CHECKPOINT, Mark, SealError, State},
    record,
};
use crate::{
    clock::Clock,
    db::Db,
    on_engine,
    signing::{PrivateKey, PublicKeys},
};

/// A day, in milliseconds.
const DAY: i64 = 24 * 3600 * 1000;
/// Rows of one transaction at most, about: whoever writes meanwhile waits for it.
const STEP: i64 = 10_000;

/// The last checkpoint that is old enough, and the first one that there is.
const OLD: &str = "\
SELECT sequence, signed, (SELECT MIN(created_at) FROM audit_checkpoints) FROM audit_checkpoints \
WHERE created_at <= $1 AND sequence <= $2 ORDER BY sequence DESC LIMIT 1";

const MOVE_ANCHOR: &str = "\
UPDATE audit_chain SET anchor_sequence = $1, anchor = $2 WHERE anchor_sequence = $3";

const DELETE_ROWS: &str = "DELETE FROM audit_logs WHERE sequence <= $1";
const DELETE_CHECKPOINTS: &str = "DELETE FROM audit_checkpoints WHERE sequence <= $1";

/// Deletes rows that were sealed more than so many days ago, once a day's worth is over; returns up
/// to which number, if any. Any number of replicas may try at once.
///
/// The age is the signed one, so nobody who can only write to the database has rows deleted early.
///
/// # Errors
/// Nothing was deleted.
pub async fn cut(
    db: &Db,
    clock: &Clock,
    key: &PrivateKey,
    known: &PublicKeys,
    days: u32,
) -> Result<Option<i64>, SealError> {
    let limit = clock.now_ms() - i64::from(days) * DAY;
    let state = State::read(db).await?;
    let old: Option<(i64, String, i64)> = on_engine!(db.reader(), pool => sqlx::query_as(OLD)
        .bind(limit).bind(state.anchor_sequence + STEP)
        .fetch_optional(pool).await)?;
    let Some((sequence, signed, first)) = old else { return Ok(None) };
    if first > limit - DAY {
        return Ok(None);
    }
    let mark: Mark = known.open(CHECKPOINT, &signed).map_err(|_| {
        SealError::Tampered("the checkpoint to cut at is not signed by a known key")
    })?;
    if mark.sequence != sequence || mark.at.as_millisecond() > limit {
        return Err(SealError::Tampered("the checkpoint to cut at is not what was signed"));
    }
    let anchor = Mark { at: clock.now(), ..mark };
    let anchor = key.sign(ANCHOR, &anchor)?;

    let mut tx = db.begin().await?;
    let moved = on_engine!(tx.connection(), c => sqlx::query(MOVE_ANCHOR)
        .bind(sequence).bind(&anchor).bind(state.anchor_sequence)
        .execute(c).await.map(|done| done.rows_affected() == 1))?;
    if !moved {
        // Another replica was first.
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
            mark.at
        )),
        ..Event::success(Action::CutAuditTrail)
    };
    record(&mut tx, clock, event).await?;
    tx.commit().await?;
    Ok(Some(sequence))
}
