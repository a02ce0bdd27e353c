//! Rows of authorizations: one from the request of a client to the redeemed code.

use uuid::Uuid;

use crate::{
    db::{Db, Tx},
    on_engine,
    secret::SecretHash,
};

/// An authorization request to be kept. Times are milliseconds since 1970.
pub(super) struct New<'a> {
    pub(super) id: Uuid,
    pub(super) request: SecretHash,
    pub(super) browser: SecretHash,
    pub(super) client_id: &'a str,
    /// [`Target`](super::target::Target) as text.
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

/// Keeps a request.
pub(super) async fn insert(tx: &mut Tx, new: &New<'_>) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(INSERT)
        .bind(new.id).bind(new.request.as_bytes()).bind(new.browser.as_bytes())
        .bind(new.client_id).bind(new.target).bind(new.scope)
        .bind(new.state).bind(new.nonce).bind(new.code_challenge)
        .bind(new.created_at).bind(new.expires_at)
        .execute(c).await.map(drop))
}

/// A request that waits for somebody to sign in. It waits until its code is redeemed: a browser
/// whose person clicks twice drops the first answer, and with it the first code.
#[derive(sqlx::FromRow)]
pub(super) struct Pending {
    pub(super) id: Uuid,
    pub(super) browser_hash: Vec<u8>,
    pub(super) client_id: String,
    pub(super) redirect_uri: String,
    pub(super) state: Option<String>,
    /// Who signed in, if somebody has.
    pub(super) user_id: Option<Uuid>,
}

const PENDING: &str = "\
SELECT id, browser_hash, client_id, redirect_uri, state, user_id FROM authorizations \
WHERE request_hash = $1 AND redeemed_at IS NULL AND expires_at > $2";

/// The request of this handle, if it still waits.
pub(super) async fn pending(
    db: &Db,
    request: SecretHash,
    now: i64,
) -> sqlx::Result<Option<Pending>> {
    on_engine!(db.reader(), pool => sqlx::query_as(PENDING)
        .bind(request.as_bytes()).bind(now).fetch_optional(pool).await)
}

const APPROVE: &str = "\
UPDATE authorizations SET user_id = $2, authenticated_at = $3, code_hash = $4, \
  code_expires_at = $5, upstream_grant_id = $6, \
  user_suspensions = (SELECT suspensions FROM users WHERE id = $2) \
WHERE id = $1 AND redeemed_at IS NULL AND expires_at > $3 \
  AND $2 IN (SELECT id FROM users WHERE status = 'active')";

/// Somebody signed in, perhaps with a provider's grant: from now on this code stands for it, and
/// none before it. A sign-in that needs no code has none. `false` if the request does not wait any
/// more, or the user was suspended meanwhile.
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

/// What a code stands for.
#[derive(sqlx::FromRow)]
pub(super) struct Redeemed {
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
    /// How often the user had been suspended at the sign-in; unknown if that was before this number
    /// was kept.
    pub(super) user_suspensions: Option<i64>,
}

/// One statement decides who is first; of two that come at once the second finds nothing.
const REDEEM: &str = "\
UPDATE authorizations SET redeemed_at = $2 WHERE code_hash = $1 AND redeemed_at IS NULL \
RETURNING id, client_id, redirect_uri, scope, nonce, code_challenge, user_id, \
  authenticated_at, code_expires_at, upstream_grant_id, user_suspensions";

/// Takes a code out of the world, whatever comes of it. `None` if there is none or it is taken.
pub(super) async fn redeem(
    tx: &mut Tx,
    code: SecretHash,
    now: i64,
) -> sqlx::Result<Option<Redeemed>> {
    on_engine!(tx.connection(), c => sqlx::query_as(REDEEM)
        .bind(code.as_bytes()).bind(now).fetch_optional(c).await)
}

const REDEEM_ID: &str = "\
UPDATE authorizations SET redeemed_at = $2 \
WHERE id = $1 AND redeemed_at IS NULL AND user_id IS NOT NULL \
RETURNING id, client_id, redirect_uri, scope, nonce, code_challenge, user_id, \
  authenticated_at, code_expires_at, upstream_grant_id, user_suspensions";

/// Takes a sign-in that has no code of its own. `None` if nobody signed in or it is taken.
pub(super) async fn redeem_id(tx: &mut Tx, id: Uuid, now: i64) -> sqlx::Result<Option<Redeemed>> {
    on_engine!(tx.connection(), c => sqlx::query_as(REDEEM_ID)
        .bind(id).bind(now).fetch_optional(c).await)
}

const LINK: &str = "UPDATE authorizations SET session_id = $2 WHERE id = $1";

/// Remembers which session the code began, so that using the code again ends it.
pub(super) async fn link(tx: &mut Tx, id: Uuid, session_id: Uuid) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(LINK)
        .bind(id).bind(session_id).execute(c).await.map(drop))
}

const SESSION_OF: &str = "\
SELECT session_id FROM authorizations WHERE code_hash = $1 AND session_id IS NOT NULL";

/// The session that a redeemed code began.
pub(super) async fn session_of(tx: &mut Tx, code: SecretHash) -> sqlx::Result<Option<Uuid>> {
    on_engine!(tx.connection(), c => sqlx::query_scalar(SESSION_OF)
        .bind(code.as_bytes()).fetch_optional(c).await)
}

const FORGET: &str = "\
DELETE FROM authorizations WHERE (session_id IS NULL AND expires_at <= $1 \
  AND (code_expires_at IS NULL OR code_expires_at <= $1)) OR expires_at <= $2";

/// Forgets what nobody finished by `now`, and what began a session only after `kept_until`: until
/// then a code that is used again is recognized.
pub(super) async fn forget(tx: &mut Tx, now: i64, kept_until: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(FORGET)
        .bind(now).bind(kept_until).execute(c).await.map(drop))
}
