//! Tokens that other issuers sign: where their keys come from, and what a token must be to be
//! believed. Upstream providers ([`super::connector`]) and workloads ([`super::exchange`]) share it.
//!
//! Everything that comes from there is bounded in time and size, and only algorithms with a public
//! key count, so that nobody can sign with what is published.

mod discovery;
mod http;
mod keys;
pub(super) mod path;
mod token;

pub(super) use discovery::Discovery;
pub use http::HttpError;
pub(super) use http::{Http, Outage, is_loopback};
pub(super) use keys::Keys;
pub(super) use token::{Claims, Kind, SKEW, unverified_issuer};

/// A token or an answer that is worth nothing, or that cannot be judged now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Distrust {
    /// It is wrong, whenever it is looked at.
    #[error("{0}")]
    Refused(&'static str),
    /// The other side does not answer, or answers with what cannot be read.
    #[error("{0}")]
    Outage(String),
}
