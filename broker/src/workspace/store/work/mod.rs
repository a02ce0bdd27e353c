//! Half-done workspaces as a queue: suspensions and then whoever has waited longest come first, and what failed goes
//! to the end of it with a back-off that grows.

#[cfg(test)]
mod tests;

use tenant_shared::WorkspaceStatus as Status;
use uuid::Uuid;

use super::{Found, select};
use crate::{
    clock::Clock,
    db::{Db, Tx},
    on_engine,
    workspace::state::UNFINISHED,
};

/// What moved a shorter time ago is somebody's request under way, in milliseconds.
pub(in crate::workspace) const GRACE_MS: i64 = 3_000;
/// Back-off after the first failure; it doubles with each.
const FIRST_BACK_OFF_MS: i64 = 2_000;
/// Longest back-off of what takes rights away.
const LONGEST_OF_SUSPENSION_MS: i64 = 30_000;
/// Longest back-off of everything else.
const LONGEST_MS: i64 = 5 * 60_000;

/// How long a workspace in this state rests after so many failed tries.
pub(in crate::workspace) fn back_off_ms(status: Status, attempts: i64) -> i64 {
    let longest = match status {
        // One that works and is due has a credential to revoke.
        Status::Suspending | Status::Provisioned => LONGEST_OF_SUSPENSION_MS,
        _ => LONGEST_MS,
    };
    let doublings = attempts.saturating_sub(1).clamp(0, 16);
    (FIRST_BACK_OFF_MS << doublings).min(longest)
}

/// Workspaces with something to finish whose time has come: suspensions first, then the longest waiting.
pub(in crate::workspace) async fn due(db: &Db, now: i64, most: u32) -> sqlx::Result<Vec<Found>> {
    let [first, second, third] = UNFINISHED;
    on_engine!(db.reader(), pool => sqlx::query_as(select!(
        "WHERE sweep_at <= $1 AND (status IN ($3, $4, $5) \
         OR (status = 'provisioned' AND retired_sa_uid IS NOT NULL)) \
         ORDER BY CASE WHEN status = 'suspending' THEN 0 ELSE 1 END, sweep_at, id LIMIT $2"
    ))
        .bind(now).bind(i64::from(most)).bind(first.as_str()).bind(second.as_str())
        .bind(third.as_str()).fetch_all(pool).await)
}

const CLAIM: &str = "\
UPDATE workspaces SET sweep_at = $1, sweep_attempts = sweep_attempts + 1 \
WHERE id = $2 AND status = $3 AND status_changed_at = $4 AND sweep_at = $5";

/// Takes a workspace up for so long; `None` if another replica did, or if it moved on. A replica that
/// dies loses it when the time is over.
pub(in crate::workspace) async fn claim(
    db: &Db,
    found: Found,
    until: i64,
) -> sqlx::Result<Option<Found>> {
    let mut tx = db.begin().await?;
    let claimed = on_engine!(tx.connection(), c => sqlx::query(CLAIM)
        .bind(until).bind(found.id).bind(&found.status).bind(found.status_changed_at)
        .bind(found.sweep_at)
        .execute(c).await.map(|done| done.rows_affected()))?;
    tx.commit().await?;
    let sweep_attempts = found.sweep_attempts + 1;
    Ok((claimed == 1).then_some(Found { sweep_at: until, sweep_attempts, ..found }))
}

const POSTPONE: &str = "\
UPDATE workspaces SET sweep_at = $1, open_step = $2 \
WHERE id = $3 AND status = $4 AND status_changed_at = $5 AND sweep_at = $6";

/// Gives a claimed workspace back to the queue after a failure that left these steps open, separated by
/// commas.
pub(in crate::workspace) async fn postpone(
    db: &Db,
    claimed: &Found,
    at: i64,
    open_steps: &str,
) -> sqlx::Result<()> {
    let mut tx = db.begin().await?;
    on_engine!(tx.connection(), c => sqlx::query(POSTPONE)
        .bind(at).bind(open_steps).bind(claimed.id).bind(&claimed.status)
        .bind(claimed.status_changed_at).bind(claimed.sweep_at)
        .execute(c).await.map(drop))?;
    tx.commit().await
}

const STOPPED_AT: &str = "\
UPDATE workspaces SET open_step = $1 WHERE id = $2 AND status = $3 AND status_changed_at = $4";

/// Keeps the steps that a request left open, separated by commas.
pub(in crate::workspace) async fn stopped_at(
    tx: &mut Tx,
    found: &Found,
    open_steps: &str,
) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(STOPPED_AT)
        .bind(open_steps).bind(found.id).bind(&found.status).bind(found.status_changed_at)
        .execute(c).await.map(drop))
}

/// How many workspaces are in a state, and since when the first of them is.
pub(in crate::workspace) type Census = (String, i64, i64);

const CENSUS: &str =
    "SELECT status, COUNT(*), MIN(status_changed_at) FROM workspaces GROUP BY status";

/// Counts the workspaces of each state.
pub(in crate::workspace) async fn census(db: &Db) -> sqlx::Result<Vec<Census>> {
    on_engine!(db.reader(), pool => sqlx::query_as(CENSUS).fetch_all(pool).await)
}

const TAKE_LEASE: &str = "\
INSERT INTO leases (name, holder, held_until) VALUES ($1, $2, $3) \
ON CONFLICT (name) DO UPDATE SET holder = $2, held_until = $3 \
WHERE leases.holder = $2 OR leases.held_until <= $4";

/// Takes or keeps the lease of some work for so long; false if another replica has it.
pub(in crate::workspace) async fn hold_lease(
    db: &Db,
    clock: &Clock,
    name: &str,
    holder: Uuid,
    milliseconds: i64,
) -> sqlx::Result<bool> {
    let now = clock.now_ms();
    let mut tx = db.begin().await?;
    let held = on_engine!(tx.connection(), c => sqlx::query(TAKE_LEASE)
        .bind(name).bind(holder).bind(now + milliseconds).bind(now)
        .execute(c).await.map(|done| done.rows_affected()))?;
    tx.commit().await?;
    Ok(held == 1)
}
