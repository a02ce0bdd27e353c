//! SQL on `sessions` and `access_tokens`.
//!
//! A session starts at a sign-in. It ends after the idle timeout, at its absolute end, which never
//! moves, or when somebody ends it. Everything that belongs to it is invalid from then on, although
//! those rows are not changed.

use tenant_shared::Role;
use uuid::Uuid;

use super::{Caller, user};
use crate::{
    base::{
        db::{Db, Tx},
        paging::Cursor,
        secret::SecretHash,
    },
    on_engine,
};

/// Prefix of every access token.
pub(crate) const ACCESS_PREFIX: &str = "tba_";
/// Prefix of the secret in a browser's session cookie.
pub(crate) const COOKIE_PREFIX: &str = "tbs_";

const FIND_CALLER: &str = "\
SELECT u.id, u.email, u.role, s.id, s.expires_at, s.scope, s.last_used_at, s.workspace_id, t.scope \
FROM access_tokens t \
JOIN sessions s ON s.id = t.session_id \
JOIN users u ON u.id = s.user_id \
WHERE t.token_hash = $1 AND t.expires_at > $2 AND s.ended_at IS NULL \
  AND s.idle_expires_at > $2 AND s.expires_at > $2 AND u.status = 'active'";

type CallerRow = (Uuid, String, String, Uuid, i64, String, i64, Option<Uuid>, Option<String>);

/// Finds the caller of an access token, if the token, its session and its user are all valid.
pub(super) async fn find_caller(
    db: &Db,
    token: SecretHash,
    now: i64,
) -> sqlx::Result<Option<Caller>> {
    let row: Option<CallerRow> = on_engine!(db.reader(), pool =>
        sqlx::query_as(FIND_CALLER).bind(token.as_bytes()).bind(now).fetch_optional(pool).await)?;
    let Some(row) = row else { return Ok(None) };
    let (
        user_id,
        email,
        role,
        session_id,
        session_expires_at,
        session_scope,
        last_used_at,
        workspace_id,
        token_scope,
    ) = row;
    let role = match workspace_id {
        None => parse_role(&role, user_id)?,
        // A machine is never an administrator, even if the owner of the workspace is one.
        Some(_) => Role::User,
    };
    Ok(Some(Caller {
        user_id,
        email,
        role,
        session_id,
        session_expires_at,
        scope: token_scope.unwrap_or(session_scope),
        last_used_at,
        workspace_id,
    }))
}

/// SQL clause: the sessions that somebody ended after `$1`.
macro_rules! ended_after {
    () => {
        "FROM sessions WHERE ended_at > $1"
    };
}
pub(crate) use ended_after;

const ENDED: &str = concat!("SELECT id ", ended_after!());

/// Lists the sessions that somebody ended after this time, in milliseconds since 1970.
pub(super) async fn ended_since(db: &Db, since: i64) -> sqlx::Result<Vec<Uuid>> {
    on_engine!(db.reader(), pool =>
        sqlx::query_scalar(ENDED).bind(since).fetch_all(pool).await)
}

const ALIVE: &str = "\
SELECT COUNT(*) FROM sessions \
WHERE id = $1 AND ended_at IS NULL AND idle_expires_at > $2 AND expires_at > $2";

/// Whether this session is valid: nobody ended it, and it has not expired.
pub(super) async fn is_alive(db: &Db, id: Uuid, now: i64) -> sqlx::Result<bool> {
    let count: i64 = on_engine!(db.reader(), pool =>
        sqlx::query_scalar(ALIVE).bind(id).bind(now).fetch_one(pool).await)?;
    Ok(count > 0)
}

fn parse_role(role: &str, user_id: Uuid) -> sqlx::Result<Role> {
    Role::parse(role).ok_or_else(|| sqlx::Error::ColumnDecode {
        index: "role".to_owned(),
        source: format!("users.role of {user_id} is {role:?}, which is no role").into(),
    })
}

/// A session to insert. Times are milliseconds since 1970.
#[derive(Debug)]
pub(crate) struct NewSession<'a> {
    pub(crate) id: Uuid,
    pub(crate) user_id: Uuid,
    pub(crate) client_id: &'a str,
    pub(crate) scope: &'a str,
    pub(crate) ip_address: Option<String>,
    pub(crate) user_agent: Option<String>,
    /// When the user authenticated.
    pub(crate) auth_time: i64,
    pub(crate) created_at: i64,
    pub(crate) idle_expires_at: i64,
    pub(crate) expires_at: i64,
    /// The workspace that a machine's session is restricted to.
    pub(crate) workspace_id: Option<Uuid>,
    /// How often the user had been suspended when they authenticated, if that was in an earlier
    /// request. A suspension since then makes the authentication void.
    pub(crate) user_suspensions: Option<i64>,
}

