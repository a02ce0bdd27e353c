//! The API error of each error of the modules that have no HTTP API of their own.

use tenant_shared::Code;

use super::ApiError;
use crate::{
    access::AccessError,
    base::{
        error_chain,
        rate_limit::RateLimited,
        request_context::{Field, record_field},
    },
    cluster::ClusterError,
    identity::{AuthenticationError, SIGN_IN},
};

impl From<AccessError> for ApiError {
    fn from(error: AccessError) -> Self {
        let code = match error {
            AccessError::WorkspaceNotFound | AccessError::NameNotFound => Code::NotFound,
            AccessError::NotOwner | AccessError::NotAdministrator => Code::Forbidden,
        };
        Self::new(code, error.to_string())
    }
}

impl From<AuthenticationError> for ApiError {
    fn from(error: AuthenticationError) -> Self {
        match error {
            AuthenticationError::Unauthenticated => Self::new(Code::Unauthenticated, SIGN_IN),
            AuthenticationError::ForeignOrigin(text) => Self::new(Code::ForeignOrigin, text),
            AuthenticationError::GatewayScope => {
                Self::new(Code::InsufficientScope, error.to_string())
            }
            AuthenticationError::Machine => Self::new(Code::Forbidden, error.to_string()),
            AuthenticationError::TooMany(limit) => limit.into(),
            AuthenticationError::Storage(error) => Self::storage(&error),
        }
    }
}

/// A rate limit on unauthenticated requests.
impl From<RateLimited> for ApiError {
    fn from(limit: RateLimited) -> Self {
        let text = "too many requests without a valid session come from this address, or from \
                    everywhere; try again after the time in Retry-After";
        Self::new(Code::RateLimited, text).retry_after(limit.retry_after)
    }
}

/// A failure of the cluster. The cluster's own message goes to the log only, because it names roles
/// and rights that the caller may not know of.
impl From<ClusterError> for ApiError {
    fn from(error: ClusterError) -> Self {
        record_field(Field::Cause, error_chain(&error));
        match error {
            ClusterError::Unavailable(_) => Self::new(
                Code::ClusterUnavailable,
                "the cluster does not answer; try again, or wait: the broker will finish what it \
                 began",
            ),
            ClusterError::QuotaNotEnforced { .. } => Self::new(
                Code::ClusterUnavailable,
                "the cluster does not enforce the quota of the namespace yet; try again, or wait: \
                 the broker will finish what it began",
            ),
            ClusterError::Token(_) => Self::new(
                Code::TokenLifetimeRefused,
                "the cluster issued a token that is malformed or valid for more than two hours, so \
                 the token was dropped; tell an operator",
            ),
            ClusterError::Refused(_)
            | ClusterError::NotFound(_)
            | ClusterError::Conflict(_)
            | ClusterError::NotConfigured(_) => Self::new(
                Code::ClusterRefused,
                "the cluster refused the request; an operator finds the cause in the broker's log \
                 by the request id",
            ),
        }
    }
}
