//! SQL on `users` for the management by administrators.

use std::collections::BTreeMap;

use sqlx::QueryBuilder;
use tenant_shared::{Name, Role};
use uuid::Uuid;

use super::{
    ACTIVE,
    columns::{EmailVerifier, SUSPENDED, parse_role},
};
use crate::{
    base::db::{Db, Tx},
    on_engine,
};

/// A row of `users`.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct UserRow {
    pub(crate) id: Uuid,
    pub(crate) email: String,
    role: String,
    status: String,
    pub(crate) created_at: i64,
}

impl UserRow {
    /// Whether the user may sign in.
    pub(crate) fn is_active(&self) -> bool {
        self.status == ACTIVE
    }

    /// The role of the user. An unknown role is a decoding error.
    pub(crate) fn role(&self) -> sqlx::Result<Role> {
        parse_role(&self.role, self.id)
    }
}

const LIST: &str = "\
SELECT id, email, role, status, created_at FROM users WHERE email > $1 ORDER BY email LIMIT $2";

/// Users ordered by e-mail address, after this address.
pub(crate) async fn list(db: &Db, after: &str, most: u32) -> sqlx::Result<Vec<UserRow>> {
    on_engine!(db.reader(), pool => sqlx::query_as(LIST)
        .bind(after).bind(i64::from(most)).fetch_all(pool).await)
}

const FIND: &str = "SELECT id, email, role, status, created_at FROM users WHERE id = $1";

/// The user with this identifier.
pub(crate) async fn find(db: &Db, id: Uuid) -> sqlx::Result<Option<UserRow>> {
    on_engine!(db.reader(), pool => sqlx::query_as(FIND).bind(id).fetch_optional(pool).await)
}

/// Maximum users of one statement; far below the limits of both engines on parameters.
const MAX_BATCH: usize = 500;

/// The e-mail addresses of these users. One statement reads up to 500 of them.
pub(crate) async fn emails(db: &Db, users: &[Uuid]) -> sqlx::Result<BTreeMap<Uuid, String>> {
    let mut emails = BTreeMap::new();
    for batch in users.chunks(MAX_BATCH) {
        let rows: Vec<(Uuid, String)> = on_engine!(db.reader(), pool => {
            let mut statement = QueryBuilder::new("SELECT id, email FROM users WHERE id IN (");
            let mut identifiers = statement.separated(", ");
            for id in batch {
                identifiers.push_bind(*id);
            }
            statement.push(")");
            // Each number of users is a different statement; caching them would evict others.
            statement.build_query_as().persistent(false).fetch_all(pool).await
        })?;
        emails.extend(rows);
    }
    Ok(emails)
}

macro_rules! user_query {
    ($name:ident, $rest:literal) => {
        const $name: &str =
            concat!("SELECT id, email, role, status, created_at FROM users WHERE ", $rest);
    };
}

user_query!(BY_EMAIL, "email = $1");
user_query!(
    BY_ID,
    "id = $1 OR id = (SELECT m.user_id FROM workspace_members m WHERE m.workspace_id = $1)"
);
user_query!(
    BY_NAMESPACE,
    "id = (SELECT m.user_id FROM workspace_members m WHERE m.namespace = $1)"
);

/// The user with this name, or the owner of the workspace with this name. One statement, which uses
/// an index.
pub(crate) async fn by_name(db: &Db, name: &Name) -> sqlx::Result<Option<UserRow>> {
    on_engine!(db.reader(), pool => match name {
        Name::Id(id) => sqlx::query_as(BY_ID).bind(id).fetch_optional(pool).await,
        Name::Email(text) => sqlx::query_as(BY_EMAIL).bind(text).fetch_optional(pool).await,
        Name::Namespace(text) => sqlx::query_as(BY_NAMESPACE).bind(text).fetch_optional(pool).await,
    })
}

/// Locks the row without changing it.
const LOCK_ADMINISTRATOR: &str = "\
UPDATE users SET status = status WHERE id = $1 AND status = $2 AND role = 'admin'";

