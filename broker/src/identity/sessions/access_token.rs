//! Access tokens: opaque, each of one session, stored as a hash. The secret in a browser's session
//! cookie is stored as an access token too.

use tenant_shared::Role;
use uuid::Uuid;

use crate::{
    base::{
        db::{Db, Tx},
        secret::SecretHash,
    },
    identity::{Caller, users},
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
pub(in crate::identity) async fn find_caller(
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
        None => users::parse_role(&role, user_id)?,
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
