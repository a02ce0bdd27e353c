//! Errors of the token endpoint and of the endpoints that respond like it (RFC 6749 section 5.2).

use poem::{
    Response,
    http::{HeaderValue, StatusCode, header},
};
use serde_json::json;

use crate::{
    base::{
        error_chain,
        rate_limit::RateLimited,
        request_context::{Field, record_field},
        secret::NoRandomness,
    },
    issuer::{pages, parameters::ParameterError},
};

/// The token request is refused (RFC 6749 section 5.2).
#[derive(Debug, thiserror::Error)]
pub(in crate::issuer) enum TokenError {
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
    /// The access token of an exchange cannot be looked up now.
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
    pub(in crate::issuer) fn response(&self) -> Response {
        record_field(Field::Code, self.code());
        match self {
            Self::Storage(error) => record_field(Field::Cause, error_chain(error)),
            Self::Randomness(error) => record_field(Field::Cause, error.to_string()),
            Self::Signature(error) => record_field(Field::Cause, error.to_string()),
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

/// The response to an unauthenticated request that exceeds the rate limits.
pub(in crate::issuer) fn too_many(limit: RateLimited) -> Response {
    TokenError::TooMany(limit.retry_after).response()
}

/// A JSON response that must not be cached (RFC 6749 section 5.1).
pub(in crate::issuer) fn no_store_json(status: StatusCode, body: &serde_json::Value) -> Response {
    Response::builder()
        .status(status)
        .content_type("application/json")
        .header(header::CACHE_CONTROL, "no-store")
        .header(header::PRAGMA, "no-cache")
        .body(body.to_string())
}
