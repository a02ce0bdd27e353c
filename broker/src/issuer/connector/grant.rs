//! Rows of what providers gave: attempts on their way, and grants that sessions stand on.

use tenant_shared::BROWSER_CLIENT_ID;
use uuid::Uuid;

use crate::{
    db::{Db, Tx},
    on_engine,
    secret::SecretHash,
};

const ADD_ATTEMPT: &str = "\
INSERT INTO upstream_attempts (state_hash, authorization_id, connector, expires_at) \
VALUES ($1, $2, $3, $4)";

/// A browser leaves for a provider; it has until `expires_at` to come back.
pub(super) async fn add_attempt(
    tx: &mut Tx,
    state: SecretHash,
    authorization_id: Uuid,
    connector: &str,
    expires_at: i64,
) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(ADD_ATTEMPT)
        .bind(state.as_bytes()).bind(authorization_id).bind(connector).bind(expires_at)
        .execute(c).await.map(drop))
}

/// One statement decides who is first; of two that come at once the second finds nothing.
const TAKE_ATTEMPT: &str = "\
DELETE FROM upstream_attempts WHERE state_hash = $1 AND expires_at > $2 \
RETURNING authorization_id, connector";

/// A browser comes back. `None` if it never left, came too late or was here before.
pub(super) async fn take_attempt(
    tx: &mut Tx,
    state: SecretHash,
    now: i64,
) -> sqlx::Result<Option<(Uuid, String)>> {
    on_engine!(tx.connection(), c => sqlx::query_as(TAKE_ATTEMPT)
        .bind(state.as_bytes()).bind(now).fetch_optional(c).await)
}

/// What a provider gave at one sign-in. Times are milliseconds since 1970.
pub(super) struct New<'a> {
    pub(super) id: Uuid,
    pub(super) identity_id: Uuid,
    pub(super) connector: &'a str,
    pub(super) username: Option<&'a str>,
    pub(super) sid: Option<&'a str>,
    /// Sealed for this grant.
    pub(super) refresh_token: Option<Vec<u8>>,
    /// How long this person keeps access at most after the provider has removed them.
    pub(super) removal_seconds: i64,
    pub(super) now: i64,
}

const ADD: &str = "\
INSERT INTO upstream_grants (id, identity_id, connector, username, sid, refresh_token, \
  removal_seconds, created_at, checked_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8)";

/// Keeps a grant.
pub(super) async fn add(tx: &mut Tx, new: &New<'_>) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(ADD)
        .bind(new.id).bind(new.identity_id).bind(new.connector).bind(new.username).bind(new.sid)
        .bind(&new.refresh_token).bind(new.removal_seconds).bind(new.now)
        .execute(c).await.map(drop))
}

const ATTACH: &str = "\
UPDATE upstream_grants SET session_id = $2 WHERE id = $1 AND session_id IS NULL \
RETURNING connector, refresh_token IS NOT NULL";

/// The session of a grant begins. Says at which provider, and whether that can be asked again.
pub(super) async fn attach(
    tx: &mut Tx,
    id: Uuid,
    session_id: Uuid,
) -> sqlx::Result<Option<(String, bool)>> {
    on_engine!(tx.connection(), c => sqlx::query_as(ATTACH)
        .bind(id).bind(session_id).fetch_optional(c).await)
}

/// The grant that a session which is alive stands on.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(super) struct Kept {
    pub(super) id: Uuid,
    pub(super) session_id: Uuid,
    pub(super) user_id: Uuid,
    pub(super) connector: String,
    pub(super) subject: String,
    /// Sealed for this grant.
    pub(super) refresh_token: Option<Vec<u8>>,
    pub(super) checked_at: i64,
}

const OF_TOKEN: &str = "\
SELECT g.id, s.id AS session_id, s.user_id, g.connector, i.subject, g.refresh_token, g.checked_at \
FROM refresh_tokens t JOIN sessions s ON s.id = t.session_id \
JOIN upstream_grants g ON g.session_id = s.id JOIN identities i ON i.id = g.identity_id \
WHERE t.token_hash = $1 AND s.ended_at IS NULL AND s.idle_expires_at > $2 AND s.expires_at > $2";

/// The grant behind a refresh token of ours, used or not, whose session is alive.
pub(super) async fn of_refresh_token(
    db: &Db,
    token: SecretHash,
    now: i64,
) -> sqlx::Result<Option<Kept>> {
    on_engine!(db.reader(), pool => sqlx::query_as(OF_TOKEN)
        .bind(token.as_bytes()).bind(now).fetch_optional(pool).await)
}

const OF_BROWSERS: &str = "\
SELECT g.id, s.id AS session_id, s.user_id, g.connector, i.subject, g.refresh_token, g.checked_at \
FROM sessions s JOIN upstream_grants g ON g.session_id = s.id \
JOIN identities i ON i.id = g.identity_id \
WHERE s.client_id = $1 AND s.ended_at IS NULL AND s.idle_expires_at > $2 AND s.expires_at > $2 \
  AND g.refresh_token IS NOT NULL AND g.checked_at <= $3 AND s.last_used_at > g.checked_at \
  AND (g.lease_until IS NULL OR g.lease_until <= $2) \
ORDER BY g.checked_at LIMIT $4";

/// The grants of browsers' sessions that were used since their provider was asked, which was not
/// after `due`; the longest ago first.
pub(super) async fn of_browsers(db: &Db, now: i64, due: i64, most: u32) -> sqlx::Result<Vec<Kept>> {
    on_engine!(db.reader(), pool => sqlx::query_as(OF_BROWSERS)
        .bind(BROWSER_CLIENT_ID).bind(now).bind(due).bind(i64::from(most))
        .fetch_all(pool).await)
}

