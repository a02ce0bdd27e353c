//! Start, extension and expiry of sessions.

use tenant_shared::Role;
use uuid::Uuid;

use crate::{
    base::db::Tx,
    identity::{Identity, users},
    on_engine,
};

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
    if !users::lock_if_active(tx, new.user_id).await? {
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
        users::parse_role(&self.role, self.user_id)
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
const EXTEND_IDLE_TIMEOUT: &str = "\
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
pub(crate) async fn extend_idle_timeout(
    tx: &mut Tx,
    id: Uuid,
    now: i64,
    idle_expires_at: i64,
) -> sqlx::Result<Option<Session>> {
    let alive = on_engine!(tx.connection(), c => sqlx::query(EXTEND_IDLE_TIMEOUT)
        .bind(id).bind(now).bind(idle_expires_at)
        .execute(c).await.map(|done| done.rows_affected() == 1))?;
    if alive { find(tx, id).await } else { Ok(None) }
}

const SET_EARLIER_END: &str =
    "UPDATE sessions SET expires_at = $2 WHERE id = $1 AND expires_at > $2";

/// Moves the absolute end of a session to an earlier time.
pub(crate) async fn set_earlier_end(
    tx: &mut Tx,
    session: &mut Session,
    expires_at: i64,
) -> sqlx::Result<()> {
    session.expires_at = session.expires_at.min(expires_at);
    on_engine!(tx.connection(), c => sqlx::query(SET_EARLIER_END)
        .bind(session.id).bind(expires_at).execute(c).await.map(drop))
}

const DELETE_EXPIRED: &str = "\
DELETE FROM sessions WHERE (ended_at <= $1 OR idle_expires_at <= $1 OR expires_at <= $1) \
  AND id NOT IN (SELECT session_id FROM access_tokens) \
  AND id NOT IN (SELECT session_id FROM session_references)";

/// Deletes sessions that had ended by this time and that no other row refers to.
pub(crate) async fn delete_expired(tx: &mut Tx, before: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(DELETE_EXPIRED)
        .bind(before).execute(c).await.map(drop))
}

const ALIVE: &str = "\
SELECT COUNT(*) FROM sessions \
WHERE id = $1 AND ended_at IS NULL AND idle_expires_at > $2 AND expires_at > $2";

impl Identity {
    /// Whether this session is valid: nobody ended it, and it has not expired.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn is_alive(&self, session: Uuid) -> sqlx::Result<bool> {
        let now = self.clock.now_ms();
        let count: i64 = on_engine!(self.db.reader(), pool =>
            sqlx::query_scalar(ALIVE).bind(session).bind(now).fetch_one(pool).await)?;
        Ok(count > 0)
    }
}
