//! SQL on `authorizations`: one row from the authorization request to the redeemed code.

pub(super) mod authorize;
mod browser_cookie;
pub(super) mod pending_authorization;

use uuid::Uuid;

use crate::{
    base::{
        db::{Db, Tx},
        secret::SecretHash,
    },
    on_engine,
};

/// An authorization request to insert. Times are milliseconds since 1970.
pub(super) struct NewAuthorization<'a> {
    pub(super) id: Uuid,
    pub(super) request: SecretHash,
    pub(super) browser: SecretHash,
    pub(super) client_id: &'a str,
    /// [`ReturnTarget`](super::redirect::ReturnTarget) as text.
    pub(super) target: &'a str,
    pub(super) scope: &'a str,
    pub(super) state: Option<&'a str>,
    pub(super) nonce: Option<&'a str>,
    pub(super) code_challenge: &'a str,
    pub(super) created_at: i64,
    pub(super) expires_at: i64,
}

const INSERT: &str = "\
INSERT INTO authorizations (id, request_hash, browser_hash, client_id, redirect_uri, scope, \
  state, nonce, code_challenge, created_at, expires_at) \
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

/// Inserts an authorization request.
pub(super) async fn insert(tx: &mut Tx, new: &NewAuthorization<'_>) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(INSERT)
        .bind(new.id).bind(new.request.as_bytes()).bind(new.browser.as_bytes())
        .bind(new.client_id).bind(new.target).bind(new.scope)
        .bind(new.state).bind(new.nonce).bind(new.code_challenge)
        .bind(new.created_at).bind(new.expires_at)
        .execute(c).await.map(drop))
}

/// A pending authorization request. It is pending until its code is redeemed, because a browser
/// whose user clicks twice drops the first response, and with it the first code.
#[derive(sqlx::FromRow)]
pub(super) struct PendingRow {
    pub(super) id: Uuid,
    pub(super) browser_hash: Vec<u8>,
    pub(super) client_id: String,
    pub(super) redirect_uri: String,
    pub(super) state: Option<String>,
    /// The user who signed in, if somebody has.
    pub(super) user_id: Option<Uuid>,
}

const FIND_PENDING: &str = "\
SELECT id, browser_hash, client_id, redirect_uri, state, user_id FROM authorizations \
WHERE request_hash = $1 AND redeemed_at IS NULL AND expires_at > $2";

/// Finds the request of this handle, if it is pending.
pub(super) async fn find_pending(
    db: &Db,
    request: SecretHash,
    now: i64,
) -> sqlx::Result<Option<PendingRow>> {
    on_engine!(db.reader(), pool => sqlx::query_as(FIND_PENDING)
        .bind(request.as_bytes()).bind(now).fetch_optional(pool).await)
}

const APPROVE: &str = "\
UPDATE authorizations SET user_id = $2, authenticated_at = $3, code_hash = $4, \
  code_expires_at = $5, upstream_grant_id = $6, \
  user_suspensions = (SELECT suspensions FROM active_users WHERE user_id = $2) \
WHERE id = $1 AND redeemed_at IS NULL AND expires_at > $3 \
  AND $2 IN (SELECT user_id FROM active_users)";

/// Approves a request for a user who signed in, perhaps with a provider's grant. This code replaces
/// any earlier one; a sign-in that needs no code has none. `false` if the request is not pending
/// any more, or the user was suspended meanwhile.
pub(super) async fn approve(
    tx: &mut Tx,
    id: Uuid,
    (user_id, grant_id): (Uuid, Option<Uuid>),
    now: i64,
    code: Option<(SecretHash, i64)>,
) -> sqlx::Result<bool> {
    let (hash, expires_at) = code.unzip();
    let hash = hash.as_ref().map(SecretHash::as_bytes);
    on_engine!(tx.connection(), c => sqlx::query(APPROVE)
        .bind(id).bind(user_id).bind(now).bind(hash).bind(expires_at)
        .bind(grant_id).execute(c).await.map(|done| done.rows_affected() == 1))
}

