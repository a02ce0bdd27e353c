//! The one failure of the HTTP API, and the facts of the request that it is written with.
//!
//! A domain has an error type of its own; its `api.rs` says which [`Code`] each case is. What a
//! person may not see (the cause) goes to the one log line of the request, never into the answer.

use std::{cell::RefCell, net::IpAddr};

use poem::{
    IntoResponse, Response,
    error::{CorsError, ResponseError},
    http::StatusCode,
};
use poem_openapi::{
    ApiResponse,
    payload::Payload,
    registry::{MetaMediaType, MetaResponse, MetaResponses, MetaSchemaRef, Registry},
    types::Type,
};
use tenant_shared::{Code, PROBLEM_CONTENT_TYPE, Problem};

tokio::task_local! {
    /// The request that this task answers; set by [`crate::http`].
    pub static REQUEST: RequestFacts;
}

/// What is known of a request before anyone reads it, and what the answer adds for the log line.
#[derive(Debug)]
pub struct RequestFacts {
    /// Identifier of the request, in the answer's `X-Request-Id`.
    pub id: String,
    /// Address that the request came from; behind trusted proxies what they say.
    pub address: Option<IpAddr>,
    /// The program that it says it came from.
    pub user_agent: Option<String>,
    /// What the log line adds: caller, cause of a failure.
    pub notes: RefCell<Vec<(&'static str, String)>>,
}

/// Adds a field to the log line of the request under way; outside of one it is dropped.
pub fn note(field: &'static str, value: impl Into<String>) {
    let _ = REQUEST.try_with(|facts| {
        if let Ok(mut notes) = facts.notes.try_borrow_mut() {
            notes.push((field, value.into()));
        }
    });
}

/// Work of the request under way that goes on without it: what it audits has the request's id and
/// address.
pub fn detached<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let facts = REQUEST.try_with(|facts| RequestFacts {
        id: facts.id.clone(),
        address: facts.address,
        user_agent: facts.user_agent.clone(),
        notes: RefCell::default(),
    });
    async move {
        match facts {
            Ok(facts) => REQUEST.scope(facts, work).await,
            Err(_) => work.await,
        }
    }
}

/// Identifier of the request under way.
pub fn request_id() -> Option<String> {
    REQUEST.try_with(|facts| facts.id.clone()).ok()
}

/// Address that the request under way came from.
pub fn request_address() -> Option<IpAddr> {
    REQUEST.try_with(|facts| facts.address).ok().flatten()
}

/// `User-Agent` of the request under way: printable, 200 characters at most.
pub fn request_user_agent() -> Option<String> {
    REQUEST.try_with(|facts| facts.user_agent.clone()).ok().flatten()
}

/// A request that failed. Becomes problem details (RFC 9457).
#[derive(Debug, thiserror::Error)]
#[error("{}: {detail}", code.as_str())]
pub struct Failure {
    code: Code,
    detail: String,
    retry_after: Option<u64>,
}

impl Failure {
    /// A failure with a text for the person: what failed and what to do.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let retry_after = match code {
            Code::ClusterUnavailable | Code::StorageUnavailable => Some(5),
            Code::WorkspaceNotReady => Some(2),
            _ => None,
        };
        Self { code, detail: detail.into(), retry_after }
    }

    /// The same with `Retry-After`, in seconds, at least 1.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds.max(1));
        self
    }

    /// A failure of ours: the cause goes to the log line, the person gets the request id.
    pub fn internal(cause: &(dyn std::error::Error + 'static)) -> Self {
        note("cause", chain(cause));
        Self::new(
            Code::Internal,
            "the broker failed; an operator finds the cause in its log by the request id",
        )
    }

    /// The database failed: nothing may leave until it answers again.
    pub fn storage(cause: &sqlx::Error) -> Self {
        note("cause", chain(cause));
        Self::new(
            Code::StorageUnavailable,
            "the broker cannot reach its database, so nothing was done; try again",
        )
    }

    /// Why it failed, for programs.
    pub fn code(&self) -> Code {
        self.code
    }

    /// When to come back, in seconds, if that may help.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after
    }

    /// Why it failed, for the person.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The failure as it is written on the wire.
    pub fn problem(&self) -> Problem {
        let mut problem = Problem::new(self.code, self.detail.clone());
        problem.request_id = request_id();
        problem
    }
}

