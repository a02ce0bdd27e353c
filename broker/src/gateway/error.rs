//! The errors of the gateway as API errors.

use tenant_shared::Code;

use super::{
    in_flight::{CloseReason, INCOMPLETE, UploadError},
    kubernetes_api::path::PathError,
    request::headers::HeaderError,
};
use crate::{
    base::{
        error_chain,
        request_context::{Field, record_field},
    },
    cluster::UpstreamError,
    http::ApiError,
    identity::SIGN_IN,
};

impl From<PathError> for ApiError {
    fn from(error: PathError) -> Self {
        Self::new(Code::InvalidRequest, error.to_string())
    }
}

impl From<HeaderError> for ApiError {
    fn from(error: HeaderError) -> Self {
        let code = match error {
            HeaderError::Impersonation => Code::Forbidden,
            HeaderError::TwoAuthorizations => Code::InvalidRequest,
        };
        Self::new(code, error.to_string())
    }
}

impl From<UpstreamError> for ApiError {
    fn from(error: UpstreamError) -> Self {
        record_field(Field::Cause, error_chain(&error));
        match error {
            UpstreamError::Connection(error) if let Some(error) = UploadError::find_in(&*error) => {
                Self::new(Code::InvalidRequest, error.to_string())
            }
            UpstreamError::Path(_) => {
                Self::new(Code::InvalidRequest, "the path cannot be forwarded")
            }
            UpstreamError::Connect(_) | UpstreamError::Connection(_) => Self::new(
                Code::ClusterUnavailable,
                "the cluster's API server does not answer; try again",
            ),
        }
    }
}

/// Values of the label `cause` of upstream errors in metrics.
pub const UPSTREAM_ERROR_CAUSES: [&str; 3] = ["connect", "connection", INCOMPLETE];

/// The cause of an error as in [`UPSTREAM_ERROR_CAUSES`]; `None` if the client caused it.
pub(super) fn upstream_error_cause(error: &UpstreamError) -> Option<&'static str> {
    let [connect, connection, _] = UPSTREAM_ERROR_CAUSES;
    match error {
        UpstreamError::Path(_) => None,
        UpstreamError::Connect(_) => Some(connect),
        UpstreamError::Connection(error) => {
            UploadError::find_in(&**error).is_none().then_some(connection)
        }
    }
}

/// The error for a client whose request was closed from outside.
pub(super) fn cancelled_request(reason: CloseReason) -> ApiError {
    match reason {
        CloseReason::Suspended => ApiError::new(
            Code::WorkspaceSuspended,
            "the workspace is suspended; ask an administrator",
        ),
        CloseReason::SessionEnded => ApiError::new(Code::Unauthenticated, SIGN_IN),
        CloseReason::Revoked => token_replaced(),
        CloseReason::TenantsChanged | CloseReason::RoleLost => {
            let text = "your tenants or your rights in them just changed; send the request again";
            ApiError::new(Code::WorkspaceNotReady, text).retry_after(1)
        }
        CloseReason::NamespaceMoved => {
            let text = "the namespace went to another tenant";
            ApiError::new(Code::Forbidden, text)
        }
        CloseReason::TenantsOutOfDate => ApiError::new(
            Code::ClusterUnavailable,
            "the broker cannot watch Tenants or namespaces; try again later",
        ),
        CloseReason::Stopping | CloseReason::DatabaseUnavailable => ApiError::new(
            Code::StorageUnavailable,
            "the broker cannot continue this request; send it again",
        ),
    }
}

/// The error for a client whose upstream token became invalid during the request.
pub(super) fn token_replaced() -> ApiError {
    let text = "the token of the workspace was just replaced; send the request again";
    ApiError::new(Code::WorkspaceNotReady, text).retry_after(1)
}

/// The error if a response of the API server ended before it was complete.
pub(super) fn incomplete_response() -> ApiError {
    let text = "the API server's response is incomplete";
    ApiError::new(Code::ClusterUnavailable, text).retry_after(1)
}
