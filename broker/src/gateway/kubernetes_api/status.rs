//! Errors of the gateway as Kubernetes `Status` objects (API reference, meta/v1).

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use serde_json::json;
use tenant_shared::{Code, GATEWAY_PATH};

use super::path::Target;
use crate::{
    base::request_context::{Field, RequestInfo, record_field},
    http::{ApiError, Body, body},
};

/// The HTTP status and reason that client-go builds its errors from.
fn status_reason(code: Code) -> (StatusCode, &'static str) {
    match code {
        // Not 409 as in the API, because kubectl would report a conflict and tools would retry.
        Code::WorkspaceSuspended => (StatusCode::FORBIDDEN, "Forbidden"),
        // Clients that honour Retry-After retry by themselves.
        Code::WorkspaceNotReady => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
        code => {
            let status =
                StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let reason = match status.as_u16() {
                400 => "BadRequest",
                401 => "Unauthorized",
                403 => "Forbidden",
                404 => "NotFound",
                405 => "MethodNotAllowed",
                409 => "Conflict",
                413 => "RequestEntityTooLarge",
                429 => "TooManyRequests",
                503 => "ServiceUnavailable",
                504 => "Timeout",
                _ => "InternalError",
            };
            (status, reason)
        }
    }
}

/// The response to a refused request. The code of the error is in the access log.
pub(in crate::gateway) fn refusal(error: &ApiError, request: &RequestInfo) -> Response<Body> {
    record_field(Field::Code, error.code().as_str());
    status_response(error, &request.id, is_discovery(request)).map(body::full)
}

/// Whether it is a discovery request, which reads API groups and versions but no resource.
fn is_discovery(request: &RequestInfo) -> bool {
    let path = request.path.strip_prefix(GATEWAY_PATH).unwrap_or_default();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    request.method == Method::GET
        && match segments[..] {
            ["version" | "openapi" | "api" | "apis", ..] => {
                segments.len() <= if segments[0] == "api" { 2 } else { 3 }
            }
            _ => false,
        }
}

/// The response for an error, with its message, [`Code`] and request id. For discovery requests it
/// is plain text, because client-go shows the text as the error when it lists API groups, and would
/// show "unknown" for a `Status`.
fn status_response(failure: &ApiError, request_id: &str, as_text: bool) -> Response<Bytes> {
    let problem = failure.problem();
    let (status, reason) = status_reason(failure.code());
    let retry_after = failure.retry_after_seconds();
    let mut details = json!({
        "causes": [
            {"reason": failure.code().as_str(), "message": problem.detail},
            {"reason": "RequestID", "message": request_id},
        ],
    });
    if let Some(seconds) = retry_after {
        details["retryAfterSeconds"] = seconds.into();
    }
    // Scripts, and the tests of kubectl, look for this word.
    let prefix = if status == StatusCode::UNAUTHORIZED { "Unauthorized: " } else { "" };
    let message = format!("tenant-broker: {prefix}{} (request {request_id})", problem.detail);
    let body = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": status.as_u16(),
    });
    let mut response = if as_text {
        with_type("text/plain; charset=utf-8", status, message)
    } else {
        json(status, body.to_string())
    };
    let headers = response.headers_mut();
    if let Some(seconds) = retry_after {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(
            header::WWW_AUTHENTICATE,
            HeaderValue::from_static("Bearer realm=\"tenant-broker\""),
        );
    }
    response
}

/// The response to a read of an object that does not exist, with the message of the API server.
pub(in crate::gateway) fn object_not_found(target: &Target<'_>) -> Response<Bytes> {
    let (resource, name) = (target.resource.unwrap_or_default(), target.name.unwrap_or_default());
    let body = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": format!("{resource} \"{name}\" not found"),
        "reason": "NotFound",
        "details": {"name": name, "kind": resource},
        "code": 404,
    });
    json(StatusCode::NOT_FOUND, body.to_string())
}

/// A response of the gateway itself, with this JSON.
pub(in crate::gateway) fn json(status: StatusCode, body: String) -> Response<Bytes> {
    with_type("application/json", status, body)
}

fn with_type(media_type: &'static str, status: StatusCode, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_a_status_with_its_code_and_request_id() {
        let failure = ApiError::new(Code::WorkspaceSuspended, "the workspace is suspended");
        let response = status_response(&failure, "r-1", false);
        assert_eq!(response.status(), 403);
        let status: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        insta::assert_json_snapshot!(status, @r#"
        {
          "apiVersion": "v1",
          "code": 403,
          "details": {
            "causes": [
              {
                "message": "the workspace is suspended",
                "reason": "workspace_suspended"
              },
              {
                "message": "r-1",
                "reason": "RequestID"
              }
            ]
          },
          "kind": "Status",
          "message": "tenant-broker: the workspace is suspended (request r-1)",
          "metadata": {},
          "reason": "Forbidden",
          "status": "Failure"
        }
        "#);
    }

    #[test]
    fn retry_after_and_www_authenticate_headers_are_set() {
        let failure = ApiError::new(Code::RateLimited, "too many").retry_after(3);
        let response = status_response(&failure, "r-1", false);
        assert_eq!(
            (response.status().as_u16(), &response.headers()["retry-after"]),
            (429, &"3".parse().unwrap())
        );
        let failure = ApiError::new(Code::Unauthenticated, "sign in");
        let refusal = status_response(&failure, "r-1", false);
        assert!(refusal.headers().contains_key("www-authenticate"));
        let status: serde_json::Value = serde_json::from_slice(refusal.body()).unwrap();
        assert_eq!(status["message"], "tenant-broker: Unauthorized: sign in (request r-1)");
    }
}