/// An error and what caused it, on one line.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::storage(&error)
    }
}

impl ResponseError for Failure {
    fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn as_response(&self) -> Response {
        note("code", self.code.as_str());
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

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        self.as_response()
    }
}

/// The statuses that any operation may fail with, for the OpenAPI document.
const DOCUMENTED: [(u16, &str); 11] = [
    (400, "The request cannot be understood."),
    (401, "No valid session: sign in."),
    (403, "Signed in, but not allowed."),
    (404, "No such thing, or none that this person may know of."),
    (409, "The state of the workspace does not allow this."),
    (413, "The body is too large."),
    (415, "The body is not JSON."),
    (429, "Too often: `Retry-After` says when to come back."),
    (500, "A fault of the broker."),
    (502, "The cluster refused, or issued a token that would live too long."),
    (503, "The cluster or the database does not answer: `Retry-After` says when to come back."),
];

impl ApiResponse for Failure {
    fn meta() -> MetaResponses {
        MetaResponses {
            responses: DOCUMENTED
                .into_iter()
                .map(|(status, description)| MetaResponse {
                    description,
                    status: Some(status),
                    status_range: None,
                    content: vec![MetaMediaType {
                        content_type: PROBLEM_CONTENT_TYPE,
                        schema: ProblemBody::schema_ref(),
                    }],
                    headers: vec![],
                })
                .collect(),
        }
    }

    fn register(registry: &mut Registry) {
        Problem::register(registry);
    }
}

impl Failure {
    /// What an extractor or the router refused.
    pub fn from_poem(error: poem::Error) -> Self {
        if error.is::<CorsError>() {
            let text = "a page of an origin that is not listed in `frontends.origins` asked, or for \
                        something that no frontend may ask";
            return Self::new(Code::ForeignOrigin, text);
        }
        let status = error.status();
        match error.downcast::<Self>() {
            Ok(failure) => failure,
            Err(error) => Self::of_status(status, &error.to_string()),
        }
    }

    /// The failure that goes with a status that is not ours.
    pub fn of_status(status: StatusCode, text: &str) -> Self {
        let (code, detail) = match status.as_u16() {
            401 => (Code::Unauthenticated, SIGN_IN.to_owned()),
            403 => (Code::Forbidden, "this account may not do that".to_owned()),
            404 => (Code::NotFound, "there is nothing at this path; see the API's document".into()),
            405 => (Code::MethodNotAllowed, "this path does not take this method".to_owned()),
            411 => (Code::LengthRequired, "send Content-Length with the body".to_owned()),
            413 => (Code::PayloadTooLarge, "the body is larger than this operation takes".into()),
            415 => {
                (Code::UnsupportedMediaType, "send JSON with Content-Type: application/json".into())
            }
            400..=499 => (Code::InvalidRequest, bounded(text)),
            _ => {
                note("cause", text);
                (Code::Internal, "the broker failed; give the request id to an operator".into())
            }
        };
        Self::new(code, detail)
    }
}

/// What a stranger is told.
pub const SIGN_IN: &str = "sign in first: run `kubectl tenant login`, or send a valid bearer token";

/// Text that comes from a parser and may quote the request: one line, 300 characters at most.
fn bounded(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect()
}

/// [`Problem`] with its media type, for the OpenAPI document.
struct ProblemBody;

impl Payload for ProblemBody {
    const CONTENT_TYPE: &'static str = PROBLEM_CONTENT_TYPE;

    fn schema_ref() -> MetaSchemaRef {
        Problem::schema_ref()
    }
}
