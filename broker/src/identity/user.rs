//! Rows of users.

use tenant_shared::Role;
use uuid::Uuid;

use crate::{
    db::{Db, Tx},
    on_engine,
};

/// Status of a user who may sign in; any other one may not.
pub(crate) const ACTIVE: &str = "active";

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

/// Writes nothing new, but takes the row's lock, and so decides between this transaction and one that
/// suspends the user.
const HOLD: &str = "UPDATE users SET status = status WHERE id = $1 AND status = $2";

/// Whether the user is active, and stays so until the transaction ends.
pub(crate) async fn hold_active(tx: &mut Tx, id: Uuid) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(HOLD)
        .bind(id).bind(ACTIVE)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}
