//! Rows of upstream sign-ins: attempts in flight, and the grants that sessions depend on.

use tenant_shared::BROWSER_CLIENT_ID;
use uuid::Uuid;

use crate::{
    base::{
        db::{Db, Tx},
        secret::SecretHash,
    },
    on_engine,
};

const INSERT_ATTEMPT: &str = "\
INSERT INTO upstream_attempts (state_hash, authorization_id, connector, expires_at) \
VALUES ($1, $2, $3, $4)";

/// Stores an attempt: a browser leaves for a provider and has until `expires_at` to come back.
pub(super) async fn insert_attempt(
    tx: &mut Tx,
    state: SecretHash,
    authorization_id: Uuid,
    connector: &str,
    expires_at: i64,
) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(INSERT_ATTEMPT)
        .bind(state.as_bytes()).bind(authorization_id).bind(connector).bind(expires_at)
        .execute(c).await.map(drop))
}

/// One statement redeems an attempt; of two concurrent ones the second finds nothing.
const REDEEM_ATTEMPT: &str = "\
DELETE FROM upstream_attempts WHERE state_hash = $1 AND expires_at > $2 \
RETURNING authorization_id, connector";

/// Redeems an attempt. `None` if there is no such attempt, or it expired or was redeemed before.
pub(super) async fn redeem_attempt(
    tx: &mut Tx,
    state: SecretHash,
    now: i64,
) -> sqlx::Result<Option<(Uuid, String)>> {
    on_engine!(tx.connection(), c => sqlx::query_as(REDEEM_ATTEMPT)
        .bind(state.as_bytes()).bind(now).fetch_optional(c).await)
}

/// A new grant: the result of one sign-in at a provider. Times are milliseconds since 1970.
pub(super) struct NewGrant<'a> {
    pub(super) id: Uuid,
    pub(super) identity_id: Uuid,
    pub(super) connector: &'a str,
    pub(super) username: Option<&'a str>,
    pub(super) sid: Option<&'a str>,
    /// Refresh token of the provider, sealed for this grant.
    pub(super) refresh_token: Option<Vec<u8>>,
    /// Maximum time that the user keeps access after the provider has removed them.
    pub(super) removal_seconds: i64,
    pub(super) now: i64,
}

const INSERT: &str = "\
INSERT INTO upstream_grants (id, identity_id, connector, username, sid, refresh_token, \
  removal_seconds, created_at, checked_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8)";

/// Stores a grant.
pub(super) async fn insert(tx: &mut Tx, new: &NewGrant<'_>) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(INSERT)
        .bind(new.id).bind(new.identity_id).bind(new.connector).bind(new.username).bind(new.sid)
        .bind(&new.refresh_token).bind(new.removal_seconds).bind(new.now)
        .execute(c).await.map(drop))
}

const ATTACH_SESSION: &str = "\
UPDATE upstream_grants SET session_id = $2 WHERE id = $1 AND session_id IS NULL \
RETURNING connector, refresh_token IS NOT NULL";

/// Attaches the session of a grant. Returns the provider, and whether there is a refresh token to
/// ask it again.
pub(super) async fn attach_session(
    tx: &mut Tx,
    id: Uuid,
    session_id: Uuid,
) -> sqlx::Result<Option<(String, bool)>> {
    on_engine!(tx.connection(), c => sqlx::query_as(ATTACH_SESSION)
        .bind(id).bind(session_id).fetch_optional(c).await)
}

/// The grant of a live session.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(super) struct SessionGrant {
    pub(super) id: Uuid,
    pub(super) session_id: Uuid,
    pub(super) user_id: Uuid,
    pub(super) identity_id: Uuid,
    pub(super) connector: String,
    pub(super) subject: String,
    /// Refresh token of the provider, sealed for this grant.
    pub(super) refresh_token: Option<Vec<u8>>,
    pub(super) checked_at: i64,
}

