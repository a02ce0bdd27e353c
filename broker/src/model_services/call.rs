//! A call to the API server, without a credential: its request and its limits.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method};
use serde_json::Value;

use super::{call_kind::CallKind, time_limit::CallLimit};

/// Timeout of reviews.
pub(super) const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of other calls. The operation has one for all of its calls, too.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest response of the API server, all pages of a list together.
pub(super) const MAX_UPSTREAM_BYTES: usize = 32 * 1024 * 1024;
/// The largest response to a write: an object has at most 1.5 MiB, the limit of etcd.
pub(super) const MAX_UPSTREAM_WRITE_BYTES: usize = 2 * 1024 * 1024;
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) kind: CallKind,
    pub(super) method: Method,
    pub(super) path_and_query: String,
    pub(super) accept: HeaderValue,
    pub(super) body: Bytes,
    pub(super) timeout: Duration,
    pub(super) limit: CallLimit,
    pub(super) max_bytes: usize,
    /// Whether it is a write, which is sent only if there is memory for the largest response.
    pub(super) is_write: bool,
}

impl Call {
    /// A read.
    pub(super) fn get(kind: CallKind, path_and_query: impl Into<String>) -> Self {
        Self {
            kind,
            method: Method::GET,
            path_and_query: path_and_query.into(),
            accept: JSON,
            body: Bytes::new(),
            timeout: CALL_TIMEOUT,
            limit: CallLimit::Reads,
            max_bytes: MAX_UPSTREAM_BYTES,
            is_write: false,
        }
    }

    /// A review, which changes nothing.
    pub(super) fn review(
        kind: CallKind,
        path_and_query: impl Into<String>,
        review: &Value,
    ) -> Self {
        let (body, limit) = (review.to_string().into(), CallLimit::Operation);
        Self { method: Method::POST, body, limit, ..Self::get(kind, path_and_query) }
    }

    /// The creation of an object.
    pub(super) fn create(
        kind: CallKind,
        path_and_query: impl Into<String>,
        object: &Value,
    ) -> Self {
        let call = Self::review(kind, path_and_query, object);
        Self { max_bytes: MAX_UPSTREAM_WRITE_BYTES, is_write: true, ..call }
    }

    /// The deletion of an object with these `Preconditions`.
    pub(super) fn delete(kind: CallKind, path: impl Into<String>, preconditions: &Value) -> Self {
        let options = serde_json::json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": preconditions,
        });
        let limit = CallLimit::Own;
        Self { method: Method::DELETE, limit, ..Self::create(kind, path, &options) }
    }

    #[must_use]
    pub(super) fn accept(self, accept: HeaderValue) -> Self {
        Self { accept, ..self }
    }

    #[must_use]
    pub(super) fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets the timeout of a call that the time of the operation does not limit.
    #[must_use]
    pub(super) fn own_timeout(self, timeout: Duration) -> Self {
        Self { timeout, limit: CallLimit::Own, ..self }
    }

    /// Limits the size of the response.
    #[must_use]
    pub(super) fn max_bytes(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }
}
