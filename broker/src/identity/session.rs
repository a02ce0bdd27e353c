//! Rows of sessions and of the access tokens that stand for them.
//!
//! A session begins when somebody signs in. It ends when it has been idle for too long, at its
//! absolute end, which never moves, or when somebody ends it; everything that belongs to it is dead
//! from then on, without being touched itself.

use tenant_shared::Role;
use uuid::Uuid;

use super::Caller;
use crate::{
    db::{Db, Tx},
    on_engine,
    secret::SecretHash,
};

/// What every access token begins with.
pub(crate) const ACCESS_PREFIX: &str = "tba_";

const CALLER: &str = "\
SELECT u.id, u.email, u.role, s.id, s.expires_at, s.scope \
FROM access_tokens t \
JOIN sessions s ON s.id = t.session_id \
JOIN users u ON u.id = s.user_id \
WHERE t.token_hash = $1 AND t.expires_at > $2 AND s.ended_at IS NULL \
  AND s.idle_expires_at > $2 AND s.expires_at > $2 AND u.status = 'active'";

/// Whom this access token stands for, if token, session and user are all alive.
pub(super) async fn caller(db: &Db, token: SecretHash, now: i64) -> sqlx::Result<Option<Caller>> {
    let row: Option<(Uuid, String, String, Uuid, i64, String)> = on_engine!(db.reader(), pool =>
        sqlx::query_as(CALLER).bind(token.as_bytes()).bind(now).fetch_optional(pool).await)?;
    let Some((user_id, email, role, session_id, session_expires_at, scope)) = row else {
        return Ok(None);
    };
    let role = Role::parse(&role).ok_or_else(|| sqlx::Error::ColumnDecode {
        index: "role".to_owned(),
        source: format!("users.role of {user_id} is {role:?}, which is no role").into(),
    })?;
    Ok(Some(Caller { user_id, email, role, session_id, session_expires_at, scope }))
}

/// A session to begin. Times are milliseconds since 1970.
#[derive(Debug)]
pub(crate) struct New<'a> {
    pub(crate) id: Uuid,
    pub(crate) user_id: Uuid,
    pub(crate) client_id: &'a str,
    pub(crate) scope: &'a str,
    pub(crate) ip_address: Option<String>,
    pub(crate) user_agent: Option<String>,
    /// When the person proved who they are.
    pub(crate) auth_time: i64,
    pub(crate) created_at: i64,
    pub(crate) idle_expires_at: i64,
    pub(crate) expires_at: i64,
}

const BEGIN: &str = "\
INSERT INTO sessions (id, user_id, client_id, scope, ip_address, user_agent, auth_time, \
  created_at, last_used_at, idle_expires_at, expires_at) \
SELECT $1, id, $3, $4, $5, $6, $7, $8, $8, $9, $10 FROM users WHERE id = $2 AND status = 'active'";

/// Begins a session. `None` if the user may not sign in any more.
pub(crate) async fn begin(tx: &mut Tx, new: &New<'_>) -> sqlx::Result<Option<Session>> {
    let done = on_engine!(tx.connection(), c => sqlx::query(BEGIN)
        .bind(new.id).bind(new.user_id).bind(new.client_id).bind(new.scope)
        .bind(&new.ip_address).bind(&new.user_agent)
        .bind(new.auth_time).bind(new.created_at).bind(new.idle_expires_at).bind(new.expires_at)
        .execute(c).await.map(|done| done.rows_affected() == 1))?;
    if done { find(tx, new.id).await } else { Ok(None) }
}

/// A session that is alive, and whose it is.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct Session {
    pub(crate) id: Uuid,
    pub(crate) user_id: Uuid,
    pub(crate) email: String,
    pub(crate) client_id: String,
    pub(crate) scope: String,
    pub(crate) auth_time: i64,
    pub(crate) expires_at: i64,
}

impl Session {
    /// Whether the session was granted this scope (RFC 6749 section 3.3).
    pub(crate) fn has_scope(&self, name: &str) -> bool {
        contains_scope(&self.scope, name)
    }
}

/// Whether a list of scopes, divided by spaces, has this one.
pub(super) fn contains_scope(scopes: &str, name: &str) -> bool {
    scopes.split(' ').any(|scope| scope == name)
}

/// The row is locked before it is judged, so a session that ends at the same moment either ends
/// first, and is not alive, or afterwards, and takes with it what this transaction adds.
const SLIDE: &str = "\
UPDATE sessions SET last_used_at = $2, idle_expires_at = $3 \
WHERE id = $1 AND ended_at IS NULL AND idle_expires_at > $2 AND expires_at > $2 \
  AND user_id IN (SELECT id FROM users WHERE status = 'active')";

const FIND: &str = "\
SELECT s.id, s.user_id, u.email, s.client_id, s.scope, s.auth_time, s.expires_at \
FROM sessions s JOIN users u ON u.id = s.user_id WHERE s.id = $1";

async fn find(tx: &mut Tx, id: Uuid) -> sqlx::Result<Option<Session>> {
    on_engine!(tx.connection(), c => sqlx::query_as(FIND).bind(id).fetch_optional(c).await)
}

/// Moves the idle end on; the absolute end stays where it is. `None` if the session is over or its user
/// may not sign in any more.
pub(crate) async fn slide(
    tx: &mut Tx,
    id: Uuid,
    now: i64,
    idle_expires_at: i64,
) -> sqlx::Result<Option<Session>> {
    let alive = on_engine!(tx.connection(), c => sqlx::query(SLIDE)
        .bind(id).bind(now).bind(idle_expires_at)
        .execute(c).await.map(|done| done.rows_affected() == 1))?;
    if alive { find(tx, id).await } else { Ok(None) }
}

const END: &str = "\
UPDATE sessions SET ended_at = $2, ended_why = $3 WHERE id = $1 AND ended_at IS NULL \
RETURNING user_id";

/// Ends a session at once. `None` if it had ended already, else whose it was.
pub(crate) async fn end(tx: &mut Tx, id: Uuid, now: i64, why: &str) -> sqlx::Result<Option<Uuid>> {
    on_engine!(tx.connection(), c => sqlx::query_scalar(END)
        .bind(id).bind(now).bind(why).fetch_optional(c).await)
}

const ADD_TOKEN: &str = "\
INSERT INTO access_tokens (token_hash, session_id, expires_at) VALUES ($1, $2, $3)";

/// Makes an access token known.
pub(crate) async fn add_access_token(
    tx: &mut Tx,
    token: SecretHash,
    session_id: Uuid,
    expires_at: i64,
) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(ADD_TOKEN)
        .bind(token.as_bytes()).bind(session_id).bind(expires_at).execute(c).await.map(drop))
}

const OF_TOKEN: &str = "SELECT session_id FROM access_tokens WHERE token_hash = $1";

/// The session of an access token, expired or not.
pub(crate) async fn of_access_token(tx: &mut Tx, token: SecretHash) -> sqlx::Result<Option<Uuid>> {
    on_engine!(tx.connection(), c => sqlx::query_scalar(OF_TOKEN)
        .bind(token.as_bytes()).fetch_optional(c).await)
}

const FORGET_TOKENS: &str = "DELETE FROM access_tokens WHERE expires_at <= $1";

/// Forgets access tokens that expired before this time.
pub(crate) async fn forget_access_tokens(tx: &mut Tx, before: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(FORGET_TOKENS)
        .bind(before).execute(c).await.map(drop))
}
