//! Requests of attackers, and the responses.

use http::{Method, StatusCode};
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

/// A request for a path of the API server, with its JSON body and content type.
pub(super) struct Attempt {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Option<(&'static str, Value)>,
}

/// The response to an attempt.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) text: String,
    /// The broker's id of the request, if it went through the gateway.
    pub(super) id: Option<String>,
}

impl Attempt {
    /// Sends the attempt. The request has its method and path.
    pub(super) async fn send(&self, request: RequestBuilder) -> Answer {
        Answer::of(match &self.body {
            Some((kind, body)) => request.header("content-type", *kind).body(body.to_string()),
            None => request,
        })
        .await
    }
}

impl Answer {
    /// Sends a request.
    pub(super) async fn of(request: RequestBuilder) -> Self {
        Self::read(request.send().await.unwrap()).await
    }

    /// Reads the rest of a response.
    pub(super) async fn read(response: Response) -> Self {
        let id = response.headers().get("x-request-id");
        let id = id.map(|id| id.to_str().unwrap().to_owned());
        Self { status: response.status(), id, text: response.text().await.unwrap() }
    }
}

pub(super) fn attempt(method: Method, path: impl Into<String>) -> Attempt {
    Attempt { method, path: path.into(), body: None }
}

pub(super) fn post(path: impl Into<String>, body: Value) -> Attempt {
    Attempt { body: Some(("application/json", body)), ..attempt(Method::POST, path) }
}

pub(super) fn put(path: impl Into<String>, body: Value) -> Attempt {
    Attempt { body: Some(("application/json", body)), ..attempt(Method::PUT, path) }
}

pub(super) fn patch(path: impl Into<String>, body: Value) -> Attempt {
    patch_as("application/merge-patch+json", path, body)
}

pub(super) fn apply(path: impl Into<String>, body: Value) -> Attempt {
    patch_as("application/apply-patch+yaml", path, body)
}

/// A patch of this content type.
pub(super) fn patch_as(kind: &'static str, path: impl Into<String>, body: Value) -> Attempt {
    Attempt { body: Some((kind, body)), ..attempt(Method::PATCH, path) }
}

pub(super) fn labels(labels: &Value) -> Value {
    json!({"metadata": {"labels": labels}})
}

/// A namespace with this metadata.
pub(super) fn namespace(name: &str, metadata: &Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    object["metadata"]["name"] = json!(name);
    object
}