const FIND_BY_REFRESH_TOKEN: &str = "\
SELECT g.id, s.session_id, s.user_id, g.identity_id, g.connector, i.subject, g.refresh_token, \
  g.checked_at \
FROM refresh_tokens t JOIN user_sessions s ON s.session_id = t.session_id \
JOIN upstream_grants g ON g.session_id = s.session_id \
JOIN upstream_identities i ON i.identity_id = g.identity_id \
WHERE t.token_hash = $1 AND s.ended_at IS NULL AND s.idle_expires_at > $2 AND s.expires_at > $2";

/// Finds the grant of a refresh token of ours, used or not, if its session is live.
pub(super) async fn find_by_refresh_token(
    db: &Db,
    token: SecretHash,
    now: i64,
) -> sqlx::Result<Option<SessionGrant>> {
    on_engine!(db.reader(), pool => sqlx::query_as(FIND_BY_REFRESH_TOKEN)
        .bind(token.as_bytes()).bind(now).fetch_optional(pool).await)
}

const DUE_BROWSER_GRANTS: &str = "\
SELECT g.id, s.session_id, s.user_id, g.identity_id, g.connector, i.subject, g.refresh_token, \
  g.checked_at \
FROM user_sessions s JOIN upstream_grants g ON g.session_id = s.session_id \
JOIN upstream_identities i ON i.identity_id = g.identity_id \
WHERE s.client_id = $1 AND s.ended_at IS NULL AND s.idle_expires_at > $2 AND s.expires_at > $2 \
  AND g.refresh_token IS NOT NULL AND g.checked_at <= $3 AND s.last_used_at > g.checked_at \
  AND (g.lease_until IS NULL OR g.lease_until <= $2) \
ORDER BY g.checked_at LIMIT $4";

/// Finds the grants of browser sessions that were used since their last check, if that was not
/// after `due`; oldest check first.
pub(super) async fn due_browser_grants(
    db: &Db,
    now: i64,
    due: i64,
    limit: u32,
) -> sqlx::Result<Vec<SessionGrant>> {
    on_engine!(db.reader(), pool => sqlx::query_as(DUE_BROWSER_GRANTS)
        .bind(BROWSER_CLIENT_ID).bind(now).bind(due).bind(i64::from(limit))
        .fetch_all(pool).await)
}

/// One statement acquires the lease. It compares `checked_at` too, because a reader of the row from
/// before the check of another replica would present a token that is used up.
const ACQUIRE_LEASE: &str = "\
UPDATE upstream_grants SET lease_id = $2, lease_until = $3 \
WHERE id = $1 AND checked_at = $4 AND (lease_until IS NULL OR lease_until <= $5) \
RETURNING refresh_token";

/// Acquires the lease of a check until `until`, and reads the current refresh token. `false` if
/// another check holds the lease or has finished since.
pub(super) async fn acquire_lease(
    db: &Db,
    grant: &mut SessionGrant,
    lease: Uuid,
    now: i64,
    until: i64,
) -> sqlx::Result<bool> {
    let mut tx = db.begin().await?;
    let token: Option<(Option<Vec<u8>>,)> = on_engine!(tx.connection(), c => sqlx::query_as(ACQUIRE_LEASE)
        .bind(grant.id).bind(lease).bind(until).bind(grant.checked_at).bind(now)
        .fetch_optional(c).await)?;
    tx.commit().await?;
    let Some((token,)) = token else { return Ok(false) };
    grant.refresh_token = token;
    Ok(true)
}

const RELEASE_LEASE: &str = "\
UPDATE upstream_grants SET lease_id = NULL, lease_until = NULL, checked_at = $3 \
WHERE id = $1 AND lease_id = $2";

const REPLACE_REFRESH_TOKEN: &str = "UPDATE upstream_grants SET refresh_token = $2 WHERE id = $1";

/// Releases the lease and stores the result. `false` if another check took the lease over.
pub(super) async fn release_lease(
    tx: &mut Tx,
    id: Uuid,
    lease: Uuid,
    rotated: Option<Vec<u8>>,
    checked_at: i64,
) -> sqlx::Result<bool> {
    let held = on_engine!(tx.connection(), c => sqlx::query(RELEASE_LEASE)
        .bind(id).bind(lease).bind(checked_at)
        .execute(c).await.map(|done| done.rows_affected() == 1))?;
    if held && let Some(token) = rotated {
        on_engine!(tx.connection(), c => sqlx::query(REPLACE_REFRESH_TOKEN)
            .bind(id).bind(token).execute(c).await.map(drop))?;
    }
    Ok(held)
}

