//! Start of a session after a sign-in, and the cookie of a browser's session.

use poem::http::HeaderValue;
use tenant_shared::BROWSER_CLIENT_ID;
use uuid::Uuid;

use crate::{
    base::{db::Tx, request_context, secret::PlainSecret},
    identity::sessions::{self, Session},
    issuer::{Issuer, authorization::RedeemedAuthorization},
};

/// Starts the session of a redeemed authorization and links the two. `None` if the user may not
/// sign in any more, or was suspended since the sign-in.
pub(in crate::issuer) async fn from_authorization(
    issuer: &Issuer,
    tx: &mut Tx,
    row: &RedeemedAuthorization,
    now: i64,
) -> sqlx::Result<Option<Session>> {
    let start = SessionStart {
        user_id: row.user_id,
        client_id: &row.client_id,
        scope: &row.scope,
        auth_time: row.authenticated_at,
        user_suspensions: row.user_suspensions,
    };
    let Some(session) = start.insert(issuer, tx, now).await? else { return Ok(None) };
    crate::issuer::authorization::set_session(tx, row.id, session.id).await?;
    match row.upstream_grant_id {
        Some(grant) => issuer.connectors().attach(tx, grant, session, now).await,
        None => Ok(Some(session)),
    }
}

/// Starts a browser session for a user who has just authenticated. `None` if the user may not sign
/// in any more.
pub(in crate::issuer) async fn for_browser(
    issuer: &Issuer,
    tx: &mut Tx,
    user_id: Uuid,
    now: i64,
) -> sqlx::Result<Option<Session>> {
    let start = SessionStart {
        user_id,
        client_id: BROWSER_CLIENT_ID,
        scope: "openid email",
        auth_time: now,
        user_suspensions: None,
    };
    start.insert(issuer, tx, now).await
}

/// Parameters of a session that starts now.
struct SessionStart<'a> {
    user_id: Uuid,
    client_id: &'a str,
    scope: &'a str,
    auth_time: i64,
    user_suspensions: Option<i64>,
}

impl SessionStart<'_> {
    async fn insert(
        &self,
        issuer: &Issuer,
        tx: &mut Tx,
        now: i64,
    ) -> sqlx::Result<Option<Session>> {
        let settings = issuer.settings();
        let (idle, max) = if self.client_id == BROWSER_CLIENT_ID {
            let browser = issuer.identity().browser_sessions();
            (browser.idle_seconds, browser.max_seconds)
        } else {
            (settings.session_idle_seconds, settings.session_max_seconds)
        };
        let new = sessions::NewSession {
            id: issuer.clock().random_id(),
            user_id: self.user_id,
            client_id: self.client_id,
            scope: self.scope,
            ip_address: request_context::request_address().map(|address| address.to_string()),
            user_agent: request_context::request_user_agent(),
            auth_time: self.auth_time,
            created_at: now,
            idle_expires_at: now + i64::from(idle) * 1000,
            // The session's age counts from the sign-in, not from the redemption of the code.
            expires_at: self.auth_time + i64::from(max) * 1000,
            workspace_id: None,
            user_suspensions: self.user_suspensions,
        };
        sessions::begin(tx, &new).await
    }
}

/// Issues the session cookie. `None` if the system's random number generator failed.
pub(in crate::issuer) async fn issue_cookie(
    issuer: &Issuer,
    tx: &mut Tx,
    session: &Session,
    now: i64,
) -> sqlx::Result<Option<HeaderValue>> {
    let Ok(secret) = PlainSecret::generate(sessions::COOKIE_PREFIX) else { return Ok(None) };
    sessions::add_access_token(tx, secret.hash(), session.id, session.expires_at, None).await?;
    let seconds = u32::try_from((session.expires_at - now) / 1000).unwrap_or_default();
    Ok(issuer.identity().browser_sessions().cookie.set(&secret, seconds))
}
