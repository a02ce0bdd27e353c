//! Tokens of a session: access token, refresh token and ID token.

use poem::{Response, http::StatusCode};
use serde_json::json;

use super::{
    id_token, refresh_tokens,
    token_error::{TokenError, no_store_json},
};
use crate::{
    base::{
        db::Tx,
        request_context::{Field, record_field},
        secret::{PlainSecret, SecretHash},
    },
    identity::sessions::{self, Session},
    issuer::Issuer,
};

/// Issued tokens, to be sent once their transaction is committed.
pub(in crate::issuer) struct IssuedTokens {
    access_token: PlainSecret,
    expires_in: i64,
    refresh_token: Option<PlainSecret>,
    id_token: String,
    scope: String,
}

impl IssuedTokens {
    /// The token response (RFC 6749 section 5.1).
    pub(in crate::issuer) fn response(&self) -> Response {
        let mut body = json!({
            "access_token": self.access_token.expose(),
            "token_type": "Bearer",
            "expires_in": self.expires_in,
            "id_token": self.id_token,
            "scope": self.scope,
        });
        if let Some(token) = &self.refresh_token {
            body["refresh_token"] = token.expose().into();
        }
        no_store_json(StatusCode::OK, &body)
    }
}

/// Issues tokens of a valid session; `parent` is the refresh token that they are issued for.
pub(in crate::issuer) async fn issue(
    issuer: &Issuer,
    tx: &mut Tx,
    session: &Session,
    nonce: Option<&str>,
    parent: Option<SecretHash>,
    now: i64,
) -> Result<IssuedTokens, TokenError> {
    let access_token = PlainSecret::generate(sessions::ACCESS_PREFIX)?;
    let lifetime = i64::from(issuer.settings().access_token_seconds) * 1000;
    let expires_at = (now + lifetime).min(session.expires_at);
    sessions::add_access_token(tx, access_token.hash(), session.id, expires_at, None).await?;
    let refresh_token = if session.has_scope("offline_access") {
        let token = PlainSecret::generate(refresh_tokens::PREFIX)?;
        refresh_tokens::insert(tx, token.hash(), session.id, parent, now).await?;
        Some(token)
    } else {
        None
    };
    record_field(Field::UserId, session.user_id);
    record_field(Field::SessionId, session.id);
    Ok(IssuedTokens {
        access_token,
        expires_in: (expires_at - now) / 1000,
        refresh_token,
        // It is signed before the commit, so that a failure leaves no rows.
        id_token: id_token::issue(issuer, session, nonce, now)?,
        scope: session.scope.clone(),
    })
}
