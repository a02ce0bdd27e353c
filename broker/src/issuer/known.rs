//! Browsers in which somebody signed in before.
//!
//! Wrong passwords are counted, and too many lock the account out for a while. So that nobody can do
//! that to somebody else on purpose, a browser that signed in as this account before is counted on
//! its own: what others try elsewhere does not concern it (OWASP: "device cookies").

use poem::{Request, http::HeaderValue};
use uuid::Uuid;

use super::Issuer;
use crate::{
    cookie::HostCookie,
    db::{Db, Tx},
    on_engine,
    secret::{PlainSecret, SecretHash},
};

/// What the secret of the cookie begins with.
const PREFIX: &str = "tbk_";
/// How long a browser is known after its last sign-in.
const SECONDS: u32 = 180 * 24 * 3600;
/// Browsers of one user that are known; the one that signed in longest ago is forgotten first.
const MOST: i64 = 20;

fn cookie(issuer: &Issuer) -> HostCookie {
    HostCookie::new("tenant-browser", issuer.is_https(), "/")
}

/// The secret that this browser got when somebody signed in.
pub(super) fn presented(issuer: &Issuer, request: &Request) -> Option<PlainSecret> {
    cookie(issuer).read(request.headers()).filter(|secret| secret.expose().starts_with(PREFIX))
}

const KNOWS: &str = "\
SELECT COUNT(*) FROM known_browsers k JOIN users u ON u.id = k.user_id \
WHERE k.token_hash = $1 AND u.email = $2 AND k.expires_at > $3";

/// Whether the user with this address signed in in this browser before.
pub(super) async fn is_known(
    db: &Db,
    browser: SecretHash,
    email: &str,
    now: i64,
) -> sqlx::Result<bool> {
    let count: i64 = on_engine!(db.reader(), pool => sqlx::query_scalar(KNOWS)
        .bind(browser.as_bytes()).bind(email).bind(now).fetch_one(pool).await)?;
    Ok(count > 0)
}

const REMEMBER: &str = "\
INSERT INTO known_browsers (token_hash, user_id, expires_at) VALUES ($1, $2, $3) \
ON CONFLICT (token_hash, user_id) DO UPDATE SET expires_at = $3";

const CROWDED_OUT: &str = "\
DELETE FROM known_browsers WHERE user_id = $1 AND token_hash NOT IN \
  (SELECT token_hash FROM known_browsers WHERE user_id = $1 ORDER BY expires_at DESC LIMIT $2)";

/// Remembers that this user signed in in this browser; gives the cookie to hand it. `None` if there
/// is no randomness: then the browser stays unknown.
///
/// # Errors
/// The database's.
pub(super) async fn remember(
    issuer: &Issuer,
    browser: Option<&PlainSecret>,
    user_id: Uuid,
) -> sqlx::Result<Option<HeaderValue>> {
    // One that the browser brought is ours only if the database knows it.
    let known = match browser {
        Some(secret) if is_anybodys(issuer.db(), secret.hash()).await? => Some(secret.clone()),
        _ => PlainSecret::generate(PREFIX).ok(),
    };
    let Some(secret) = known else { return Ok(None) };
    let expires_at = issuer.clock().now_ms() + i64::from(SECONDS) * 1000;
    let mut tx = issuer.db().begin().await?;
    on_engine!(tx.connection(), c => sqlx::query(REMEMBER)
        .bind(secret.hash().as_bytes()).bind(user_id).bind(expires_at)
        .execute(c).await.map(drop))?;
    on_engine!(tx.connection(), c => sqlx::query(CROWDED_OUT)
        .bind(user_id).bind(MOST).execute(c).await.map(drop))?;
    tx.commit().await?;
    Ok(cookie(issuer).set(&secret, SECONDS))
}

const ANYBODYS: &str = "SELECT COUNT(*) FROM known_browsers WHERE token_hash = $1";

async fn is_anybodys(db: &Db, browser: SecretHash) -> sqlx::Result<bool> {
    let count: i64 = on_engine!(db.reader(), pool => sqlx::query_scalar(ANYBODYS)
        .bind(browser.as_bytes()).fetch_one(pool).await)?;
    Ok(count > 0)
}

const FORGET: &str = "DELETE FROM known_browsers WHERE expires_at <= $1";

/// Forgets browsers in which nobody signed in for too long.
pub(super) async fn forget(tx: &mut Tx, now: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(FORGET).bind(now).execute(c).await.map(drop))
}
