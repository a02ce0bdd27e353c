//! SQL on `users` for signing in.

use tenant_shared::Role;
use uuid::Uuid;

use super::{ACTIVE, columns::EmailVerifier};
use crate::{
    base::db::{Db, Tx},
    on_engine,
};

/// A user, with the columns that signing in needs.
#[derive(Clone, Debug)]
pub(in crate::identity) struct User {
    pub(in crate::identity) id: Uuid,
    status: String,
}

impl User {
    /// Whether the user may sign in and have sessions.
    pub(in crate::identity) fn is_active(&self) -> bool {
        self.status == ACTIVE
    }
}

/// A user to insert.
pub(in crate::identity) struct NewUser<'a> {
    pub(in crate::identity) id: Uuid,
    pub(in crate::identity) email: &'a str,
    /// Verifier of the address; `None` without one.
    pub(in crate::identity) email_verified_by: Option<EmailVerifier>,
    /// `None` for a user who signs in at an upstream provider.
    pub(in crate::identity) password_hash: Option<&'a str>,
    pub(in crate::identity) role: Role,
}

const INSERT: &str = "\
INSERT INTO users (id, email, email_verified_by, password_hash, status, role, created_at, \
  person_changed_at) \
VALUES ($1, $2, $3, $4, $5, $6, $7, $7) ON CONFLICT (email) DO NOTHING";

/// Inserts a user; `false` if the address is taken.
pub(in crate::identity) async fn insert(
    tx: &mut Tx,
    new: &NewUser<'_>,
    now: i64,
) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(INSERT)
        .bind(new.id).bind(new.email).bind(new.email_verified_by.map(EmailVerifier::as_str))
        .bind(new.password_hash).bind(ACTIVE).bind(new.role.as_str()).bind(now)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

const FIND_BY_EMAIL: &str = "SELECT id, status, password_hash FROM users WHERE email = $1";

/// Finds the user with this address, and the password hash if there is one.
pub(in crate::identity) async fn find_by_email(
    db: &Db,
    email: &str,
) -> sqlx::Result<Option<(User, Option<String>)>> {
    let row: Option<(Uuid, String, Option<String>)> = on_engine!(db.reader(), pool =>
        sqlx::query_as(FIND_BY_EMAIL).bind(email).fetch_optional(pool).await)?;
    Ok(row.map(|(id, status, hash)| (User { id, status }, hash)))
}

/// Changes no value but locks the row, and so serializes this transaction with one that suspends
/// the user.
const LOCK_ACTIVE: &str = "UPDATE users SET status = status WHERE id = $1 AND status = $2";

/// Locks the row of an active user until the transaction ends; `false` if the user is not active.
pub(crate) async fn lock_if_active(tx: &mut Tx, id: Uuid) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(LOCK_ACTIVE)
        .bind(id).bind(ACTIVE)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

const FIND_EMAIL: &str = "SELECT email, email_verified_by FROM users WHERE id = $1";

const SET_EMAIL_IF_FREE: &str = "\
UPDATE users SET email = $2 WHERE id = $1 AND email <> $2 \
  AND NOT EXISTS (SELECT 1 FROM users o WHERE o.email = $2 AND o.id <> $1)";

/// `$2` is the address that the provider says now, `$5` whether it was just stored.
const SET_EMAIL_VERIFIED: &str = "\
UPDATE users SET person_changed_at = $4, email_verified_by = \
  CASE WHEN email = $2 THEN $3 WHEN email_verified_by <> $3 THEN email_verified_by END \
WHERE id = $1 AND ($5 = 1 OR (email = $2 AND COALESCE(email_verified_by, '') <> $3) \
  OR (email <> $2 AND email_verified_by = $3))";

/// Takes over the e-mail address that a provider has verified, unless another user has it. An
/// address that the provider verified before and does not say any more stays, but unverified.
pub(in crate::identity) async fn set_email_of_provider(
    tx: &mut Tx,
    id: Uuid,
    email: Option<&str>,
    now: i64,
) -> sqlx::Result<()> {
    let provider = EmailVerifier::Provider.as_str();
    let (known, verifier): (String, Option<String>) = on_engine!(tx.connection(), c =>
        sqlx::query_as(FIND_EMAIL).bind(id).fetch_one(c).await)?;
    let is_verified = verifier.as_deref() == Some(provider);
    // Mostly nothing changed, and then nothing is written.
    if email.map_or(!is_verified, |email| is_verified && email == known) {
        return Ok(());
    }
    let is_new = match email {
        Some(email) if email != known => tx.update_if_unique(SET_EMAIL_IF_FREE, id, email).await?,
        _ => false,
    };
    on_engine!(tx.connection(), c => sqlx::query(SET_EMAIL_VERIFIED)
        .bind(id).bind(email.unwrap_or_default()).bind(provider).bind(now).bind(i64::from(is_new))
        .execute(c).await.map(drop))
}

const SET_ROLE: &str = "UPDATE users SET role = $2 WHERE id = $1 AND role <> $2";

/// Changes the role of a user; `false` if the user had it already.
pub(in crate::identity) async fn set_role(tx: &mut Tx, id: Uuid, role: Role) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(SET_ROLE)
        .bind(id).bind(role.as_str())
        .execute(c).await.map(|done| done.rows_affected() == 1))
}
