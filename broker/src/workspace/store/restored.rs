//! Rows of `workspaces` after the restore of a backup: the cluster is newer than they are.

use tenant_shared::WorkspaceStatus as Status;
use uuid::Uuid;

use crate::{
    base::{
        clock::Clock,
        db::{Db, Tx},
    },
    on_engine,
};

/// Value of `retired_sa_uid` for the ServiceAccount that the cluster has, whichever it is: its
/// tokens may have been issued after the backup, so nobody knows them.
pub(in crate::workspace) const UNKNOWN_ACCOUNT: &str = "unknown";
/// Value of `retired_sa_uid` if the cluster has no ServiceAccount to delete.
pub(in crate::workspace) const NO_ACCOUNT: &str = "none";

const RETIRE: &str = "\
UPDATE workspaces SET retired_sa_uid = $1, k8s_sa_uid = NULL, sa_retired_at = $2, sweep_at = $2, \
  sweep_attempts = 0 \
WHERE status = $3";

/// Retires the ServiceAccount of every workspace in this status, whichever the cluster has. Returns
/// their number.
pub(in crate::workspace) async fn retire_accounts(
    tx: &mut Tx,
    clock: &Clock,
    status: Status,
) -> sqlx::Result<u64> {
    on_engine!(tx.connection(), c => sqlx::query(RETIRE)
        .bind(UNKNOWN_ACCOUNT).bind(clock.now_ms()).bind(status.as_str())
        .execute(c).await.map(|done| done.rows_affected()))
}

const SUSPEND: &str = "\
UPDATE workspaces SET status = 'suspending', status_changed_at = $1, sweep_at = $1, \
  sweep_attempts = 0, open_step = NULL, \
  k8s_sa_uid = CASE WHEN k8s_namespace_uid IS NULL THEN k8s_sa_uid END \
WHERE status = $2";

/// Schedules the suspension of every workspace in this status. Returns their number.
///
/// The cluster may have a newer ServiceAccount. So its uid is forgotten, and a suspension deletes
/// the account whichever it is, unless the namespace is known by that uid only.
pub(in crate::workspace) async fn suspend_all(
    tx: &mut Tx,
    clock: &Clock,
    status: Status,
) -> sqlx::Result<u64> {
    on_engine!(tx.connection(), c => sqlx::query(SUSPEND)
        .bind(clock.now_ms()).bind(status.as_str())
        .execute(c).await.map(|done| done.rows_affected()))
}

const IDENTIFY: &str =
    "UPDATE workspaces SET retired_sa_uid = $1 WHERE id = $2 AND retired_sa_uid = $3";

/// Stores which ServiceAccount has to be replaced, unless another replica did so.
pub(in crate::workspace) async fn identify_account(
    db: &Db,
    id: Uuid,
    uid: &str,
) -> sqlx::Result<()> {
    let mut tx = db.begin().await?;
    on_engine!(tx.connection(), c => sqlx::query(IDENTIFY)
        .bind(uid).bind(id).bind(UNKNOWN_ACCOUNT).execute(c).await.map(drop))?;
    tx.commit().await
}

const EXISTS: &str = "SELECT COUNT(*) FROM workspaces WHERE id = $1";

/// Whether there is a workspace with this identifier.
pub(in crate::workspace) async fn exists(tx: &mut Tx, id: Uuid) -> sqlx::Result<bool> {
    let count: i64 = on_engine!(tx.connection(), c =>
        sqlx::query_scalar(EXISTS).bind(id).fetch_one(c).await)?;
    Ok(count > 0)
}

const NAMESPACES: &str = "\
SELECT id, k8s_namespace FROM workspaces WHERE cluster = $1 AND id > $2 ORDER BY id LIMIT $3";

/// Identifiers and namespaces of the workspaces of a cluster, in any status, ordered by identifier,
/// after this identifier.
pub(in crate::workspace) async fn namespaces(
    db: &Db,
    cluster: &str,
    after: Uuid,
    most: u32,
) -> sqlx::Result<Vec<(Uuid, String)>> {
    on_engine!(db.reader(), pool => sqlx::query_as(NAMESPACES)
        .bind(cluster).bind(after).bind(i64::from(most)).fetch_all(pool).await)
}