/// One statement decides who asks. It looks at `checked_at` too: whoever read the row before another
/// replica asked would present a token that is used up.
const LEASE: &str = "\
UPDATE upstream_grants SET lease_id = $2, lease_until = $3 \
WHERE id = $1 AND checked_at = $4 AND (lease_until IS NULL OR lease_until <= $5) \
RETURNING refresh_token";

/// Takes the right to ask, until `until`, and with it the refresh token as it is now. `false` if
/// another asks or has asked since.
pub(super) async fn lease(
    db: &Db,
    kept: &mut Kept,
    lease: Uuid,
    now: i64,
    until: i64,
) -> sqlx::Result<bool> {
    let mut tx = db.begin().await?;
    let token: Option<(Option<Vec<u8>>,)> = on_engine!(tx.connection(), c => sqlx::query_as(LEASE)
        .bind(kept.id).bind(lease).bind(until).bind(kept.checked_at).bind(now)
        .fetch_optional(c).await)?;
    tx.commit().await?;
    let Some((token,)) = token else { return Ok(false) };
    kept.refresh_token = token;
    Ok(true)
}

const RELEASE: &str = "\
UPDATE upstream_grants SET lease_id = NULL, lease_until = NULL, checked_at = $3 \
WHERE id = $1 AND lease_id = $2";

const ROTATE: &str = "UPDATE upstream_grants SET refresh_token = $2 WHERE id = $1";

/// Gives the right back, with what came of it. `false` if another took it over meanwhile.
pub(super) async fn release(
    tx: &mut Tx,
    id: Uuid,
    lease: Uuid,
    rotated: Option<Vec<u8>>,
    checked_at: i64,
) -> sqlx::Result<bool> {
    let held = on_engine!(tx.connection(), c => sqlx::query(RELEASE)
        .bind(id).bind(lease).bind(checked_at)
        .execute(c).await.map(|done| done.rows_affected() == 1))?;
    if held && let Some(token) = rotated {
        on_engine!(tx.connection(), c => sqlx::query(ROTATE)
            .bind(id).bind(token).execute(c).await.map(drop))?;
    }
    Ok(held)
}

/// Grants that a provider names: by its session, by a person, or both.
pub(super) struct Named<'a> {
    pub(super) connector: &'a str,
    pub(super) subject: Option<&'a str>,
    pub(super) sid: Option<&'a str>,
    /// Only those made before.
    pub(super) before: i64,
}

const NAMED: &str = "\
SELECT g.id, s.id AS session_id, s.user_id, g.connector, i.subject, g.refresh_token, g.checked_at \
FROM upstream_grants g JOIN sessions s ON s.id = g.session_id \
JOIN identities i ON i.id = g.identity_id \
WHERE g.connector = $1 AND ($2 = '' OR i.subject = $2) AND ($3 = '' OR g.sid = $3) \
  AND g.created_at <= $4 AND s.ended_at IS NULL LIMIT $5";

/// The named grants whose sessions have not ended.
pub(super) async fn named(tx: &mut Tx, named: &Named<'_>, most: u32) -> sqlx::Result<Vec<Kept>> {
    on_engine!(tx.connection(), c => sqlx::query_as(NAMED)
        .bind(named.connector).bind(named.subject.unwrap_or_default())
        .bind(named.sid.unwrap_or_default()).bind(named.before).bind(i64::from(most))
        .fetch_all(c).await)
}

const FORGET_NAMED: &str = "\
DELETE FROM upstream_grants WHERE connector = $1 AND session_id IS NULL AND created_at <= $4 \
  AND ($3 = '' OR sid = $3) \
  AND ($2 = '' OR identity_id IN (SELECT id FROM identities WHERE subject = $2))";

/// Forgets the named grants that no session began with yet, so that none does.
pub(super) async fn forget_named(tx: &mut Tx, named: &Named<'_>) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(FORGET_NAMED)
        .bind(named.connector).bind(named.subject.unwrap_or_default())
        .bind(named.sid.unwrap_or_default()).bind(named.before)
        .execute(c).await.map(drop))
}

const FORGET_ATTEMPTS: &str = "DELETE FROM upstream_attempts WHERE expires_at <= $1";

/// Forgets browsers that did not come back by `now`.
pub(in crate::issuer) async fn forget_attempts(tx: &mut Tx, now: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(FORGET_ATTEMPTS).bind(now).execute(c).await.map(drop))
}

const FORGET_UNUSED: &str = "\
DELETE FROM upstream_grants WHERE session_id IS NULL AND created_at <= $1";

/// Forgets grants that no session began with by this time.
pub(in crate::issuer) async fn forget_unused(tx: &mut Tx, before: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(FORGET_UNUSED).bind(before).execute(c).await.map(drop))
}

const FORGET_TOKENS: &str = "\
UPDATE upstream_grants SET refresh_token = NULL WHERE refresh_token IS NOT NULL \
  AND session_id IN (SELECT id FROM sessions \
    WHERE ended_at IS NOT NULL OR idle_expires_at <= $1 OR expires_at <= $1)";

/// Forgets the providers' tokens of sessions that are over.
pub(in crate::issuer) async fn forget_tokens(tx: &mut Tx, now: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(FORGET_TOKENS).bind(now).execute(c).await.map(drop))
}

const FORGET_OVER: &str = "\
DELETE FROM upstream_grants WHERE session_id IN (SELECT id FROM sessions \
  WHERE ended_at <= $1 OR idle_expires_at <= $1 OR expires_at <= $1)";

/// Forgets the grants of sessions that were over by this time.
pub(in crate::issuer) async fn forget_over(tx: &mut Tx, before: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(FORGET_OVER).bind(before).execute(c).await.map(drop))
}
