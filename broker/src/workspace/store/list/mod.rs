//! Lists of workspaces, and lookup of workspaces by name.

#[cfg(test)]
mod tests;

use sqlx::FromRow;
use tenant_shared::{Name, Workspace};
use uuid::Uuid;

use super::{WorkspaceRow, columns};
use crate::{
    access::{Grants, Resource},
    base::{db::Db, paging::Cursor},
    on_engine,
};

/// A workspace with the e-mail address of its owner, which only lists and lookups show.
#[derive(Clone, Debug, FromRow)]
pub(in crate::workspace) struct ListedWorkspace {
    #[sqlx(flatten)]
    pub(in crate::workspace) workspace: WorkspaceRow,
    owner_email: String,
}

impl Resource for ListedWorkspace {
    type Id = Uuid;

    fn id(&self) -> Uuid {
        self.workspace.id()
    }

    fn workspace(&self) -> Option<Uuid> {
        self.workspace.workspace()
    }

    fn grants(&self) -> Grants {
        self.workspace.grants()
    }
}

impl ListedWorkspace {
    /// The API form of the row, without drift.
    pub(in crate::workspace) fn to_api(&self) -> Workspace {
        Workspace { owner_email: Some(self.owner_email.clone()), ..self.workspace.to_api() }
    }

    /// Its position in a list.
    pub(in crate::workspace) fn cursor(&self) -> Cursor {
        Cursor { created_at: self.workspace.created_at, id: self.workspace.id }
    }
}

// Constants, so that a test can explain the plan of each statement.
macro_rules! listed {
    ($name:ident, $rest:literal) => {
        const $name: &str = concat!(
            "SELECT ",
            columns!(),
            ", (SELECT e.email FROM user_emails e WHERE e.user_id = workspaces.user_id) \
               AS owner_email FROM workspaces ",
            $rest
        );
    };
}

listed!(BY_ID, "WHERE id = $1 LIMIT $2");
listed!(BY_ID_OF_EITHER, "WHERE (id = $1 OR user_id = $1) AND left_status IS NULL LIMIT $2");
listed!(BY_NAMESPACE, "WHERE k8s_namespace = $1 LIMIT $2");
listed!(
    BY_EMAIL,
    "WHERE user_id = (SELECT e.user_id FROM user_emails e WHERE e.email = $1) \
     AND left_status IS NULL LIMIT $2"
);
listed!(ALL, "WHERE (created_at, id) > ($1, $2) ORDER BY created_at, id LIMIT $3");
listed!(
    OF_USER,
    "WHERE user_id = $4 AND (created_at, id) > ($1, $2) AND left_status IS NULL \
     ORDER BY created_at, id LIMIT $3"
);

/// The workspace with this identifier.
pub(in crate::workspace) async fn by_id(
    db: &Db,
    id: Uuid,
) -> sqlx::Result<Option<ListedWorkspace>> {
    on_engine!(db.reader(), pool =>
        sqlx::query_as(BY_ID).bind(id).bind(1_i64).fetch_optional(pool).await)
}

/// The workspaces of this name, at most this number, oldest first, without memberships that ended.
/// One statement, which uses an index. The name of a home finds nothing, because it is no name of a
/// member.
pub(in crate::workspace) async fn by_name(
    db: &Db,
    name: &Name,
    most: u32,
) -> sqlx::Result<Vec<ListedWorkspace>> {
    let most = i64::from(most);
    let mut rows: Vec<ListedWorkspace> = on_engine!(db.reader(), pool => match name {
        Name::Id(id) => sqlx::query_as(BY_ID_OF_EITHER).bind(id).bind(most).fetch_all(pool).await,
        Name::Namespace(text) => {
            sqlx::query_as(BY_NAMESPACE).bind(text).bind(most).fetch_all(pool).await
        }
        Name::Email(text) => sqlx::query_as(BY_EMAIL).bind(text).bind(most).fetch_all(pool).await,
    })?;
    // Sorted here, because with ORDER BY the planner may scan another index.
    rows.sort_by_key(|it| (it.workspace.created_at, it.workspace.id));
    Ok(rows)
}

/// Workspaces of one owner or of all, oldest first, after this position. Memberships that ended are
/// among those of all, because credentials and audit rows refer to them.
pub(in crate::workspace) async fn page(
    db: &Db,
    owner: Option<Uuid>,
    after: Cursor,
    most: u32,
) -> sqlx::Result<Vec<ListedWorkspace>> {
    let most = i64::from(most);
    on_engine!(db.reader(), pool => match owner {
        None => sqlx::query_as(ALL)
            .bind(after.created_at).bind(after.id).bind(most).fetch_all(pool).await,
        Some(owner) => sqlx::query_as(OF_USER)
            .bind(after.created_at).bind(after.id).bind(most).bind(owner).fetch_all(pool).await,
    })
}

const COUNT: &str = "SELECT COUNT(*) FROM (SELECT 1 FROM workspaces LIMIT $1) AS some_of_them";

/// The number of workspaces; counting stops at `most`.
pub(in crate::workspace) async fn count(db: &Db, most: u32) -> sqlx::Result<i64> {
    on_engine!(db.reader(), pool =>
        sqlx::query_scalar(COUNT).bind(i64::from(most)).fetch_one(pool).await)
}
