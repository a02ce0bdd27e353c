//! Failures as responses.

use poem::{Response, error::ResponseError, http::StatusCode};
use poem_openapi::{
    ApiResponse,
    payload::{Json, Payload as _},
    registry::{MetaMediaType, MetaResponse, MetaResponses, Registry},
    types::Type as _,
};
use tenant_shared::ModelServicesFailure;

use crate::{http::failure_response, model_services::Failure};

impl ResponseError for Failure {
    fn status(&self) -> StatusCode {
        Failure::status(self)
    }

    fn as_response(&self) -> Response {
        failure_response(Failure::status(self), self.message(), self.retry_after_seconds())
    }
}

/// The error statuses of all operations, for the OpenAPI document.
const DOCUMENTED_STATUSES: [(u16, &str); 7] = [
    (400, "A parameter or the body is not valid."),
    (401, "The token is missing or invalid, or the session has ended."),
    (403, "The caller lacks a right."),
    (404, "Something that the request names does not exist."),
    (409, "The state of the namespace does not allow this."),
    (429, "A limit is exceeded; `Retry-After` says when to try again."),
    (500, "The cluster or the broker failed; an operator finds the cause by `X-Request-Id`."),
];

impl ApiResponse for Failure {
    fn meta() -> MetaResponses {
        let meta = |(status, description)| MetaResponse {
            description,
            status: Some(status),
            status_range: None,
            content: vec![MetaMediaType {
                content_type: Json::<ModelServicesFailure>::CONTENT_TYPE,
                schema: Json::<ModelServicesFailure>::schema_ref(),
            }],
            headers: Vec::new(),
        };
        MetaResponses { responses: DOCUMENTED_STATUSES.into_iter().map(meta).collect() }
    }

    fn register(registry: &mut Registry) {
        ModelServicesFailure::register(registry);
    }
}
