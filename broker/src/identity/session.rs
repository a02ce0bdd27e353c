//! Rows of sessions and of the access tokens that stand for them.
//!
//! A session begins when somebody signs in. It ends when it has been idle for too long, at its
//! absolute end, which never moves, or when somebody ends it; everything that belongs to it is dead
//! from then on, without being touched itself.

use tenant_shared::Role;
use uuid::Uuid;

use super::{Caller, user};
use crate::{
    db::{Db, Tx},
    list::Cursor,
    on_engine,
    secret::SecretHash,
};

/// What every access token begins with.
pub(crate) const ACCESS_PREFIX: &str = "tba_";
/// What the secret in a browser's cookie begins with.
pub(crate) const COOKIE_PREFIX: &str = "tbs_";

const CALLER: &str = "\
SELECT u.id, u.email, u.role, s.id, s.expires_at, s.scope, s.last_used_at, s.workspace_id, t.scope \
FROM access_tokens t \
JOIN sessions s ON s.id = t.session_id \
JOIN users u ON u.id = s.user_id \
WHERE t.token_hash = $1 AND t.expires_at > $2 AND s.ended_at IS NULL \
  AND s.idle_expires_at > $2 AND s.expires_at > $2 AND u.status = 'active'";

type CallerRow = (Uuid, String, String, Uuid, i64, String, i64, Option<Uuid>, Option<String>);

/// Whom this access token stands for, if token, session and user are all alive.
pub(super) async fn caller(db: &Db, token: SecretHash, now: i64) -> sqlx::Result<Option<Caller>> {
    let row: Option<CallerRow> = on_engine!(db.reader(), pool =>
        sqlx::query_as(CALLER).bind(token.as_bytes()).bind(now).fetch_optional(pool).await)?;
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
        // A machine is nobody's administrator, whoever owns the workspace.
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

/// The sessions that somebody ended after `$1`.
macro_rules! ended_after {
    () => {
        "FROM sessions WHERE ended_at > $1"
    };
}
pub(crate) use ended_after;

const ENDED: &str = concat!("SELECT id ", ended_after!());

/// The sessions that somebody ended after this time.
pub(super) async fn ended_since(db: &Db, since: i64) -> sqlx::Result<Vec<Uuid>> {
    on_engine!(db.reader(), pool =>
        sqlx::query_scalar(ENDED).bind(since).fetch_all(pool).await)
}

const ALIVE: &str = "\
SELECT COUNT(*) FROM sessions \
WHERE id = $1 AND ended_at IS NULL AND idle_expires_at > $2 AND expires_at > $2";

/// Whether this session goes on.
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
    /// The one workspace that a machine's session is for.
    pub(crate) workspace_id: Option<Uuid>,
    /// How often the user had been suspended when they proved who they are, if that was in an earlier
    /// request: one suspension more makes the proof void.
    pub(crate) user_suspensions: Option<i64>,
}

const BEGIN: &str = "\
INSERT INTO sessions (id, user_id, client_id, scope, ip_address, user_agent, auth_time, \
  created_at, last_used_at, idle_expires_at, expires_at, workspace_id) \
SELECT $1, id, $3, $4, $5, $6, $7, $8, $8, $9, $10, $11 FROM users \
WHERE id = $2 AND status = 'active' AND suspensions = COALESCE($12, suspensions)";

/// Begins a session. `None` if the user may not sign in any more, or was suspended since the sign-in.
///
/// The row of the user is locked until the transaction ends. So a suspension comes before, and no
/// session begins, or afterwards, and ends this one.
pub(crate) async fn begin(tx: &mut Tx, new: &New<'_>) -> sqlx::Result<Option<Session>> {
    if !user::hold_active(tx, new.user_id).await? {
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

/// A session that is alive, and whose it is.
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
    /// What its user may do.
    pub(crate) fn role(&self) -> sqlx::Result<Role> {
        parse_role(&self.role, self.user_id)
    }

    /// Whether the session was granted this scope (RFC 6749 section 3.3).
    pub(crate) fn has_scope(&self, name: &str) -> bool {
        contains_scope(&self.scope, name)
    }
}

/// Whether a list of scopes, divided by spaces, has this one.
pub(crate) fn contains_scope(scopes: &str, name: &str) -> bool {
    scopes.split(' ').any(|scope| scope == name)
}

/// The row is locked before it is judged, so a session that ends at the same moment either ends
/// first, and is not alive, or afterwards, and takes with it what this transaction adds.
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

/// A session as its owner sees it.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Listed {
    pub(super) id: Uuid,
    pub(super) client_id: String,
    pub(super) ip_address: Option<String>,
    pub(super) user_agent: Option<String>,
    pub(super) created_at: i64,
    pub(super) last_used_at: i64,
    pub(super) expires_at: i64,
}

