//! JWTs of other issuers: their discovery documents and keys, and the verification of their tokens.
//! Upstream providers ([`super::connector`]) and workloads ([`super::token_exchange`]) share this
//! module.
//!
//! Every response of another issuer is bounded in time and size. Only public-key algorithms are
//! accepted, so that nobody can sign with a published key.

pub(super) mod claim_path;
mod discovery;
mod http;
mod jwks;
mod token;

pub(super) use discovery::Discovery;
pub use http::HttpClientError;
pub(super) use http::{FetchError, HttpClient, is_loopback};
pub(super) use jwks::JwksCache;
pub(super) use token::{CLOCK_SKEW_SECONDS, Claims, TokenKind, unverified_issuer};

/// A token was refused, or its issuer cannot be reached to verify it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum VerificationError {
    /// The token is invalid; the text says why.
    #[error("{0}")]
    Invalid(&'static str),
    /// The issuer does not respond, or its response cannot be decoded.
    #[error("{0}")]
    Unavailable(String),
}
