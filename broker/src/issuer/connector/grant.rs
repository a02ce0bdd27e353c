//! Rows of what providers gave: attempts on their way, and grants that sessions stand on.

use uuid::Uuid;

use crate::{db::Tx, on_engine, secret::SecretHash};

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
