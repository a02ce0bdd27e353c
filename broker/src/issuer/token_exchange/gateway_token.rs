//! Gateway tokens: an access token is exchanged for one that every other part of the broker refuses
//! (RFC 8693 section 2.1, `scope`). A kubeconfig for the gateway carries only these, because
//! whatever kubectl is made to forward with them (`kubectl proxy` on loopback serves every user of
//! the machine) must not reach the broker's own API, which issues Kubernetes tokens.
//!
//! The exchange does not change the session: no refresh token is used up, so sessions without one
//! can do it too.

use tenant_shared::GATEWAY_SCOPE;

use super::{ACCESS_TOKEN, ExchangedToken};
use crate::{
    base::{
        secret::PlainSecret,
        throttle::{self, RateLimit, WindowQuota},
    },
    identity::{AuthenticationError, PresentedCredential, sessions},
    issuer::{
        Issuer,
        parameters::{MAX_SECRET_BYTES, Parameters},
        tokens::token_error::TokenError,
    },
};

/// Gateway tokens per session. A plugin requests one per workspace and token lifetime.
const MAX_PER_SESSION: WindowQuota = WindowQuota { count: 100, window_seconds: 300 };

/// Whether the request exchanges an access token, and not a token of another issuer.
pub(super) fn is_requested(sent: &Parameters) -> Result<bool, TokenError> {
    Ok(sent.optional("subject_token_type", 128)? == Some(ACCESS_TOKEN))
}

/// Issues a gateway token to the bearer of an access token.
///
/// # Errors
/// The access token is invalid or itself a gateway token; another scope is requested; the session
/// exceeds its rate limit.
pub(super) async fn issue(
    issuer: &Issuer,
    sent: &Parameters,
) -> Result<ExchangedToken, TokenError> {
    if sent.has("actor_token") || sent.has("audience") || sent.has("resource") {
        return Err(TokenError::Subject("send no actor_token, audience or resource"));
    }
    if !matches!(sent.optional("requested_token_type", 128)?, None | Some(ACCESS_TOKEN)) {
        return Err(TokenError::Subject("requested_token_type must be …:access_token"));
    }
    if sent.required("scope", 256)? != GATEWAY_SCOPE {
        return Err(TokenError::Scope);
    }
    let presented = PlainSecret::presented(sent.required("subject_token", MAX_SECRET_BYTES)?);
    let caller =
        match issuer.identity().authenticate(&PresentedCredential::AccessToken(presented)).await {
            Ok(caller) if !caller.is_gateway_only() => caller,
            Ok(_) => return Err(TokenError::Subject("subject_token is for the gateway only")),
            Err(AuthenticationError::Unauthenticated) => {
                return Err(TokenError::Subject("subject_token is expired or its session is over"));
            }
            Err(AuthenticationError::Storage(error)) => return Err(error.into()),
            Err(_) => return Err(TokenError::Unavailable),
        };
    let (clock, session_id) = (issuer.clock(), caller.session_id());
    let now = clock.now_ms();
    let access_token = PlainSecret::generate(sessions::ACCESS_PREFIX)?;
    let lifetime = i64::from(issuer.settings().access_token_seconds) * 1000;
    let expires_at = (now + lifetime).min(caller.session_expires_at().as_millisecond());
    let mut tx = issuer.db().begin().await?;
    let subject = session_id.to_string();
    let taken =
        throttle::consume(&mut tx, clock, RateLimit::GatewayToken, &subject, MAX_PER_SESSION)
            .await?;
    if let Err(limit) = taken {
        tx.commit().await?;
        return Err(TokenError::TooMany(limit.retry_after));
    }
    let hash = access_token.hash();
    sessions::add_access_token(&mut tx, hash, session_id, expires_at, Some(GATEWAY_SCOPE)).await?;
    tx.commit().await?;
    let expires_in = (expires_at - now) / 1000;
    Ok(ExchangedToken { access_token, expires_in, scope: Some(GATEWAY_SCOPE) })
}
