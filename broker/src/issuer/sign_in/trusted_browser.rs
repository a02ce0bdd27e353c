//! Trusted browsers ("device cookies" in OWASP's terms): browsers in which a user signed in before.
//!
//! Too many wrong passwords lock an account for a while. So that nobody can lock out somebody else
//! on purpose, a browser that signed in as the account before has a limit of its own, and failures
//! from elsewhere do not count for it.

use poem::{Request, http::HeaderValue};
use uuid::Uuid;

use crate::{
    base::{
        db::{Db, Tx},
        secret::{PlainSecret, SecretHash},
    },
    identity::HostCookie,
    issuer::Issuer,
    on_engine,
};

/// Prefix of the cookie's secret.
const PREFIX: &str = "tbk_";
/// How long a browser stays trusted after its last sign-in.
const TTL_SECONDS: u32 = 180 * 24 * 3600;
/// Trusted browsers of one user at most; the one with the oldest sign-in is evicted first.
const MAX_PER_USER: i64 = 20;

fn cookie(issuer: &Issuer) -> HostCookie {
    HostCookie::new("tenant-browser", issuer.is_https(), "/")
}

/// The secret of the browser's device cookie, if it has one.
pub(in crate::issuer) fn read_cookie(issuer: &Issuer, request: &Request) -> Option<PlainSecret> {
    cookie(issuer).read(request.headers()).filter(|secret| secret.expose().starts_with(PREFIX))
}

const COUNT_TRUSTED: &str = "\
SELECT COUNT(*) FROM known_browsers k JOIN user_emails u ON u.user_id = k.user_id \
WHERE k.token_hash = $1 AND u.email = $2 AND k.expires_at > $3";

/// Whether the user with this address signed in with this browser before.
pub(in crate::issuer) async fn is_trusted(
    db: &Db,
    browser: SecretHash,
    email: &str,
    now: i64,
) -> sqlx::Result<bool> {
    let count: i64 = on_engine!(db.reader(), pool => sqlx::query_scalar(COUNT_TRUSTED)
        .bind(browser.as_bytes()).bind(email).bind(now).fetch_one(pool).await)?;
    Ok(count > 0)
}

const UPSERT: &str = "\
INSERT INTO known_browsers (token_hash, user_id, expires_at) VALUES ($1, $2, $3) \
ON CONFLICT (token_hash, user_id) DO UPDATE SET expires_at = $3";

const EVICT_OLDEST: &str = "\
DELETE FROM known_browsers WHERE user_id = $1 AND token_hash NOT IN \
  (SELECT token_hash FROM known_browsers WHERE user_id = $1 ORDER BY expires_at DESC LIMIT $2)";

/// Records that this user signed in with this browser, and returns the cookie to set. `None` if the
/// system's random number generator failed; then the browser is not trusted.
///
/// # Errors
/// The database failed.
pub(in crate::issuer) async fn trust(
    issuer: &Issuer,
    browser: Option<&PlainSecret>,
    user_id: Uuid,
) -> sqlx::Result<Option<HeaderValue>> {
    // The browser's own secret is reused only if the database knows it.
    let secret = match browser {
        Some(secret) if exists(issuer.db(), secret.hash()).await? => Some(secret.clone()),
        _ => PlainSecret::generate(PREFIX).ok(),
    };
    let Some(secret) = secret else { return Ok(None) };
    let expires_at = issuer.clock().now_ms() + i64::from(TTL_SECONDS) * 1000;
    let mut tx = issuer.db().begin().await?;
    on_engine!(tx.connection(), c => sqlx::query(UPSERT)
        .bind(secret.hash().as_bytes()).bind(user_id).bind(expires_at)
        .execute(c).await.map(drop))?;
    on_engine!(tx.connection(), c => sqlx::query(EVICT_OLDEST)
        .bind(user_id).bind(MAX_PER_USER).execute(c).await.map(drop))?;
    tx.commit().await?;
    Ok(cookie(issuer).set(&secret, TTL_SECONDS))
}

const COUNT: &str = "SELECT COUNT(*) FROM known_browsers WHERE token_hash = $1";

async fn exists(db: &Db, browser: SecretHash) -> sqlx::Result<bool> {
    let count: i64 = on_engine!(db.reader(), pool => sqlx::query_scalar(COUNT)
        .bind(browser.as_bytes()).fetch_one(pool).await)?;
    Ok(count > 0)
}

const DELETE_EXPIRED: &str = "DELETE FROM known_browsers WHERE expires_at <= $1";

/// Deletes browsers whose trust has expired.
pub(in crate::issuer) async fn delete_expired(tx: &mut Tx, now: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(DELETE_EXPIRED)
        .bind(now).execute(c).await.map(drop))
}
