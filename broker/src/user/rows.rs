//! Rows of users, as administrators see them.

use tenant_shared::{Name, Role};
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
pub(super) async fn list(db: &Db, after: &str, most: u32) -> sqlx::Result<Vec<Listed>> {
    on_engine!(db.reader(), pool => sqlx::query_as(LIST)
        .bind(after).bind(i64::from(most)).fetch_all(pool).await)
}

const FIND: &str = "SELECT id, email, role, status, created_at FROM users WHERE id = $1";

/// The user of this identifier.
pub(super) async fn find(db: &Db, id: Uuid) -> sqlx::Result<Option<Listed>> {
    on_engine!(db.reader(), pool => sqlx::query_as(FIND).bind(id).fetch_optional(pool).await)
}

macro_rules! found {
    ($name:ident, $rest:literal) => {
        const $name: &str =
            concat!("SELECT id, email, role, status, created_at FROM users WHERE ", $rest);
    };
}

found!(BY_EMAIL, "email = $1");
found!(BY_ID, "id = $1 OR id = (SELECT w.user_id FROM workspaces w WHERE w.id = $1)");
found!(BY_NAMESPACE, "id = (SELECT w.user_id FROM workspaces w WHERE w.k8s_namespace = $1)");

/// The user of this name, or the owner of the workspace of this name: one statement, by an index.
pub(super) async fn named(db: &Db, name: &Name) -> sqlx::Result<Option<Listed>> {
    on_engine!(db.reader(), pool => match name {
        Name::Id(id) => sqlx::query_as(BY_ID).bind(id).fetch_optional(pool).await,
        Name::Email(text) => sqlx::query_as(BY_EMAIL).bind(text).fetch_optional(pool).await,
        Name::Namespace(text) => sqlx::query_as(BY_NAMESPACE).bind(text).fetch_optional(pool).await,
    })
}

/// Writes nothing new, but locks the row.
const HOLD_ADMINISTRATOR: &str = "\
UPDATE users SET status = status WHERE id = $1 AND status = $2 AND role = 'admin'";

/// Whether the user is an administrator who may sign in, and stays so until the transaction ends.
async fn hold_administrator(tx: &mut Tx, id: Uuid) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(HOLD_ADMINISTRATOR)
        .bind(id).bind(ACTIVE)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

const SUSPEND: &str = "\
UPDATE users SET status = $2, suspensions = suspensions + 1 WHERE id = $1 AND status <> $2";

/// Suspends a user; `false` if they were suspended already.
pub(super) async fn set_suspended(tx: &mut Tx, id: Uuid) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(SUSPEND)
        .bind(id).bind(SUSPENDED)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

/// A change of a user's row on the word of an administrator, who stays one until the transaction ends:
/// two who suspend each other at once do not both succeed. `None` if `by` is no active administrator
/// any more; the transaction must then be rolled back.
///
/// Both rows are locked in the order of their identifiers, so two such transactions do not wait for
/// each other.
pub(super) async fn by_administrator<T>(
    tx: &mut Tx,
    by: Uuid,
    id: Uuid,
    change: impl AsyncFnOnce(&mut Tx) -> sqlx::Result<T>,
) -> sqlx::Result<Option<T>> {
    if by < id {
        let held = hold_administrator(tx, by).await?;
        return if held { change(tx).await.map(Some) } else { Ok(None) };
    }
    let changed = change(tx).await?;
    Ok(hold_administrator(tx, by).await?.then_some(changed))
}

const RESUME: &str = "UPDATE users SET status = $2 WHERE id = $1 AND status <> $2";

/// Lets a user in again; `false` if they were active already.
pub(super) async fn set_active(tx: &mut Tx, id: Uuid) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(RESUME)
        .bind(id).bind(ACTIVE)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

/// Writes nothing new, but locks the row.
const HOLD_EMAIL: &str = "UPDATE users SET email = email WHERE id = $1 RETURNING email";

const SET_EMAIL: &str = "UPDATE users SET email = $2 WHERE id = $1";

/// Gives a user another address, and returns the one before. `None` if there is no such user.
///
/// # Errors
/// The database's; a violation of uniqueness if another user has the address.
pub(super) async fn set_email(tx: &mut Tx, id: Uuid, email: &str) -> sqlx::Result<Option<String>> {
    let before: Option<String> = on_engine!(tx.connection(), c => sqlx::query_scalar(HOLD_EMAIL)
        .bind(id).fetch_optional(c).await)?;
    if before.as_ref().is_some_and(|before| before != email) {
        on_engine!(tx.connection(), c => sqlx::query(SET_EMAIL)
            .bind(id).bind(email).execute(c).await.map(drop))?;
    }
    Ok(before)
}