/// An authorization whose code was redeemed.
#[derive(sqlx::FromRow)]
pub(super) struct RedeemedAuthorization {
    pub(super) id: Uuid,
    pub(super) client_id: String,
    pub(super) redirect_uri: String,
    pub(super) scope: String,
    pub(super) nonce: Option<String>,
    pub(super) code_challenge: String,
    pub(super) user_id: Uuid,
    pub(super) authenticated_at: i64,
    pub(super) code_expires_at: Option<i64>,
    pub(super) upstream_grant_id: Option<Uuid>,
    /// How often the user had been suspended at the sign-in; `None` for rows from before this
    /// number was stored.
    pub(super) user_suspensions: Option<i64>,
}

/// One statement decides which request is first; of two concurrent ones the second finds nothing.
const REDEEM: &str = "\
UPDATE authorizations SET redeemed_at = $2 WHERE code_hash = $1 AND redeemed_at IS NULL \
RETURNING id, client_id, redirect_uri, scope, nonce, code_challenge, user_id, \
  authenticated_at, code_expires_at, upstream_grant_id, user_suspensions";

/// Redeems a code, which is used up from then on. `None` if it is unknown or used.
pub(super) async fn redeem(
    tx: &mut Tx,
    code: SecretHash,
    now: i64,
) -> sqlx::Result<Option<RedeemedAuthorization>> {
    on_engine!(tx.connection(), c => sqlx::query_as(REDEEM)
        .bind(code.as_bytes()).bind(now).fetch_optional(c).await)
}

const REDEEM_BY_ID: &str = "\
UPDATE authorizations SET redeemed_at = $2 \
WHERE id = $1 AND redeemed_at IS NULL AND user_id IS NOT NULL \
RETURNING id, client_id, redirect_uri, scope, nonce, code_challenge, user_id, \
  authenticated_at, code_expires_at, upstream_grant_id, user_suspensions";

/// Redeems an authorization that has no code. `None` if nobody signed in or it is used.
pub(super) async fn redeem_by_id(
    tx: &mut Tx,
    id: Uuid,
    now: i64,
) -> sqlx::Result<Option<RedeemedAuthorization>> {
    on_engine!(tx.connection(), c => sqlx::query_as(REDEEM_BY_ID)
        .bind(id).bind(now).fetch_optional(c).await)
}

const SET_SESSION: &str = "UPDATE authorizations SET session_id = $2 WHERE id = $1";

/// Records the session that the code started, so that a reuse of the code can end it.
pub(super) async fn set_session(tx: &mut Tx, id: Uuid, session_id: Uuid) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(SET_SESSION)
        .bind(id).bind(session_id).execute(c).await.map(drop))
}

const FIND_SESSION: &str = "\
SELECT session_id FROM authorizations WHERE code_hash = $1 AND session_id IS NOT NULL";

/// Finds the session that a redeemed code started.
pub(super) async fn find_session(tx: &mut Tx, code: SecretHash) -> sqlx::Result<Option<Uuid>> {
    on_engine!(tx.connection(), c => sqlx::query_scalar(FIND_SESSION)
        .bind(code.as_bytes()).fetch_optional(c).await)
}

const DELETE_EXPIRED: &str = "\
DELETE FROM authorizations WHERE (session_id IS NULL AND expires_at <= $1 \
  AND (code_expires_at IS NULL OR code_expires_at <= $1)) OR expires_at <= $2";

/// Deletes requests that nobody completed by `now`, and requests that started a session if they
/// expired by `retained_since`: until they are deleted, a reuse of the code is detected.
pub(super) async fn delete_expired(tx: &mut Tx, now: i64, retained_since: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(DELETE_EXPIRED)
        .bind(now).bind(retained_since).execute(c).await.map(drop))
}
