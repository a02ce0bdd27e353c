//! Work queue of the sweep: unfinished workspaces, revocations first and then by waiting time.
//! After a failure a workspace goes to the end of the queue with an exponential backoff.

#[cfg(test)]
mod tests;

use tenant_shared::WorkspaceStatus as Status;

use super::{WorkspaceRow, select};
use crate::{
    base::db::{Db, Tx},
    on_engine,
    workspace::state::UNFINISHED,
};

/// How long after a change of status the sweep leaves a workspace to the request in flight, in
/// milliseconds.
pub(in crate::workspace) const GRACE_MS: i64 = 3_000;
/// Backoff after the first failure, in milliseconds; it doubles with each failure.
const INITIAL_BACKOFF_MS: i64 = 2_000;
/// Maximum backoff of work that revokes access, in milliseconds.
const MAX_SUSPENSION_BACKOFF_MS: i64 = 30_000;
/// Maximum backoff of all other work, in milliseconds.
const MAX_BACKOFF_MS: i64 = 5 * 60_000;

/// The backoff of a workspace in this status after this number of failed attempts, in milliseconds.
pub(in crate::workspace) fn backoff_ms(status: Status, attempts: i64) -> i64 {
    let longest = match status {
        // A provisioned workspace that is due has a credential to revoke.
        Status::Suspending | Status::Provisioned => MAX_SUSPENSION_BACKOFF_MS,
        _ => MAX_BACKOFF_MS,
    };
    let doublings = attempts.saturating_sub(1).clamp(0, 16);
    (INITIAL_BACKOFF_MS << doublings).min(longest)
}

/// Unfinished workspaces that are due: first suspensions, then rotations, because both revoke
/// access, then all others; each group by waiting time.
pub(in crate::workspace) async fn due(
    db: &Db,
    now: i64,
    most: u32,
) -> sqlx::Result<Vec<WorkspaceRow>> {
    let [first, second, third] = UNFINISHED;
    on_engine!(db.reader(), pool => sqlx::query_as(select!(
        "WHERE sweep_at <= $1 AND (status IN ($3, $4, $5) \
         OR (status = 'provisioned' AND retired_sa_uid IS NOT NULL)) \
         ORDER BY CASE status WHEN 'suspending' THEN 0 WHEN 'provisioned' THEN 1 ELSE 2 END, \
         sweep_at, id LIMIT $2"
    ))
        .bind(now).bind(i64::from(most)).bind(first.as_str()).bind(second.as_str())
        .bind(third.as_str()).fetch_all(pool).await)
}

const CLAIM: &str = "\
UPDATE workspaces SET sweep_at = $1, sweep_attempts = sweep_attempts + 1 \
WHERE id = $2 AND status = $3 AND status_changed_at = $4 AND sweep_at = $5";

/// Claims a workspace until this time; `None` if another replica claimed it or its status changed.
/// The claim of a replica that dies expires.
pub(in crate::workspace) async fn claim(
    db: &Db,
    mut workspace: WorkspaceRow,
    until: i64,
) -> sqlx::Result<Option<WorkspaceRow>> {
    let mut tx = db.begin().await?;
    let claimed = on_engine!(tx.connection(), c => sqlx::query(CLAIM)
        .bind(until).bind(workspace.id).bind(&workspace.status).bind(workspace.status_changed_at)
        .bind(workspace.sweep_at)
        .execute(c).await.map(|done| done.rows_affected()))?;
    tx.commit().await?;
    workspace.sweep_at = until;
    workspace.sweep_attempts += 1;
    Ok((claimed == 1).then_some(workspace))
}

const POSTPONE: &str = "\
UPDATE workspaces SET sweep_at = $1, open_step = $2 \
WHERE id = $3 AND status = $4 AND status_changed_at = $5 AND sweep_at = $6";

/// Returns a claimed workspace to the queue after a failure. `open_steps` is separated by commas.
pub(in crate::workspace) async fn postpone(
    db: &Db,
    claimed: &WorkspaceRow,
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

const SET_OPEN_STEPS: &str = "\
UPDATE workspaces SET open_step = $1 WHERE id = $2 AND status = $3 AND status_changed_at = $4";

/// Stores the steps that a request left open, separated by commas.
pub(in crate::workspace) async fn set_open_steps(
    tx: &mut Tx,
    workspace: &WorkspaceRow,
    open_steps: &str,
) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(SET_OPEN_STEPS)
        .bind(open_steps).bind(workspace.id).bind(&workspace.status)
        .bind(workspace.status_changed_at)
        .execute(c).await.map(drop))
}

/// A status, the number of workspaces in it, and since when the first of them is in it.
pub(in crate::workspace) type StatusCount = (String, i64, i64);

const COUNT_BY_STATUS: &str = "\
SELECT status, COUNT(*), MIN(status_changed_at) FROM workspaces \
WHERE left_status IS NULL OR status <> 'suspended' GROUP BY status";

/// Counts the workspaces in each status, without memberships that ended.
pub(in crate::workspace) async fn count_by_status(db: &Db) -> sqlx::Result<Vec<StatusCount>> {
    on_engine!(db.reader(), pool => sqlx::query_as(COUNT_BY_STATUS).fetch_all(pool).await)
}
