//! The workspace of a token exchange, by identifier or namespace.

use uuid::Uuid;

use crate::{base::db::Db, on_engine};

/// A workspace, with the columns that a rule needs.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct WorkspaceRef {
    pub(super) id: Uuid,
    pub(super) owner: Uuid,
    pub(super) namespace: String,
}

impl WorkspaceRef {
    /// Whether `name` is the identifier or the namespace of the workspace.
    pub(super) fn is_named(&self, name: &str) -> bool {
        name == self.namespace || name.parse() == Ok(self.id)
    }
}

const FIND: &str = "\
SELECT workspace_id AS id, user_id AS owner, namespace FROM workspace_members \
WHERE namespace = $1 OR workspace_id = $2";

/// Finds the workspace with this identifier or namespace. `None` if there is none, or if two match.
pub(super) async fn find_by_name(db: &Db, name: &str) -> sqlx::Result<Option<WorkspaceRef>> {
    let id: Uuid = name.parse().unwrap_or_default();
    let mut found: Vec<WorkspaceRef> = on_engine!(db.reader(), pool => sqlx::query_as(FIND)
        .bind(name).bind(id).fetch_all(pool).await)?;
    Ok(if found.len() == 1 { found.pop() } else { None })
}