const BEGIN: &str = "\
INSERT INTO sessions (id, user_id, client_id, scope, ip_address, user_agent, auth_time, \
  created_at, last_used_at, idle_expires_at, expires_at, workspace_id) \
SELECT $1, id, $3, $4, $5, $6, $7, $8, $8, $9, $10, $11 FROM users \
WHERE id = $2 AND status = 'active' AND suspensions = COALESCE($12, suspensions)";

/// Starts a session. `None` if the user may not sign in any more, or was suspended since the
/// sign-in.
///
/// The row of the user is locked until the transaction ends. So a concurrent suspension comes
/// either before, and no session starts, or afterwards, and ends this one.
pub(crate) async fn begin(tx: &mut Tx, new: &NewSession<'_>) -> sqlx::Result<Option<Session>> {
    if !user::lock_if_active(tx, new.user_id).await? {
        return Ok(None);
    }
    let done = on_engine!(tx.connection(), c => sqlx::query(BEGIN)
        .bind(new.id).bind(new.user_id).bind(new.client_id).bind(new.scope)
        .bind(&new.ip_address).bind(&new.user_agent)
        .bind(new.auth_time).bind(new.created_at).bind(new.idle_expires_at).bind(new.expires_at)
        .bind(new.workspace_id).bind(new.user_suspensions)
        .execute(c).await.map(|done| done.rows_affected() == 1))?;
    if done { find(tx, new.id).await } else { Ok(None) }
}

/// A valid session and its user.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct Session {
    pub(crate) id: Uuid,
    pub(crate) user_id: Uuid,
    pub(crate) email: String,
    role: String,
    pub(crate) client_id: String,
    pub(crate) scope: String,
    pub(crate) auth_time: i64,
    pub(crate) expires_at: i64,
}

impl Session {
    /// The role of the session's user.
    pub(crate) fn role(&self) -> sqlx::Result<Role> {
        parse_role(&self.role, self.user_id)
    }

    /// Whether the session was granted this scope (RFC 6749 section 3.3).
    pub(crate) fn has_scope(&self, name: &str) -> bool {
        contains_scope(&self.scope, name)
    }
}

/// Whether a space-separated list of scopes contains this one.
pub(crate) fn contains_scope(scopes: &str, name: &str) -> bool {
    scopes.split(' ').any(|scope| scope == name)
}

/// The row is locked before its condition is checked. So a session that ends concurrently ends
/// either first, and nothing is updated, or afterwards, and invalidates what this transaction adds.
const SLIDE: &str = "\
UPDATE sessions SET last_used_at = $2, idle_expires_at = $3 \
WHERE id = $1 AND ended_at IS NULL AND idle_expires_at > $2 AND expires_at > $2 \
  AND user_id IN (SELECT id FROM users WHERE status = 'active')";

const FIND: &str = "\
SELECT s.id, s.user_id, u.email, u.role, s.client_id, s.scope, s.auth_time, s.expires_at \
FROM sessions s JOIN users u ON u.id = s.user_id WHERE s.id = $1";

async fn find(tx: &mut Tx, id: Uuid) -> sqlx::Result<Option<Session>> {
    on_engine!(tx.connection(), c => sqlx::query_as(FIND).bind(id).fetch_optional(c).await)
}

/// Extends the idle timeout of a session (sliding expiration); its absolute end does not move.
/// `None` if the session has ended or its user may not sign in any more.
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

/// A session in the list of its user's sessions.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct SessionRow {
    pub(super) id: Uuid,
    pub(super) client_id: String,
    pub(super) ip_address: Option<String>,
    pub(super) user_agent: Option<String>,
    pub(super) created_at: i64,
    pub(super) last_used_at: i64,
    pub(super) expires_at: i64,
}

const LIST_FOR_USER: &str = "\
SELECT id, client_id, ip_address, user_agent, created_at, last_used_at, expires_at \
FROM sessions WHERE user_id = $1 AND ended_at IS NULL AND idle_expires_at > $2 \
  AND expires_at > $2 AND (created_at, id) < ($4, $5) \
ORDER BY created_at DESC, id DESC LIMIT $3";

/// Lists the valid sessions of a user, newest first, after this cursor.
pub(super) async fn list_for_user(
    db: &Db,
    user_id: Uuid,
    now: i64,
    after: Cursor,
    limit: u32,
) -> sqlx::Result<Vec<SessionRow>> {
    on_engine!(db.reader(), pool => sqlx::query_as(LIST_FOR_USER)
        .bind(user_id).bind(now).bind(i64::from(limit)).bind(after.created_at).bind(after.id)
        .fetch_all(pool).await)
}

const END_FOR_USER: &str = "\
UPDATE sessions SET ended_at = $2, ended_why = $3 \
WHERE user_id = $1 AND ended_at IS NULL AND idle_expires_at > $2 AND expires_at > $2 \
  AND ($4 = 0 OR id = $5) AND ($6 = 0 OR id <> $7) RETURNING id";

