//! Rows of what differs in the cluster and was not set right yet. A row is what makes the audit trail
//! say a thing once, however often it is seen.

use tenant_shared::{Drift, WorkspaceStatus as Status};
use uuid::Uuid;

use super::{Found, select};
use crate::{
    clock::timestamp,
    db::{Db, Tx},
    list::Cursor,
    on_engine,
};

/// Something that differs.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub(in crate::workspace) struct Row {
    pub(in crate::workspace) workspace_id: Uuid,
    pub(in crate::workspace) kind: String,
    pub(in crate::workspace) what: String,
    found_at: i64,
}

impl Row {
    pub(in crate::workspace) fn wire(&self) -> Drift {
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

/// Keeps a difference; false if it is kept already.
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

/// Forgets a difference; false if it was not kept.
pub(in crate::workspace) async fn remove(
    tx: &mut Tx,
    workspace: Uuid,
    (kind, what): (&str, &str),
) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(REMOVE)
        .bind(workspace).bind(kind).bind(what)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

const OF: &str = "\
SELECT workspace_id, kind, what, found_at FROM drifts WHERE workspace_id = $1 ORDER BY kind, what";

/// The differences of a workspace.
pub(in crate::workspace) async fn of(db: &Db, workspace: Uuid) -> sqlx::Result<Vec<Row>> {
    on_engine!(db.reader(), pool => sqlx::query_as(OF).bind(workspace).fetch_all(pool).await)
}

const ALL: &str = "\
SELECT workspace_id, kind, what, found_at FROM drifts ORDER BY workspace_id, kind, what LIMIT $1";

/// The differences of all workspaces, a bounded number.
pub(in crate::workspace) async fn all(db: &Db, most: u32) -> sqlx::Result<Vec<Row>> {
    on_engine!(db.reader(), pool =>
        sqlx::query_as(ALL).bind(i64::from(most)).fetch_all(pool).await)
}

const BETWEEN: &str = "\
SELECT d.workspace_id, d.kind, d.what, d.found_at FROM drifts d \
JOIN workspaces w ON w.id = d.workspace_id \
WHERE ($1 = 0 OR w.user_id = $2) \
  AND (w.created_at, w.id) >= ($3, $4) AND (w.created_at, w.id) <= ($5, $6) \
ORDER BY d.workspace_id, d.kind, d.what";

/// The differences of the workspaces of a page, from its first to its last one, of one person or of
/// everybody.
pub(in crate::workspace) async fn between(
    db: &Db,
    owner: Option<Uuid>,
    first: Cursor,
    last: Cursor,
) -> sqlx::Result<Vec<Row>> {
    on_engine!(db.reader(), pool => sqlx::query_as(BETWEEN)
        .bind(i64::from(owner.is_some())).bind(owner.unwrap_or_default())
        .bind(first.created_at).bind(first.id).bind(last.created_at).bind(last.id)
        .fetch_all(pool).await)
}

const COUNTS: &str = "SELECT kind, what, COUNT(*) FROM drifts GROUP BY kind, what";

/// How many workspaces have each difference.
pub(in crate::workspace) async fn counts(db: &Db) -> sqlx::Result<Vec<(String, String, i64)>> {
    on_engine!(db.reader(), pool => sqlx::query_as(COUNTS).fetch_all(pool).await)
}

/// Workspaces whose objects have to be a certain way, in the order of their identifiers, after this
/// one.
pub(in crate::workspace) async fn settled(
    db: &Db,
    after: Uuid,
    most: u32,
) -> sqlx::Result<Vec<Found>> {
    on_engine!(db.reader(), pool => sqlx::query_as(select!(
        "WHERE status IN ('provisioned', 'suspended') AND id > $1 ORDER BY id LIMIT $2"
    ))
        .bind(after).bind(i64::from(most)).fetch_all(pool).await)
}

/// Whether a workspace is in the state that has to be a certain way.
pub(in crate::workspace) fn is_settled(status: Status) -> bool {
    matches!(status, Status::Provisioned | Status::Suspended)
}
