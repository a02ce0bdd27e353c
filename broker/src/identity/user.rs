//! Rows of users.

use tenant_shared::Role;
use uuid::Uuid;

use crate::{
    db::{Db, Tx},
    on_engine,
};

/// Status of a user who may sign in; any other one may not.
pub(super) const ACTIVE: &str = "active";
/// Status of a user whom an administrator suspended.
const SUSPENDED: &str = "suspended";

/// A user, as far as signing in needs to know.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) id: Uuid,
    status: String,
}

impl User {
    /// Whether the user may sign in and keep sessions.
    pub(super) fn is_active(&self) -> bool {
        self.status == ACTIVE
    }
}

/// A user to be made.
pub(super) struct New<'a> {
    pub(super) id: Uuid,
    pub(super) email: &'a str,
    /// `None` for somebody who signs in elsewhere.
    pub(super) password_hash: Option<&'a str>,
    pub(super) role: Role,
}

const INSERT: &str = "\
INSERT INTO users (id, email, password_hash, status, role, created_at) \
VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (email) DO NOTHING";

/// Makes a user; `false` if the address is taken.
pub(super) async fn insert(tx: &mut Tx, new: &New<'_>, now: i64) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(INSERT)
        .bind(new.id).bind(new.email).bind(new.password_hash)
        .bind(ACTIVE).bind(new.role.as_str()).bind(now)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

const BY_EMAIL: &str = "SELECT id, status, password_hash FROM users WHERE email = $1";

/// The user with this address, and the hash of their password if they have one.
pub(super) async fn by_email(db: &Db, email: &str) -> sqlx::Result<Option<(User, Option<String>)>> {
    let row: Option<(Uuid, String, Option<String>)> = on_engine!(db.reader(), pool =>
        sqlx::query_as(BY_EMAIL).bind(email).fetch_optional(pool).await)?;
    Ok(row.map(|(id, status, hash)| (User { id, status }, hash)))
}

/// A user as administrators see them.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Listed {
    pub(super) id: Uuid,
    pub(super) email: String,
    pub(super) role: String,
    pub(super) status: String,
    pub(super) created_at: i64,
}

impl Listed {
    /// Whether the user may sign in.
    pub(super) fn is_active(&self) -> bool {
        self.status == ACTIVE
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

const SET_STATUS: &str = "UPDATE users SET status = $2 WHERE id = $1 AND status <> $2";

/// Suspends a user or lets them in again; `false` if they were so already.
pub(super) async fn set_active(tx: &mut Tx, id: Uuid, active: bool) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(SET_STATUS)
        .bind(id).bind(if active { ACTIVE } else { SUSPENDED })
        .execute(c).await.map(|done| done.rows_affected() == 1))
}
