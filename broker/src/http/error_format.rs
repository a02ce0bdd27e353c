//! The format of error responses: problem details, except for model services, whose clients expect
//! another one.

use poem::{IntoResponse as _, Response, http::StatusCode, http::header};
use tenant_shared::{MODEL_SERVICES_PATH, ModelServicesFailure};

use super::ApiError;
use crate::base::request_context::{Field, record_field};

/// The first segment of [`MODEL_SERVICES_PATH`].
const MODEL_SERVICES_ROOT: &str = "/gen-ai";
/// Message of every error of the broker, its database or the cluster.
const INTERNAL: &str = "the request could not be completed; an operator finds the cause by the \
                        request id";

/// Whether a path belongs to model services.
pub fn is_model_services(path: &str) -> bool {
    debug_assert!(MODEL_SERVICES_PATH.starts_with(MODEL_SERVICES_ROOT));
    path.strip_prefix(MODEL_SERVICES_ROOT)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A format of error responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorFormat {
    /// Problem details (RFC 9457).
    ProblemDetails,
    /// [`ModelServicesFailure`]. Every error of the broker, its database or the cluster is 500.
    ModelServices,
}

impl ErrorFormat {
    /// The format for responses to requests with this path.
    pub fn of_path(path: &str) -> Self {
        if is_model_services(path) { Self::ModelServices } else { Self::ProblemDetails }
    }

    /// The response of an error in this format.
    pub fn response(self, error: ApiError) -> Response {
        match self {
            Self::ProblemDetails => error.into_response(),
            Self::ModelServices => {
                let code = error.code();
                record_field(Field::Code, code.as_str());
                let status = StatusCode::from_u16(code.status());
                let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                failure_response(status, error.detail(), error.retry_after_seconds())
            }
        }
    }
}

/// The response of a failure of model services. A status of 500 or more becomes 500 with a text of
/// its own.
pub fn failure_response(status: StatusCode, message: &str, retry_after: Option<u64>) -> Response {
    let (status, message) = match status {
        status if status.is_server_error() => (StatusCode::INTERNAL_SERVER_ERROR, INTERNAL),
        status => (status, message),
    };
    let failure = ModelServicesFailure::new(status.as_u16(), message);
    let body = serde_json::to_vec(&failure).unwrap_or_default();
    let content_type = "application/json; charset=utf-8";
    let mut response = Response::builder().status(status).content_type(content_type);
    if let Some(seconds) = retry_after {
        response = response.header(header::RETRY_AFTER, seconds.max(1));
    }
    if status == StatusCode::UNAUTHORIZED {
        // RFC 6750 section 3.
        response = response.header(header::WWW_AUTHENTICATE, "Bearer");
    }
    response.body(body)
}

#[cfg(test)]
mod tests {
    use tenant_shared::Code;

    use super::*;

    #[tokio::test]
    async fn errors_of_model_services_have_their_own_format_and_hide_causes() {
        for (path, expected) in [
            ("/gen-ai/api/v1/user", ErrorFormat::ModelServices),
            ("/gen-ai", ErrorFormat::ModelServices),
            ("/gen-aix", ErrorFormat::ProblemDetails),
            ("/api/v1/me", ErrorFormat::ProblemDetails),
        ] {
            assert_eq!(ErrorFormat::of_path(path), expected, "{path}");
        }
        let error = ApiError::new(Code::ClusterUnavailable, "10.0.0.1 does not answer");
        let response = ErrorFormat::ModelServices.response(error);
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(response.header("retry-after"), Some("5"));
        let body = response.into_body().into_string().await.unwrap();
        let failure: ModelServicesFailure = serde_json::from_str(&body).unwrap();
        assert_eq!((&*failure.error.code, &*failure.error.message), ("500", INTERNAL));
        let error = ApiError::new(Code::Unauthenticated, "sign in");
        let response = ErrorFormat::ModelServices.response(error);
        assert_eq!(response.header("www-authenticate"), Some("Bearer"));
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    }
}