/// Locks the row of a user until the transaction ends. Returns whether the user is an active
/// administrator, which they then stay until that end.
pub(crate) async fn lock_administrator(tx: &mut Tx, id: Uuid) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(LOCK_ADMINISTRATOR)
        .bind(id).bind(ACTIVE)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

const COUNT_BY_ID: &str = "SELECT COUNT(*) FROM users WHERE id = $1";

/// Whether there is a user with this identifier.
pub(crate) async fn exists(tx: &mut Tx, id: Uuid) -> sqlx::Result<bool> {
    let count: i64 = on_engine!(tx.connection(), c =>
        sqlx::query_scalar(COUNT_BY_ID).bind(id).fetch_one(c).await)?;
    Ok(count > 0)
}

const SUSPEND: &str = "\
UPDATE users SET status = $2, suspensions = suspensions + 1 WHERE id = $1 AND status <> $2";

/// Suspends a user; `false` if they were suspended already.
pub(crate) async fn set_suspended(tx: &mut Tx, id: Uuid) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(SUSPEND)
        .bind(id).bind(SUSPENDED)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

/// Changes the row of the user `id` for the administrator `by`, whose row is locked until the
/// transaction ends. So of two administrators who suspend each other concurrently only one
/// succeeds. `None` if `by` is no longer an active administrator; the caller must then roll the
/// transaction back.
///
/// Both rows are locked in the order of their identifiers, so that two such transactions do not
/// deadlock.
pub(crate) async fn change_as_administrator<T>(
    tx: &mut Tx,
    by: Uuid,
    id: Uuid,
    change: impl AsyncFnOnce(&mut Tx) -> sqlx::Result<T>,
) -> sqlx::Result<Option<T>> {
    // An administrator who changes their own row is checked first, because the change could restore
    // what the check asks for.
    if by <= id {
        let held = lock_administrator(tx, by).await?;
        return if held { change(tx).await.map(Some) } else { Ok(None) };
    }
    let changed = change(tx).await?;
    Ok(lock_administrator(tx, by).await?.then_some(changed))
}

const RESUME: &str = "UPDATE users SET status = $2 WHERE id = $1 AND status <> $2";

/// Activates a user; `false` if they were active already.
pub(crate) async fn set_active(tx: &mut Tx, id: Uuid) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(RESUME)
        .bind(id).bind(ACTIVE)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

/// Locks the row without changing it.
const LOCK_EMAIL: &str = "\
UPDATE users SET email = email WHERE id = $1 RETURNING email, email_verified_by IS NOT NULL";

const SET_EMAIL: &str = "\
UPDATE users SET email = $2, email_verified_by = $3, person_changed_at = $4 WHERE id = $1";

/// Changes the e-mail address of a user, for which an administrator vouches, or to a placeholder,
/// for which nobody does. Returns the previous address, and whether anything changed; the same
/// address changes if nobody vouched for it. `None` if there is no such user.
///
/// # Errors
/// The database failed, with a uniqueness violation if another user has the address.
pub(crate) async fn set_email(
    tx: &mut Tx,
    id: Uuid,
    email: &str,
    is_placeholder: bool,
    now: i64,
) -> sqlx::Result<Option<(String, bool)>> {
    let row: Option<(String, bool)> = on_engine!(tx.connection(), c => sqlx::query_as(LOCK_EMAIL)
        .bind(id).fetch_optional(c).await)?;
    let Some((before, was_verified)) = row else { return Ok(None) };
    let is_changed = before != email || (!is_placeholder && !was_verified);
    if is_changed {
        let verifier = (!is_placeholder).then_some(EmailVerifier::Administrator);
        on_engine!(tx.connection(), c => sqlx::query(SET_EMAIL)
            .bind(id).bind(email).bind(verifier.map(EmailVerifier::as_str)).bind(now)
            .execute(c).await.map(drop))?;
    }
    Ok(Some((before, is_changed)))
}