const OF_USER: &str = "\
SELECT id, client_id, ip_address, user_agent, created_at, last_used_at, expires_at \
FROM sessions WHERE user_id = $1 AND ended_at IS NULL AND idle_expires_at > $2 \
  AND expires_at > $2 AND (created_at, id) < ($4, $5) \
ORDER BY created_at DESC, id DESC LIMIT $3";

/// The sessions of a user that are alive, the newest first, after this place.
pub(super) async fn of_user(
    db: &Db,
    user_id: Uuid,
    now: i64,
    after: Cursor,
    most: u32,
) -> sqlx::Result<Vec<Listed>> {
    on_engine!(db.reader(), pool => sqlx::query_as(OF_USER)
        .bind(user_id).bind(now).bind(i64::from(most)).bind(after.created_at).bind(after.id)
        .fetch_all(pool).await)
}

const END_OF_USER: &str = "\
UPDATE sessions SET ended_at = $2, ended_why = $3 \
WHERE user_id = $1 AND ended_at IS NULL AND idle_expires_at > $2 AND expires_at > $2 \
  AND ($4 = 0 OR id = $5) AND ($6 = 0 OR id <> $7) RETURNING id";

/// Which of a user's sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// This one.
    One(Uuid),
    /// All but this one.
    AllBut(Uuid),
    /// All.
    All,
}

/// Ends sessions of a user at once; says which were alive until now.
pub(super) async fn end_of_user(
    tx: &mut Tx,
    user_id: Uuid,
    which: Which,
    now: i64,
    why: &str,
) -> sqlx::Result<Vec<Uuid>> {
    let (one, but) = match which {
        Which::One(id) => (Some(id), None),
        Which::AllBut(id) => (None, Some(id)),
        Which::All => (None, None),
    };
    let given = |id: Option<Uuid>| (i64::from(id.is_some()), id.unwrap_or_default());
    let ((by_one, one), (by_but, but)) = (given(one), given(but));
    on_engine!(tx.connection(), c => sqlx::query_scalar(END_OF_USER)
        .bind(user_id).bind(now).bind(why)
        .bind(by_one).bind(one).bind(by_but).bind(but)
        .fetch_all(c).await)
}

const FORGET: &str = "\
DELETE FROM sessions WHERE (ended_at <= $1 OR idle_expires_at <= $1 OR expires_at <= $1) \
  AND id NOT IN (SELECT session_id FROM access_tokens) \
  AND id NOT IN (SELECT session_id FROM refresh_tokens) \
  AND id NOT IN (SELECT session_id FROM authorizations WHERE session_id IS NOT NULL)";

/// Forgets sessions that were over by this time and that nothing refers to any more.
pub(crate) async fn forget(tx: &mut Tx, before: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(FORGET).bind(before).execute(c).await.map(drop))
}

const SHORTEN: &str = "UPDATE sessions SET expires_at = $2 WHERE id = $1 AND expires_at > $2";

/// Brings the absolute end of a session forward.
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

/// Ends a session at once. `None` if it had ended already, else whose it was.
pub(crate) async fn end(tx: &mut Tx, id: Uuid, now: i64, why: &str) -> sqlx::Result<Option<Uuid>> {
    on_engine!(tx.connection(), c => sqlx::query_scalar(END)
        .bind(id).bind(now).bind(why).fetch_optional(c).await)
}

const ADD_TOKEN: &str = "\
INSERT INTO access_tokens (token_hash, session_id, expires_at, scope) VALUES ($1, $2, $3, $4)";

/// Makes an access token known. Its scope is the session's, or less if one is given.
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

const OF_TOKEN: &str = "SELECT session_id, scope FROM access_tokens WHERE token_hash = $1";

/// The session of an access token, expired or not, and the token's own scope if it has less than its
/// session.
pub(crate) async fn of_access_token(
    db: &Db,
    token: SecretHash,
) -> sqlx::Result<Option<(Uuid, Option<String>)>> {
    on_engine!(db.reader(), pool => sqlx::query_as(OF_TOKEN)
        .bind(token.as_bytes()).fetch_optional(pool).await)
}

const END_TOKEN: &str = "DELETE FROM access_tokens WHERE token_hash = $1";

/// Ends one access token and nothing else of its session.
pub(crate) async fn end_access_token(tx: &mut Tx, token: SecretHash) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(END_TOKEN)
        .bind(token.as_bytes()).execute(c).await.map(drop))
}

const FORGET_TOKENS: &str = "DELETE FROM access_tokens WHERE expires_at <= $1";

/// Forgets access tokens that expired before this time.
pub(crate) async fn forget_access_tokens(tx: &mut Tx, before: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(FORGET_TOKENS)
        .bind(before).execute(c).await.map(drop))
}
