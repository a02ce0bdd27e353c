//! Failures of model services: the HTTP status and a text for people. A cause that the caller must
//! not see goes to the log line of the request.

use std::error::Error;

use http::StatusCode;
use tenant_shared::{Code, sanitize};

use crate::{
    base::{
        error_chain,
        request_context::{Field, record_field},
    },
    http::ApiError,
};

/// Maximum characters of a text of the API server in a message.
const MAX_QUOTED_CHARS: usize = 300;
/// Message of every 401.
const UNAUTHENTICATED: &str = "Missing or invalid authentication token";

/// A request that failed.
#[derive(Debug, thiserror::Error)]
#[error("{status}: {}", cause.as_ref().unwrap_or(message))]
pub struct Failure {
    status: StatusCode,
    message: String,
    /// The cause, for log lines. A client that leaves early has no line of its own for it.
    cause: Option<String>,
    retry_after: Option<u64>,
}

impl Failure {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), cause: None, retry_after: None }
    }

    /// A parameter or the body of the request is not valid.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// The caller is not known.
    pub(super) fn unauthenticated() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, UNAUTHENTICATED)
    }

    /// The caller lacks a right.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    /// The caller lacks the right that every operation in a namespace needs. The text is the same
    /// for a namespace that does not exist.
    pub(super) fn forbidden_in(namespace: &str) -> Self {
        Self::forbidden(permission_text(namespace))
    }

    /// The caller may use the namespace, but lacks the right to do this there.
    pub(super) fn forbidden_to(what: &str, namespace: &str) -> Self {
        Self::forbidden(format!("{}: {what}", permission_text(namespace)))
    }

    /// Something that the request names does not exist.
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// The state of the namespace does not allow the operation.
    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// A limit is exceeded.
    pub(super) fn too_many(message: impl Into<String>, retry_after: u64) -> Self {
        let retry_after = Some(retry_after.max(1));
        Self { retry_after, ..Self::new(StatusCode::TOO_MANY_REQUESTS, message) }
    }

    /// The API server or the broker failed. The cause goes to the log line.
    pub(super) fn internal(cause: impl Into<String>) -> Self {
        let cause = cause.into();
        record_field(Field::Cause, cause.as_str());
        Self { cause: Some(cause), ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, "") }
    }

    /// Like [`Self::internal`], for an error.
    pub(super) fn internal_error(cause: &(dyn Error + 'static)) -> Self {
        Self::internal(error_chain(cause))
    }

    /// The broker stops, and the request has changed nothing. The text goes to the log line and to the
    /// audit trail.
    pub(super) fn stopping() -> Self {
        let text = "the broker stops; send the request again";
        Self { message: text.to_owned(), ..Self::internal(text).retry_after(Some(1)) }
    }

    /// Sets `Retry-After`, in seconds.
    #[must_use]
    pub(super) fn retry_after(self, seconds: Option<u64>) -> Self {
        Self { retry_after: seconds.or(self.retry_after), ..self }
    }

    /// The HTTP status.
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// The text for people; empty if the caller must not see the cause.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// The value of `Retry-After`.
    pub(super) fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after
    }
}

fn permission_text(namespace: &str) -> String {
    format!("You don't have permission to access resources in namespace {namespace}")
}

/// A text of the API server as part of a message: one line without control characters, shortened.
pub(super) fn quoted(text: &str) -> String {
    sanitize(&text.chars().take(MAX_QUOTED_CHARS).collect::<String>())
}

/// Errors of authentication, of workspaces and of calls with a workspace's token.
impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        let retry_after = error.retry_after_seconds();
        match error.code() {
            Code::Unauthenticated => Self::unauthenticated(),
            Code::RateLimited => Self::too_many(error.detail(), retry_after.unwrap_or(1)),
            Code::Forbidden
            | Code::InsufficientScope
            | Code::ForeignOrigin
            | Code::WorkspaceSuspended
            | Code::OwnerSuspended
            | Code::TenantNotActive => Self::forbidden(error.detail()),
            Code::InvalidRequest => Self::bad_request(error.detail()),
            code => Self::internal(format!("{}: {}", code.as_str(), error.detail()))
                .retry_after(retry_after),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_workspaces_keep_their_meaning() {
        for (code, status) in [
            (Code::Unauthenticated, 401),
            (Code::InsufficientScope, 403),
            (Code::WorkspaceSuspended, 403),
            (Code::RateLimited, 429),
            (Code::WorkspaceNotReady, 500),
            (Code::StorageUnavailable, 500),
        ] {
            let failure = Failure::from(ApiError::new(code, "text"));
            assert_eq!(failure.status().as_u16(), status, "{code:?}");
            assert_eq!(failure.message().is_empty(), status == 500, "{code:?}");
        }
        let failure = Failure::from(ApiError::new(Code::StorageUnavailable, "text"));
        assert_eq!(failure.retry_after_seconds(), Some(5));
    }

    #[test]
    fn a_quoted_text_is_one_short_line() {
        let text = quoted(&format!("a\nb\u{1b}[2J{}", "x".repeat(1000)));
        assert!(text.chars().count() <= 320 && !text.contains(['\n', '\u{1b}']), "{text}");
    }
}