/// Selects grants by session of the provider, by subject, or both.
pub(super) struct GrantSelector<'a> {
    pub(super) connector: &'a str,
    pub(super) subject: Option<&'a str>,
    pub(super) sid: Option<&'a str>,
    /// Only grants that were created before.
    pub(super) before: i64,
}

const SELECT: &str = "\
SELECT g.id, s.session_id, s.user_id, g.identity_id, g.connector, i.subject, g.refresh_token, \
  g.checked_at \
FROM upstream_grants g JOIN user_sessions s ON s.session_id = g.session_id \
JOIN upstream_identities i ON i.identity_id = g.identity_id \
WHERE g.connector = $1 AND ($2 = '' OR i.subject = $2) AND ($3 = '' OR g.sid = $3) \
  AND g.created_at <= $4 AND s.ended_at IS NULL LIMIT $5";

/// The selected grants whose sessions have not ended.
pub(super) async fn select(
    tx: &mut Tx,
    selector: &GrantSelector<'_>,
    limit: u32,
) -> sqlx::Result<Vec<SessionGrant>> {
    on_engine!(tx.connection(), c => sqlx::query_as(SELECT)
        .bind(selector.connector).bind(selector.subject.unwrap_or_default())
        .bind(selector.sid.unwrap_or_default()).bind(selector.before).bind(i64::from(limit))
        .fetch_all(c).await)
}

const DELETE_UNATTACHED: &str = "\
DELETE FROM upstream_grants WHERE connector = $1 AND session_id IS NULL AND created_at <= $4 \
  AND ($3 = '' OR sid = $3) \
  AND ($2 = '' OR identity_id IN \
    (SELECT identity_id FROM upstream_identities WHERE subject = $2))";

/// Deletes the selected grants without a session, so that no session begins with them.
pub(super) async fn delete_unattached(
    tx: &mut Tx,
    selector: &GrantSelector<'_>,
) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(DELETE_UNATTACHED)
        .bind(selector.connector).bind(selector.subject.unwrap_or_default())
        .bind(selector.sid.unwrap_or_default()).bind(selector.before)
        .execute(c).await.map(drop))
}

const DELETE_EXPIRED_ATTEMPTS: &str = "DELETE FROM upstream_attempts WHERE expires_at <= $1";

/// Deletes attempts that expired by `now`.
pub(in crate::issuer) async fn delete_expired_attempts(tx: &mut Tx, now: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(DELETE_EXPIRED_ATTEMPTS).bind(now).execute(c).await.map(drop))
}

const DELETE_UNUSED: &str = "\
DELETE FROM upstream_grants WHERE session_id IS NULL AND created_at <= $1";

/// Deletes grants without a session that were created by this time.
pub(in crate::issuer) async fn delete_unused(tx: &mut Tx, before: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(DELETE_UNUSED).bind(before).execute(c).await.map(drop))
}

const CLEAR_REFRESH_TOKENS: &str = "\
UPDATE upstream_grants SET refresh_token = NULL WHERE refresh_token IS NOT NULL \
  AND session_id IN (SELECT session_id FROM user_sessions \
    WHERE ended_at IS NOT NULL OR idle_expires_at <= $1 OR expires_at <= $1)";

/// Clears the refresh tokens of the providers of sessions that have ended.
pub(in crate::issuer) async fn clear_refresh_tokens(tx: &mut Tx, now: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(CLEAR_REFRESH_TOKENS).bind(now).execute(c).await.map(drop))
}

const DELETE_ENDED: &str = "\
DELETE FROM upstream_grants WHERE session_id IN (SELECT session_id FROM user_sessions \
  WHERE ended_at <= $1 OR idle_expires_at <= $1 OR expires_at <= $1)";

/// Deletes the grants of sessions that had ended by this time.
pub(in crate::issuer) async fn delete_ended(tx: &mut Tx, before: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(DELETE_ENDED).bind(before).execute(c).await.map(drop))
}
