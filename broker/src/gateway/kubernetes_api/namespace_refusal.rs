//! Refusals of requests for namespaces, as the API server words them, because client-go and tools
//! decide on the reason of a `Status` (API reference, meta/v1).

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::status;

/// Reason for the refusal of a request for a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum RefusalReason {
    /// There is no such namespace, or the caller must not learn about it.
    NotFound,
    /// A namespace of this name exists.
    AlreadyExists,
    /// The caller may not have it.
    Forbidden(String),
    /// The object breaks a rule.
    Invalid(String),
    /// The request cannot be understood, or asks for what the gateway does not do.
    BadRequest(String),
    /// The response would have another representation than the client accepts.
    NotAcceptable,
    /// The body has another format than the gateway reads.
    UnsupportedMediaType,
}

/// A refused request, and the namespace that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct NamespaceRefusal {
    reason: RefusalReason,
    /// Empty if the request was not read.
    namespace: String,
}

impl NamespaceRefusal {
    /// The refusal of a request for this namespace.
    pub(in crate::gateway) fn new(reason: RefusalReason, namespace: impl Into<String>) -> Self {
        Self { reason, namespace: namespace.into() }
    }

    /// The response, a `Status`.
    pub(in crate::gateway) fn response(&self, request_id: &str) -> Response<Bytes> {
        let (status, reason, message) = self.texts();
        let kind = if matches!(self.reason, RefusalReason::Invalid(_)) {
            "Namespace"
        } else {
            "namespaces"
        };
        let body = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": {"name": self.namespace, "kind": kind, "causes": self.causes(request_id)},
            "code": status.as_u16(),
        });
        status::json(status, body.to_string())
    }

    /// Status, reason and message. The API server has the same messages.
    fn texts(&self) -> (StatusCode, &'static str, String) {
        let name = &self.namespace;
        match &self.reason {
            RefusalReason::NotFound => {
                (StatusCode::NOT_FOUND, "NotFound", format!("namespaces \"{name}\" not found"))
            }
            RefusalReason::AlreadyExists => (
                StatusCode::CONFLICT,
                "AlreadyExists",
                format!("namespaces \"{name}\" already exists"),
            ),
            RefusalReason::Forbidden(text) => (
                StatusCode::FORBIDDEN,
                "Forbidden",
                format!("namespaces \"{name}\" is forbidden: {text}"),
            ),
            RefusalReason::Invalid(text) => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "Invalid",
                format!("Namespace \"{name}\" is invalid: {text}"),
            ),
            RefusalReason::BadRequest(text) => {
                (StatusCode::BAD_REQUEST, "BadRequest", text.clone())
            }
            RefusalReason::NotAcceptable => (
                StatusCode::NOT_ACCEPTABLE,
                "NotAcceptable",
                "only the media type application/json is possible for a namespace that the \
                 gateway creates"
                    .to_owned(),
            ),
            RefusalReason::UnsupportedMediaType => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "UnsupportedMediaType",
                "a namespace is created from application/json or \
                 application/vnd.kubernetes.protobuf"
                    .to_owned(),
            ),
        }
    }

    /// The causes in the details. kubectl prints those of an invalid object instead of the message.
    fn causes(&self, request_id: &str) -> Value {
        let request = json!({"reason": "RequestID", "message": request_id, "field": "request"});
        match &self.reason {
            RefusalReason::Invalid(text) => {
                let fault = json!({
                    "reason": "FieldValueInvalid", "message": text, "field": "metadata",
                });
                json!([fault, request])
            }
            _ => json!([request]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(reason: RefusalReason) -> Value {
        let response = NamespaceRefusal::new(reason, "solar-a").response("r-1");
        assert_eq!(response.headers()["content-type"], "application/json");
        let status: Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(status["code"], response.status().as_u16());
        status
    }

    #[test]
    fn a_refusal_is_worded_as_by_the_api_server() {
        for (reason, code, expected, message) in [
            (RefusalReason::NotFound, 404, "NotFound", "namespaces \"solar-a\" not found"),
            (
                RefusalReason::AlreadyExists,
                409,
                "AlreadyExists",
                "namespaces \"solar-a\" already exists",
            ),
            (
                RefusalReason::Forbidden("exceeded".to_owned()),
                403,
                "Forbidden",
                "namespaces \"solar-a\" is forbidden: exceeded",
            ),
        ] {
            let status = status(reason);
            assert_eq!(status["kind"], "Status");
            assert_eq!((&status["code"], &status["reason"]), (&json!(code), &json!(expected)));
            assert_eq!(status["message"], message);
            let details = &status["details"];
            assert_eq!(
                (&details["name"], &details["kind"]),
                (&json!("solar-a"), &json!("namespaces"))
            );
            assert_eq!(details["causes"][0]["message"], "r-1");
        }
    }

    #[test]
    fn kubectl_finds_the_rule_of_an_invalid_namespace_in_the_causes() {
        let status = status(RefusalReason::Invalid("a rule".to_owned()));
        assert_eq!((&status["code"], &status["reason"]), (&json!(422), &json!("Invalid")));
        assert_eq!(status["details"]["kind"], "Namespace");
        assert_eq!(status["details"]["causes"][0]["message"], "a rule");
    }
}
