//! The token endpoint, `POST /oauth2/token`: tokens for a code, a refresh token (RFC 6749 sections
//! 4.1.3 and 6), a device code (RFC 8628 section 3.4) or another token (RFC 8693).

use poem::{
    Request, Response,
    http::{HeaderValue, StatusCode, header},
};
use serde_json::json;
use tenant_shared::PLUGIN_CLIENT_ID;

use super::{
    Issuer, code, device, id_token, pages,
    parameters::{ParameterError, Parameters},
    refresh,
    token_exchange::{self, ExchangedToken},
};
use crate::{
    base::{
        db::Tx,
        error_chain,
        rate_limit::RateLimited,
        request_context::record_field,
        secret::{NoRandomness, PlainSecret, SecretHash},
    },
    identity::session::{self, Session},
};

/// Bytes of a token or code at most, as clients present them.
pub(super) const MAX_TOKEN_BYTES: usize = 128;

/// The token request is refused (RFC 6749 section 5.2).
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenError {
    /// A parameter is missing or invalid.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// The client is unknown, or it authenticates although it is a public client.
    #[error("{0}")]
    Client(&'static str),
    /// The code or token is not valid (any more).
    #[error("{0}")]
    Grant(&'static str),
    /// The grant type is not supported.
    #[error("grant_type must be authorization_code, refresh_token or the device grant")]
    GrantType,
    /// The person has not decided yet (RFC 8628 section 3.5).
    #[error("the person has not decided yet; ask again after the interval")]
    AuthorizationPending,
    /// The device polls too often (RFC 8628 section 3.5).
    #[error("asked too often; wait 5 seconds longer between polls from now on")]
    SlowDown,
    /// The person denied the device (RFC 8628 section 3.5).
    #[error("the person refused")]
    AccessDenied,
    /// The person took too long (RFC 8628 section 3.5).
    #[error("the code has expired; begin again")]
    ExpiredToken,
    /// A rate limit is exceeded; a retry may come after this number of seconds.
    #[error("too many requests; try again later")]
    TooMany(u64),
    /// The subject token of an exchange is not accepted (RFC 8693 section 2.2.2).
    #[error("{0}")]
    Subject(&'static str),
    /// The requested scope is wider than the granted one.
    #[error("scope asks for more than the person agreed to")]
    Scope,
    /// The database does not answer.
    #[error("the broker cannot reach its database; try again")]
    Storage(#[from] sqlx::Error),
    /// The database does not answer, and the cause is in the log line already.
    #[error("the broker cannot reach its database; try again")]
    Unavailable,
    /// The provider of a session does not answer.
    #[error("the issuer that this depends on does not answer; nothing has ended, so try again")]
    Provider,
    /// The system's random number generator failed.
    #[error("the broker failed; an operator finds the cause in its log by the request id")]
    Randomness(#[from] NoRandomness),
    /// The ID token could not be signed.
    #[error("the broker failed; an operator finds the cause in its log by the request id")]
    Signature(#[from] jsonwebtoken::errors::Error),
}

impl TokenError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Parameter(fault) => fault.status(),
            Self::Client(_) => StatusCode::UNAUTHORIZED,
            Self::Grant(_)
            | Self::Subject(_)
            | Self::GrantType
            | Self::Scope
            | Self::AuthorizationPending
            | Self::SlowDown
            | Self::AccessDenied
            | Self::ExpiredToken => StatusCode::BAD_REQUEST,
            Self::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Storage(_) | Self::Unavailable | Self::Provider => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Randomness(_) | Self::Signature(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Parameter(_) | Self::Subject(_) => "invalid_request",
            Self::Client(_) => "invalid_client",
            Self::Grant(_) => "invalid_grant",
            Self::GrantType => "unsupported_grant_type",
            Self::Scope => "invalid_scope",
            Self::AuthorizationPending => "authorization_pending",
            Self::SlowDown => "slow_down",
            Self::AccessDenied => "access_denied",
            Self::ExpiredToken => "expired_token",
            Self::TooMany(_) | Self::Storage(_) | Self::Unavailable | Self::Provider => {
                "temporarily_unavailable"
            }
            Self::Randomness(_) | Self::Signature(_) => "server_error",
        }
    }

    /// The error response.
    pub(super) fn response(&self) -> Response {
        record_field("code", self.code());
        match self {
            Self::Storage(error) => record_field("cause", error_chain(error)),
            Self::Randomness(error) => record_field("cause", error.to_string()),
            Self::Signature(error) => record_field("cause", error.to_string()),
            _ => {}
        }
        let body = json!({ "error": self.code(), "error_description": self.to_string() });
        let mut response = no_store_json(self.status(), &body);
        match self {
            Self::Storage(_) | Self::Unavailable | Self::Provider => {
                response = pages::with_retry_after(response, 5);
            }
            Self::TooMany(seconds) => response = pages::with_retry_after(response, *seconds),
            _ => {}
        }
        if let Self::Client(_) = self {
            let scheme = HeaderValue::from_static("Basic realm=\"tenant-broker\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// A JSON response that must not be cached (RFC 6749 section 5.1).
fn no_store_json(status: StatusCode, body: &serde_json::Value) -> Response {
    Response::builder()
        .status(status)
        .content_type("application/json")
        .header(header::CACHE_CONTROL, "no-store")
        .header(header::PRAGMA, "no-cache")
        .body(body.to_string())
}

/// Issued tokens, to be sent once their transaction is committed.
pub(super) struct IssuedTokens {
    access_token: PlainSecret,
    expires_in: i64,
    refresh_token: Option<PlainSecret>,
    id_token: String,
    scope: String,
}

impl IssuedTokens {
    /// The token response (RFC 6749 section 5.1).
    fn response(&self) -> Response {
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

/// The response of a token exchange (RFC 8693 section 2.2.1).
fn exchange_response(exchanged: &ExchangedToken) -> Response {
    let mut body = json!({
        "access_token": exchanged.access_token.expose(),
        "issued_token_type": token_exchange::ACCESS_TOKEN,
        "token_type": "Bearer",
        "expires_in": exchanged.expires_in,
    });
    if let Some(scope) = exchanged.scope {
        body["scope"] = scope.into();
    }
    no_store_json(StatusCode::OK, &body)
}

/// Handles a token request.
pub(super) async fn token(issuer: Issuer, mut request: Request) -> Response {
    let admitted = match issuer.identity().limits().admit() {
        Ok(admitted) => admitted,
        Err(limit) => return too_many(limit),
    };
    match redeem_grant(&issuer, &mut request).await {
        Ok(response) => {
            admitted.authenticated();
            response
        }
        Err(error) => error.response(),
    }
}

async fn redeem_grant(issuer: &Issuer, request: &mut Request) -> Result<Response, TokenError> {
    let params = Parameters::from_body(request).await?;
    params.refuse_repeated()?;
    let grant_type = params.required("grant_type", 64)?;
    let client_id = public_client(request, &params)?;
    if grant_type == token_exchange::GRANT_TYPE {
        return Ok(exchange_response(&token_exchange::exchange(issuer, &params).await?));
    }
    let client_id = client_id.ok_or(ParameterError::Missing("client_id"))?;
    let tokens = match grant_type {
        "authorization_code" => code::redeem(issuer, &params, client_id).await,
        "refresh_token" => refresh::redeem(issuer, &params, client_id).await,
        device::GRANT_TYPE => device::redeem(issuer, &params, client_id).await,
        _ => Err(TokenError::GrantType),
    };
    tokens.map(|tokens| tokens.response())
}

/// The response to an unauthenticated request that exceeds the rate limits.
pub(super) fn too_many(limit: RateLimited) -> Response {
    TokenError::TooMany(limit.retry_after).response()
}

/// The client of a request. All clients are public: they have no secret, and a client that sends
/// one is misconfigured (RFC 6749 section 2.3).
pub(super) fn public_client<'a>(
    request: &Request,
    params: &'a Parameters,
) -> Result<Option<&'a str>, TokenError> {
    let authenticates = request.headers().contains_key(header::AUTHORIZATION)
        || params.has("client_secret")
        || params.has("client_assertion");
    if authenticates {
        return Err(TokenError::Client("this client is public: send client_id and no secret"));
    }
    match params.optional("client_id", 64)? {
        Some(PLUGIN_CLIENT_ID) | None => Ok(params.optional("client_id", 64)?),
        Some(_) => Err(TokenError::Client("client_id names no client known here")),
    }
}

/// Issues tokens of a valid session; `parent` is the refresh token that they are issued for.
pub(super) async fn issue(
    issuer: &Issuer,
    tx: &mut Tx,
    session: &Session,
    nonce: Option<&str>,
    parent: Option<SecretHash>,
    now: i64,
) -> Result<IssuedTokens, TokenError> {
    let access_token = PlainSecret::generate(session::ACCESS_PREFIX)?;
    let lifetime = i64::from(issuer.settings().access_token_seconds) * 1000;
    let expires_at = (now + lifetime).min(session.expires_at);
    session::add_access_token(tx, access_token.hash(), session.id, expires_at, None).await?;
    let refresh_token = if session.has_scope("offline_access") {
        let token = PlainSecret::generate(refresh::PREFIX)?;
        refresh::insert(tx, token.hash(), session.id, parent, now).await?;
        Some(token)
    } else {
        None
    };
    record_field("user_id", session.user_id);
    record_field("session_id", session.id);
    Ok(IssuedTokens {
        access_token,
        expires_in: (expires_at - now) / 1000,
        refresh_token,
        // It is signed before the commit, so that a failure leaves no rows.
        id_token: id_token::issue(issuer, session, nonce, now)?,
        scope: session.scope.clone(),
    })
}
