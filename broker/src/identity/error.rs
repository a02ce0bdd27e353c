//! Errors of authentication.

use crate::base::rate_limit::RateLimited;

/// Text of the error for unauthenticated requests.
pub const SIGN_IN: &str = "sign in first: run `kubectl tenant login`, or send a valid bearer token";

/// A request is not authenticated, or its session is not valid for the operation.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticationError {
    /// The request has no credential, or one that is unknown or expired, or whose session or user
    /// has come to an end.
    #[error("{SIGN_IN}")]
    Unauthenticated,
    /// A page of a foreign origin caused the request; the text says how the broker knows.
    #[error("{0}")]
    ForeignOrigin(&'static str),
    /// The token is valid for the gateway and nothing else.
    #[error(
        "this token is valid for the gateway (/clusters/…) only, so the broker's API does not \
         accept it; use `kubectl tenant`, or `kubectl proxy --append-server-path`"
    )]
    GatewayScope,
    /// The session is a machine's, which is restricted to one workspace.
    #[error("this session is a machine's: it may use its workspace and nothing else")]
    Machine,
    /// The rate limits on unauthenticated requests refused the lookup of the credential.
    #[error("too many requests without a valid session")]
    TooMany(RateLimited),
    /// The database failed.
    #[error("the database failed")]
    Storage(#[from] sqlx::Error),
}
