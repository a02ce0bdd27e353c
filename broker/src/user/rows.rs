//! Rows of users, as administrators see them.

use tenant_shared::Role;
use uuid::Uuid;

use crate::{
    db::{Db, Tx},
    identity::ACTIVE,
    on_engine,
};

/// Status of a user whom an administrator suspended.
const SUSPENDED: &str = "suspended";

/// A user.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Listed {
    pub(super) id: Uuid,
    pub(super) email: String,
    role: String,
    status: String,
    pub(super) created_at: i64,
}

impl Listed {
    /// Whether the user may sign in.
    pub(super) fn is_active(&self) -> bool {
        self.status == ACTIVE
    }

    /// What the user may do.
    pub(super) fn role(&self) -> sqlx::Result<Role> {
        Role::parse(&self.role).ok_or_else(|| sqlx::Error::ColumnDecode {
            index: "role".to_owned(),
            source: format!("users.role of {} is {:?}, which is no role", self.id, self.role)
                .into(),
        })
    }
}

const LIST: &str = "\
SELECT id, email, role, status, created_at FROM users WHERE email > $1 ORDER BY email LIMIT $2";

/// Users by address, after this one.
pub(super) async fn list(db: &Db, after: &str, most: usize) -> sqlx::Result<Vec<Listed>> {
    on_engine!(db.reader(), pool => sqlx::query_as(LIST)
        .bind(after).bind(i64::try_from(most).unwrap_or(i64::MAX)).fetch_all(pool).await)
}

const FIND: &str = "SELECT id, email, role, status, created_at FROM users WHERE id = $1";

/// The user of this identifier.
pub(super) async fn find(db: &Db, id: Uuid) -> sqlx::Result<Option<Listed>> {
    on_engine!(db.reader(), pool => sqlx::query_as(FIND).bind(id).fetch_optional(pool).await)
}

const SET_STATUS: &str = "UPDATE users SET status = $2 WHERE id = $1 AND status <> $2";

/// Suspends a user or lets them in again; `false` if they were so already.
pub(super) async fn set_active(tx: &mut Tx, id: Uuid, active: bool) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(SET_STATUS)
        .bind(id).bind(if active { ACTIVE } else { SUSPENDED })
        .execute(c).await.map(|done| done.rows_affected() == 1))
}
