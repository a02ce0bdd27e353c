//! Table `drifts`: differences in the cluster that are not repaired yet. The row makes sure that
//! the audit trail has a difference once, however often a round sees it.

use tenant_shared::{Drift, WorkspaceStatus as Status};
use uuid::Uuid;

use super::{WorkspaceRow, select};
use crate::{
    base::{
        clock::timestamp,
        db::{Db, Tx},
        paging::Cursor,
    },
    on_engine,
};

/// A recorded difference.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub(in crate::workspace) struct DriftRow {
    pub(in crate::workspace) workspace_id: Uuid,
    pub(in crate::workspace) kind: String,
    pub(in crate::workspace) what: String,
    found_at: i64,
}

impl DriftRow {
    /// The API form of the row.
    pub(in crate::workspace) fn to_api(&self) -> Drift {
        Drift {
            kind: self.kind.clone(),
            what: self.what.clone(),
            found_at: timestamp(self.found_at).into(),
        }
    }
}

const ADD: &str = "\
INSERT INTO drifts (workspace_id, kind, what, found_at) VALUES ($1, $2, $3, $4) \
ON CONFLICT (workspace_id, kind, what) DO NOTHING";

/// Inserts a difference; false if it exists already.
pub(in crate::workspace) async fn add(
    tx: &mut Tx,
    workspace: Uuid,
    (kind, what): (&str, &str),
    now: i64,
) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(ADD)
        .bind(workspace).bind(kind).bind(what).bind(now)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

const REMOVE: &str = "DELETE FROM drifts WHERE workspace_id = $1 AND kind = $2 AND what = $3";

/// Deletes a difference; false if it did not exist.
pub(in crate::workspace) async fn remove(
    tx: &mut Tx,
    workspace: Uuid,
    (kind, what): (&str, &str),
) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(REMOVE)
        .bind(workspace).bind(kind).bind(what)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

const FOR_WORKSPACE: &str = "\
SELECT workspace_id, kind, what, found_at FROM drifts WHERE workspace_id = $1 ORDER BY kind, what";

/// The differences of a workspace.
pub(in crate::workspace) async fn for_workspace(
    db: &Db,
    workspace: Uuid,
) -> sqlx::Result<Vec<DriftRow>> {
    on_engine!(db.reader(), pool =>
        sqlx::query_as(FOR_WORKSPACE).bind(workspace).fetch_all(pool).await)
}

const ALL: &str = "\
SELECT workspace_id, kind, what, found_at FROM drifts ORDER BY workspace_id, kind, what LIMIT $1";

/// The differences of all workspaces, at most this number.
pub(in crate::workspace) async fn all(db: &Db, most: u32) -> sqlx::Result<Vec<DriftRow>> {
    on_engine!(db.reader(), pool =>
        sqlx::query_as(ALL).bind(i64::from(most)).fetch_all(pool).await)
}

const BETWEEN: &str = "\
SELECT d.workspace_id, d.kind, d.what, d.found_at FROM drifts d \
JOIN workspaces w ON w.id = d.workspace_id \
WHERE ($1 = 0 OR w.user_id = $2) \
  AND (w.created_at, w.id) >= ($3, $4) AND (w.created_at, w.id) <= ($5, $6) \
ORDER BY d.workspace_id, d.kind, d.what";

/// The differences of the workspaces of a page, from its first to its last workspace, of one owner
/// or of all.
pub(in crate::workspace) async fn between(
    db: &Db,
    owner: Option<Uuid>,
    first: Cursor,
    last: Cursor,
) -> sqlx::Result<Vec<DriftRow>> {
    on_engine!(db.reader(), pool => sqlx::query_as(BETWEEN)
        .bind(i64::from(owner.is_some())).bind(owner.unwrap_or_default())
        .bind(first.created_at).bind(first.id).bind(last.created_at).bind(last.id)
        .fetch_all(pool).await)
}

const COUNTS: &str = "SELECT kind, what, COUNT(*) FROM drifts GROUP BY kind, what";

/// The number of workspaces that have each difference.
pub(in crate::workspace) async fn counts(db: &Db) -> sqlx::Result<Vec<(String, String, i64)>> {
    on_engine!(db.reader(), pool => sqlx::query_as(COUNTS).fetch_all(pool).await)
}

/// Workspaces in a state with a desired set of objects, ordered by identifier, after this
/// identifier.
pub(in crate::workspace) async fn steady(
    db: &Db,
    after: Uuid,
    most: u32,
) -> sqlx::Result<Vec<WorkspaceRow>> {
    on_engine!(db.reader(), pool => sqlx::query_as(select!(
        "WHERE status IN ('provisioned', 'suspended') AND id > $1 ORDER BY id LIMIT $2"
    ))
        .bind(after).bind(i64::from(most)).fetch_all(pool).await)
}

/// Whether a workspace in this status has a desired set of objects.
pub(in crate::workspace) fn is_steady(status: Status) -> bool {
    matches!(status, Status::Provisioned | Status::Suspended)
}
