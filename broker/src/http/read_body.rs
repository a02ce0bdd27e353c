//! The layer between the outer stack and the poem endpoints: reads request bodies up to a limit, and
//! turns errors into responses.

use std::{fmt::Debug, sync::Arc, time::Duration};

use http::HeaderMap;
use poem::{Body, Endpoint, Middleware, Request, Response, http::StatusCode};
use tenant_shared::{Code, GATEWAY_PATH};
use tokio::io::AsyncReadExt as _;

use super::{ApiError, ErrorFormat};
use crate::identity::Identity;

/// Limit of a request body in bytes: every body here is a small form or JSON object.
pub const MAX_BODY_BYTES: usize = 64 * 1024;
/// Timeout of receiving a request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Knows callers besides those with a session.
pub trait KnownCallers: Debug + Send + Sync {
    /// Whether a request presents a credential that was valid recently. That authenticates nobody: it
    /// only decides whether the limit of bodies applies.
    fn presents_recent_credential(&self, headers: &HeaderMap) -> bool;
}

/// The layer as a middleware.
#[derive(Clone, Debug)]
pub struct ReadBody {
    /// Knows the secrets of recent sessions, and limits requests without one.
    pub identity: Identity,
    /// Callers besides those with a session.
    pub known_callers: Option<Arc<dyn KnownCallers>>,
    /// Name of the cluster behind the gateway.
    pub cluster: String,
}

impl<E: Endpoint> Middleware<E> for ReadBody {
    type Output = ReadBodyEndpoint<E>;

    fn transform(&self, endpoint: E) -> Self::Output {
        ReadBodyEndpoint { layer: self.clone(), endpoint }
    }
}

/// An endpoint whose requests have complete bodies.
#[derive(Debug)]
pub struct ReadBodyEndpoint<E> {
    layer: ReadBody,
    endpoint: E,
}

impl<E: Endpoint> Endpoint for ReadBodyEndpoint<E> {
    type Output = Response;

    async fn call(&self, request: Request) -> poem::Result<Response> {
        let is_discovery = is_kubernetes_discovery(request.uri().path());
        let errors = ErrorFormat::of_path(request.uri().path());
        let response = match self.respond(request).await {
            Ok(response) => response,
            Err(error) => errors.response(error),
        };
        if is_discovery && response.status() == StatusCode::NOT_FOUND {
            return Ok(self.layer.gateway_path_hint());
        }
        Ok(response)
    }
}

impl<E: Endpoint> ReadBodyEndpoint<E> {
    async fn respond(&self, mut request: Request) -> Result<Response, ApiError> {
        let body = request.take_body();
        // Bodies that arrive slowly take no place from a request without one.
        if !body.is_empty() {
            let slot = if self.layer.is_known(request.headers()) {
                None
            } else {
                Some(self.layer.identity.limits().read_body()?)
            };
            let body =
                tokio::time::timeout(BODY_TIMEOUT, read_body(body)).await.map_err(|_| {
                    ApiError::new(Code::InvalidRequest, "the body did not arrive in 10 s")
                })??;
            drop(slot);
            request.set_body(body);
        }
        match self.endpoint.call(request).await {
            Ok(response) => Ok(poem::IntoResponse::into_response(response)),
            Err(error) => Err(ApiError::from_poem(error)),
        }
    }
}

impl ReadBody {
    /// Whether a request presents a credential that was valid recently.
    fn is_known(&self, headers: &HeaderMap) -> bool {
        let known_callers = self.known_callers.as_ref();
        self.identity.presents_cached_secret(headers)
            || known_callers.is_some_and(|known| known.presents_recent_credential(headers))
    }

    /// The 404 for a Kubernetes client that was given the broker's address without the gateway's
    /// path. It is plain text for people, because client-go prints a text of its own for a 404,
    /// whatever the body says.
    fn gateway_path_hint(&self) -> Response {
        let text = format!(
            "this is the tenant-broker, and the Kubernetes API is below {GATEWAY_PATH}{}: add that path \
             to the server's address, and with kubectl proxy use --append-server-path\n",
            self.cluster
        );
        Response::builder()
            .status(StatusCode::NOT_FOUND)
            .content_type("text/plain; charset=utf-8")
            .body(text)
    }
}

/// Whether this is a path of Kubernetes API discovery.
fn is_kubernetes_discovery(path: &str) -> bool {
    matches!(
        path.trim_end_matches('/'),
        "/api" | "/apis" | "/version" | "/openapi/v2" | "/openapi/v3"
    ) || path.starts_with("/apis/")
}

/// Limit of bytes that are read and discarded of a body that is too large.
const MAX_DISCARDED_BYTES: u64 = 1024 * 1024;

/// Reads the whole body up to the limit, so that handlers need no limit of their own.
async fn read_body(body: Body) -> Result<Vec<u8>, ApiError> {
    let too_large = || {
        ApiError::new(
            Code::PayloadTooLarge,
            format!("the body is larger than {MAX_BODY_BYTES} bytes"),
        )
    };
    let mut body = body.into_async_read();
    let mut bytes = Vec::new();
    let limit = MAX_BODY_BYTES as u64;
    let read = (&mut body).take(limit + 1).read_to_end(&mut bytes).await;
    read.map_err(|_| ApiError::new(Code::InvalidRequest, "the body is incomplete"))?;
    if bytes.len() > MAX_BODY_BYTES {
        // A client that is still sending would see a connection reset instead of the response.
        let _ = tokio::io::copy(&mut body.take(MAX_DISCARDED_BYTES), &mut tokio::io::sink()).await;
        return Err(too_large());
    }
    Ok(bytes)
}