/// Selection of a user's sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SessionSelector {
    /// The session with this identifier.
    One(Uuid),
    /// All but the session with this identifier.
    AllBut(Uuid),
    /// All sessions of the user.
    All,
}

/// Ends valid sessions of a user immediately; returns the identifiers of those that it ended.
pub(super) async fn end_for_user(
    tx: &mut Tx,
    user_id: Uuid,
    selector: SessionSelector,
    now: i64,
    reason: &str,
) -> sqlx::Result<Vec<Uuid>> {
    let (one, but) = match selector {
        SessionSelector::One(id) => (Some(id), None),
        SessionSelector::AllBut(id) => (None, Some(id)),
        SessionSelector::All => (None, None),
    };
    let bind = |id: Option<Uuid>| (i64::from(id.is_some()), id.unwrap_or_default());
    let ((by_one, one), (by_but, but)) = (bind(one), bind(but));
    on_engine!(tx.connection(), c => sqlx::query_scalar(END_FOR_USER)
        .bind(user_id).bind(now).bind(reason)
        .bind(by_one).bind(one).bind(by_but).bind(but)
        .fetch_all(c).await)
}

const DELETE_EXPIRED: &str = "\
DELETE FROM sessions WHERE (ended_at <= $1 OR idle_expires_at <= $1 OR expires_at <= $1) \
  AND id NOT IN (SELECT session_id FROM access_tokens) \
  AND id NOT IN (SELECT session_id FROM refresh_tokens) \
  AND id NOT IN (SELECT session_id FROM authorizations WHERE session_id IS NOT NULL)";

/// Deletes sessions that had ended by this time and that no other row refers to.
pub(crate) async fn delete_expired(tx: &mut Tx, before: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(DELETE_EXPIRED)
        .bind(before).execute(c).await.map(drop))
}

const SHORTEN: &str = "UPDATE sessions SET expires_at = $2 WHERE id = $1 AND expires_at > $2";

/// Moves the absolute end of a session to an earlier time.
pub(crate) async fn shorten(
    tx: &mut Tx,
    session: &mut Session,
    expires_at: i64,
) -> sqlx::Result<()> {
    session.expires_at = session.expires_at.min(expires_at);
    on_engine!(tx.connection(), c => sqlx::query(SHORTEN)
        .bind(session.id).bind(expires_at).execute(c).await.map(drop))
}

const END: &str = "\
UPDATE sessions SET ended_at = $2, ended_why = $3 WHERE id = $1 AND ended_at IS NULL \
RETURNING user_id";

/// Ends a session immediately; returns its user. `None` if it had ended already.
pub(crate) async fn end(
    tx: &mut Tx,
    id: Uuid,
    now: i64,
    reason: &str,
) -> sqlx::Result<Option<Uuid>> {
    on_engine!(tx.connection(), c => sqlx::query_scalar(END)
        .bind(id).bind(now).bind(reason).fetch_optional(c).await)
}

const ADD_TOKEN: &str = "\
INSERT INTO access_tokens (token_hash, session_id, expires_at, scope) VALUES ($1, $2, $3, $4)";

/// Inserts an access token. Its scope is the session's unless a narrower one is given.
pub(crate) async fn add_access_token(
    tx: &mut Tx,
    token: SecretHash,
    session_id: Uuid,
    expires_at: i64,
    scope: Option<&str>,
) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(ADD_TOKEN)
        .bind(token.as_bytes()).bind(session_id).bind(expires_at).bind(scope)
        .execute(c).await.map(drop))
}

const FIND_BY_TOKEN: &str = "SELECT session_id, scope FROM access_tokens WHERE token_hash = $1";

/// Finds the session of an access token, expired or not, and the token's own scope if that is
/// narrower than the session's.
pub(crate) async fn find_by_access_token(
    db: &Db,
    token: SecretHash,
) -> sqlx::Result<Option<(Uuid, Option<String>)>> {
    on_engine!(db.reader(), pool => sqlx::query_as(FIND_BY_TOKEN)
        .bind(token.as_bytes()).fetch_optional(pool).await)
}

const END_TOKEN: &str = "DELETE FROM access_tokens WHERE token_hash = $1";

/// Deletes one access token; its session goes on.
pub(crate) async fn end_access_token(tx: &mut Tx, token: SecretHash) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(END_TOKEN)
        .bind(token.as_bytes()).execute(c).await.map(drop))
}

const DELETE_EXPIRED_TOKENS: &str = "DELETE FROM access_tokens WHERE expires_at <= $1";

/// Deletes access tokens that expired before this time.
pub(crate) async fn delete_expired_access_tokens(tx: &mut Tx, before: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(DELETE_EXPIRED_TOKENS)
        .bind(before).execute(c).await.map(drop))
}
