//! The error type of the HTTP API (problem details, RFC 9457).
//!
//! Each module has an error type of its own; its `api` maps each case to a [`Code`]. The cause
//! of an internal error goes to the log line of the request, never into the response.

use poem::{IntoResponse, Response, error::ResponseError, http::StatusCode};
use poem_openapi::{
    ApiResponse,
    payload::Payload,
    registry::{MetaHeader, MetaMediaType, MetaResponse, MetaResponses, MetaSchemaRef, Registry},
    types::Type,
};
use tenant_shared::{Code, PROBLEM_CONTENT_TYPE, Problem, sanitize};

use crate::{
    base::{
        error_chain,
        request_context::{Field, record_field, request_id},
    },
    identity::SIGN_IN,
};

/// An error response: problem details (RFC 9457).
#[derive(Debug, thiserror::Error)]
#[error("{}: {detail}", code.as_str())]
pub struct ApiError {
    code: Code,
    detail: String,
    retry_after: Option<u64>,
}

impl ApiError {
    /// An error with a text for people: what failed and what to do.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let retry_after = match code {
            Code::ClusterUnavailable | Code::StorageUnavailable => Some(5),
            Code::WorkspaceNotReady => Some(2),
            _ => None,
        };
        Self { code, detail: detail.into(), retry_after }
    }

    /// Sets `Retry-After`, in seconds, at least 1.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds.max(1));
        self
    }

    /// An internal error: the cause goes to the log line, the client gets the request id.
    pub fn internal(cause: &(dyn std::error::Error + 'static)) -> Self {
        record_field(Field::Cause, error_chain(cause));
        Self::new(
            Code::Internal,
            "the broker failed; an operator finds the cause in its log by the request id",
        )
    }

    /// The database failed. The cause goes to the log line.
    pub fn storage(cause: &sqlx::Error) -> Self {
        record_field(Field::Cause, error_chain(cause));
        Self::new(
            Code::StorageUnavailable,
            "the broker cannot reach its database, so nothing was done; try again",
        )
    }

    /// The error code, for programs.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The text for people.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Seconds after which a retry may help (`Retry-After`).
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after
    }

    /// The body of the response.
    pub fn problem(&self) -> Problem {
        let mut problem = Problem::new(self.code, self.detail.clone());
        problem.request_id = request_id();
        problem
    }
}

impl From<sqlx::Error> for ApiError {
    fn from(error: sqlx::Error) -> Self {
        Self::storage(&error)
    }
}

impl ResponseError for ApiError {
    fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn as_response(&self) -> Response {
        record_field(Field::Code, self.code.as_str());
        let body = serde_json::to_vec(&self.problem()).unwrap_or_default();
        let mut response =
            Response::builder().status(self.status()).content_type(PROBLEM_CONTENT_TYPE);
        if let Some(seconds) = self.retry_after {
            response = response.header(poem::http::header::RETRY_AFTER, seconds);
        }
        // RFC 6750 section 3.
        let challenge = match self.code {
            Code::Unauthenticated => Some("Bearer realm=\"tenant-broker\""),
            Code::InsufficientScope => {
                Some("Bearer realm=\"tenant-broker\", error=\"insufficient_scope\"")
            }
            _ => None,
        };
        if let Some(challenge) = challenge {
            response = response.header(poem::http::header::WWW_AUTHENTICATE, challenge);
        }
        response.body(body)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.as_response()
    }
}

/// The error statuses of all operations, for the OpenAPI document.
const DOCUMENTED_STATUSES: [(u16, &str); 11] = [
    (400, "The request is invalid."),
    (401, "No valid session: sign in."),
    (403, "Signed in, but not allowed."),
    (404, "The resource does not exist, or the caller may not know of it."),
    (409, "The state of the resource does not allow this; `code` says why."),
    (413, "The body is too large."),
    (415, "The body is not JSON."),
    (429, "Rate limit exceeded; `Retry-After` says when to try again."),
    (500, "Internal error of the broker."),
    (502, "The cluster refused, or issued a token that would live too long."),
    (503, "The cluster or the database does not answer; `Retry-After` says when to try again."),
];

/// The headers of an error status, for the OpenAPI document.
fn documented_headers(status: u16) -> Vec<MetaHeader> {
    let (name, description, schema) = match status {
        401 => ("WWW-Authenticate", "Challenge (RFC 6750).", <String as Type>::schema_ref()),
        409 | 429 | 503 => {
            let description = "Seconds after which a retry may succeed.";
            ("Retry-After", description, <u64 as Type>::schema_ref())
        }
        _ => return Vec::new(),
    };
    let (name, description) = (name.to_owned(), Some(description.to_owned()));
    vec![MetaHeader { name, description, required: false, deprecated: false, schema }]
}

impl ApiResponse for ApiError {
    fn meta() -> MetaResponses {
        MetaResponses {
            responses: DOCUMENTED_STATUSES
                .into_iter()
                .map(|(status, description)| MetaResponse {
                    description,
                    status: Some(status),
                    status_range: None,
                    content: vec![MetaMediaType {
                        content_type: PROBLEM_CONTENT_TYPE,
                        schema: ProblemBody::schema_ref(),
                    }],
                    headers: documented_headers(status),
                })
                .collect(),
        }
    }

    fn register(registry: &mut Registry) {
        Problem::register(registry);
    }
}

impl ApiError {
    /// Converts an error of an extractor or of the router.
    pub fn from_poem(error: poem::Error) -> Self {
        let status = error.status();
        match error.downcast::<Self>() {
            Ok(failure) => failure,
            Err(error) => Self::from_status(status, &error.to_string()),
        }
    }

    /// The error for a status that an extractor or the router chose.
    pub fn from_status(status: StatusCode, text: &str) -> Self {
        let (code, detail) = match status.as_u16() {
            401 => (Code::Unauthenticated, SIGN_IN.to_owned()),
            403 => (Code::Forbidden, "this account may not do that".to_owned()),
            404 => (Code::NotFound, "no such path; see the OpenAPI document".into()),
            405 => (Code::MethodNotAllowed, "this path does not support this method".to_owned()),
            411 => (Code::LengthRequired, "send Content-Length with the body".to_owned()),
            413 => (Code::PayloadTooLarge, "the body is larger than this operation allows".into()),
            415 => {
                (Code::UnsupportedMediaType, "send JSON with Content-Type: application/json".into())
            }
            400..=499 => (Code::InvalidRequest, single_line(text)),
            _ => {
                record_field(Field::Cause, text);
                (Code::Internal, "the broker failed; give the request id to an operator".into())
            }
        };
        Self::new(code, detail)
    }
}

/// Sanitizes a text of a parser that may quote the request: one line, 300 characters at most.
fn single_line(text: &str) -> String {
    sanitize(&text.chars().take(300).collect::<String>())
}

/// [`Problem`] with its media type, for the OpenAPI document.
struct ProblemBody;

impl Payload for ProblemBody {
    const CONTENT_TYPE: &'static str = PROBLEM_CONTENT_TYPE;

    fn schema_ref() -> MetaSchemaRef {
        Problem::schema_ref()
    }
}
