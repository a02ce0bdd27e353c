//! The workspace that a machine names, by identifier or by namespace.

use uuid::Uuid;

use crate::{db::Db, on_engine};

/// A workspace, as far as a rule needs to know it.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Place {
    pub(super) id: Uuid,
    pub(super) owner: Uuid,
    pub(super) namespace: String,
}

impl Place {
    /// Whether this name is the workspace's.
    pub(super) fn is(&self, name: &str) -> bool {
        name == self.namespace || name.parse() == Ok(self.id)
    }
}

const FIND: &str = "\
SELECT id, user_id AS owner, k8s_namespace AS namespace FROM workspaces \
WHERE k8s_namespace = $1 OR id = $2";

/// The workspace of this name. `None` if there is none, or if the name could mean two.
pub(super) async fn find(db: &Db, name: &str) -> sqlx::Result<Option<Place>> {
    let id: Uuid = name.parse().unwrap_or_default();
    let mut found: Vec<Place> = on_engine!(db.reader(), pool => sqlx::query_as(FIND)
        .bind(name).bind(id).fetch_all(pool).await)?;
    Ok(if found.len() == 1 { found.pop() } else { None })
}
