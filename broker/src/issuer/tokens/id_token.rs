//! ID tokens (OpenID Connect Core 1.0 section 2).

use serde::Serialize;
use uuid::Uuid;

use crate::{identity::sessions::Session, issuer::Issuer};

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    sub: Uuid,
    aud: &'a str,
    exp: i64,
    iat: i64,
    auth_time: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<&'a str>,
    /// The user's e-mail address. `email_verified` is left out, because the broker does not verify
    /// addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<&'a str>,
    /// Identifier of the session (OpenID Connect Front-Channel Logout 1.0 section 3).
    sid: Uuid,
}

/// Issues an ID token. `now` is in milliseconds; the nonce is the one of the authorization request,
/// and none after a refresh (section 12.2).
pub(in crate::issuer) fn issue(
    issuer: &Issuer,
    session: &Session,
    nonce: Option<&str>,
    now: i64,
) -> jsonwebtoken::errors::Result<String> {
    let iat = now / 1000;
    issuer.keys().sign(&Claims {
        iss: issuer.name(),
        sub: session.user_id,
        aud: &session.client_id,
        exp: iat + i64::from(issuer.settings().id_token_seconds),
        iat,
        auth_time: session.auth_time / 1000,
        nonce,
        email: session.has_scope("email").then_some(&session.email),
        sid: session.id,
    })
}
