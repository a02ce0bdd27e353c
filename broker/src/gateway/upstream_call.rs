//! Calls to the API server with a tenant's token. If the API server no longer accepts the token,
//! the call is retried with a new one, provided that its body can be sent again.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use tenant_shared::Code;

use super::{
    Gateway,
    error::{cancelled_request, incomplete_response, token_replaced, upstream_error_cause},
    in_flight::InFlightRequest,
    kubernetes_api::path::Kind,
    principals::Principal,
};
use crate::{
    cluster::{Cluster, MAX_POOLED_BODY_BYTES, Transport, UpstreamError, UpstreamResponseBody},
    credential::CachedToken,
    http::{ApiError, Body, body},
    identity::PresentedCredential,
    workspace::Active,
};

/// The limit of the API server's response to `/version`, in bytes.
const MAX_VERSION_BYTES: usize = 64 * 1024;
/// Length to which a path is truncated in the log, in bytes.
const MAX_LOGGED_PATH_BYTES: usize = 300;
/// How long receiving a body that the gateway reads itself may take.
const REQUEST_BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Body of a call.
pub(super) enum RequestBody {
    /// The complete body, which may be empty.
    Full(Bytes),
    /// A stream, which cannot be sent again and needs a connection of its own.
    Stream(Body),
}

/// One request of a client and its calls to the API server.
pub(super) struct UpstreamCall<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) presented: &'a PresentedCredential,
    /// The workspace whose token is sent.
    pub(super) active: Arc<Active>,
    /// The cluster that the request names.
    pub(super) cluster: &'a Cluster,
    /// The caller with their workspaces, as they were when the request came.
    pub(super) principal: &'a Arc<Principal>,
    /// Kind of the request.
    pub(super) kind: Kind,
    /// Whether the client asks for an upgrade of the connection.
    pub(super) is_upgrade: bool,
    pub(super) in_flight: InFlightRequest,
}

impl UpstreamCall<'_> {
    /// Sends a call and returns the response as soon as its head is read.
    ///
    /// # Errors
    /// There is no token, the API server does not respond, or the request is cancelled.
    pub(super) async fn send(
        &mut self,
        method: &Method,
        path_and_query: &str,
        headers: &HeaderMap,
        body: RequestBody,
    ) -> Result<Response<UpstreamResponseBody>, ApiError> {
        let uri = self.cluster.upstream().uri(path_and_query)?;
        let transport = self.transport(&body);
        let (body, retry) = match body {
            RequestBody::Full(bytes) => (body::full(bytes.clone()), Some(bytes)),
            RequestBody::Stream(body) => (body, None),
        };
        let token = self.token().await?;
        let first = request(method, uri.clone(), headers, body);
        let response = self.send_once(&token, first, transport).await?;
        if response.status() != StatusCode::UNAUTHORIZED
            || (self.kind == Kind::Proxy && Box::pin(self.is_token_accepted(&token)).await?)
        {
            return Ok(response);
        }
        let retry = retry.map(|bytes| request(method, uri, headers, body::full(bytes)));
        Box::pin(self.retry_with_new_token(&token, retry, transport)).await
    }

    /// The connection that a request needs: a shared one for watches, its own for upgrades and for
    /// bodies that are not read yet.
    fn transport(&self, body: &RequestBody) -> Transport {
        match body {
            _ if self.is_upgrade => Transport::Dedicated,
            RequestBody::Full(bytes) if bytes.is_empty() && self.kind == Kind::Watch => {
                Transport::Http2
            }
            RequestBody::Full(bytes) if bytes.len() as u64 <= MAX_POOLED_BODY_BYTES => {
                Transport::Http1
            }
            RequestBody::Full(_) | RequestBody::Stream(_) => Transport::Dedicated,
        }
    }

    /// The token of the workspace. If its ServiceAccount was replaced meanwhile, the caller is
    /// authenticated again, because their session may have ended while the token was issued.
    async fn token(&mut self) -> Result<CachedToken, ApiError> {
        let token = self.gateway.tokens.get(&self.active).await?;
        if token.service_account_uid() == self.active.service_account_uid() {
            return Ok(token);
        }
        Box::pin(async {
            let principal = self.reload_principal().await?;
            self.set_principal(&principal)?;
            Ok(self.gateway.tokens.get(&self.active).await?)
        })
        .await
    }

    /// Takes the workspace from a principal that was read again.
    fn set_principal(&mut self, principal: &Principal) -> Result<(), ApiError> {
        let workspace = principal.workspace_by_id(self.active.workspace_id())?;
        self.active = Arc::clone(self.gateway.principals.active(workspace)?);
        Ok(())
    }

    /// Takes the workspace for requests to this namespace, because the body of the request, and not
    /// its path, names it.
    ///
    /// # Errors
    /// The workspace is suspended or not ready.
    pub(super) fn use_workspace_of(&mut self, namespace: &str) -> Result<(), ApiError> {
        let gateway = self.gateway;
        let workspace = gateway.choose_workspace(self.principal, self.cluster, Some(namespace))?;
        self.active = Arc::clone(gateway.principals.active(workspace)?);
        Ok(())
    }

    /// Whether the API server accepts this token. A program behind `/proxy/` may respond with 401
    /// at any time, and must not make the broker issue a new token each time.
    async fn is_token_accepted(&mut self, token: &CachedToken) -> Result<bool, ApiError> {
        let uri = self.cluster.upstream().uri("/version")?;
        let probe = request(&Method::GET, uri, &HeaderMap::new(), body::full(Bytes::new()));
        let response = self.send_once(token, probe, Transport::Http1).await?;
        let response = self.read_body(response, MAX_VERSION_BYTES).await?;
        Ok(response.status() != StatusCode::UNAUTHORIZED)
    }

    async fn retry_with_new_token(
        &mut self,
        refused: &CachedToken,
        retry: Option<Request<Body>>,
        transport: Transport,
    ) -> Result<Response<UpstreamResponseBody>, ApiError> {
        let refused = Arc::clone(refused.credential_id());
        self.gateway.tokens.evict_if(|id| id == &*refused);
        let principal = self.reload_principal().await?;
        let Some(request) = retry else { return Err(token_replaced()) };
        self.set_principal(&principal)?;
        let token = self.gateway.tokens.get(&self.active).await?;
        let response = self.send_once(&token, request, transport).await?;
        match response.status() {
            // The client's own credential is valid, so it must not be told to sign in.
            StatusCode::UNAUTHORIZED => Err(token_replaced()),
            _ => Ok(response),
        }
    }

    /// Counts a call that failed.
    pub(super) fn count_error(&self, error: &UpstreamError) {
        if let Some(cause) = upstream_error_cause(error) {
            self.gateway.metrics.gateway_upstream_error(cause);
        }
    }

    /// Reads the complete body of a request that the gateway handles itself.
    ///
    /// # Errors
    /// The body is incomplete, takes too long or is longer than `max_bytes`; the request is
    /// cancelled.
    pub(super) async fn read_request(
        &self,
        body: Incoming,
        max_bytes: usize,
        what: &str,
    ) -> Result<Bytes, ApiError> {
        let upload = self.in_flight.upload(body, self.gateway.identity.limits());
        let read = Limited::new(upload, max_bytes).collect();
        let read = tokio::select! {
            read = tokio::time::timeout(REQUEST_BODY_TIMEOUT, read) => read,
            reason = self.in_flight.closed() => return Err(cancelled_request(reason)),
        };
        let Ok(Ok(read)) = read else {
            let (seconds, kibibytes) = (REQUEST_BODY_TIMEOUT.as_secs(), max_bytes / 1024);
            let text = format!(
                "the {what} is incomplete, took longer than {seconds} s, or is longer than \
                 {kibibytes} KiB"
            );
            return Err(ApiError::new(Code::InvalidRequest, text));
        };
        Ok(read.to_bytes())
    }

    /// Reads the complete body of a response.
    ///
    /// # Errors
    /// The body is longer than `max_bytes` or incomplete, or the request is cancelled.
    pub(super) async fn read_body(
        &mut self,
        response: Response<UpstreamResponseBody>,
        max_bytes: usize,
    ) -> Result<Response<Bytes>, ApiError> {
        let (mut head, body) = response.into_parts();
        let bytes = tokio::select! {
            read = Limited::new(body, max_bytes).collect() => read,
            reason = self.in_flight.closed() => return Err(cancelled_request(reason)),
        };
        let bytes = bytes.map_err(|_| incomplete_response())?.to_bytes();
        head.headers.remove(header::CONTENT_LENGTH);
        Ok(Response::from_parts(head, bytes))
    }

    /// Reads the principal again, because the ServiceAccount of its workspace may have been
    /// replaced, which makes all tokens of the old one invalid.
    async fn reload_principal(&self) -> Result<Arc<Principal>, ApiError> {
        self.gateway.principals.remove(self.presented);
        self.gateway.principals.get(self.presented).await
    }

    /// Sends a call with this token, once. The path has no secret in it: the token is in a header, and
    /// the query, in which some clients send one, is left out.
    #[tracing::instrument(
        name = "upstream_call", level = "debug", skip_all,
        fields(method = %request.method(), path = logged_path(&request))
    )]
    async fn send_once(
        &mut self,
        token: &CachedToken,
        mut request: Request<Body>,
        transport: Transport,
    ) -> Result<Response<UpstreamResponseBody>, ApiError> {
        self.in_flight.set_token(token);
        request.headers_mut().insert(header::AUTHORIZATION, token.authorization());
        let upstream = self.cluster.upstream();
        let response = tokio::select! {
            // The first poll of `send` may write the request, so a closed request is not polled.
            biased;
            reason = self.in_flight.closed() => return Err(cancelled_request(reason)),
            response = upstream.send(request, transport) => response,
        };
        let response = response.inspect_err(|error| self.count_error(error))?;
        tracing::debug!(status = response.status().as_u16(), "response of the API server");
        Ok(response)
    }
}

/// The path of a request for the log, without the query.
fn logged_path(request: &Request<Body>) -> &str {
    let path = request.uri().path();
    path.get(..MAX_LOGGED_PATH_BYTES).unwrap_or(path)
}

/// A request with this body. If `headers` announce a length, it becomes that of the body: hyper
/// sends the header as it is, and the API server would take the next request on the connection for
/// the rest of the body.
fn request(method: &Method, uri: http::Uri, headers: &HeaderMap, body: Body) -> Request<Body> {
    let length = body.size_hint().exact();
    let mut request = Request::new(body);
    *request.method_mut() = method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = headers.clone();
    if let Some(length) = length
        && headers.contains_key(header::CONTENT_LENGTH)
    {
        request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announced_length_is_that_of_the_body() {
        for (announced, bytes, sent) in [
            (Some("10"), "", Some("0")),
            (Some("0"), "", Some("0")),
            (Some("1"), "{}", Some("2")),
            (None, "", None),
            (None, "{}", None),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(length) = announced {
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static(length));
            }
            let body = body::full(Bytes::from_static(bytes.as_bytes()));
            let request = request(&Method::GET, http::Uri::from_static("/"), &headers, body);
            let length = request.headers().get(header::CONTENT_LENGTH);
            assert_eq!(length.map(HeaderValue::as_bytes), sent.map(str::as_bytes), "{announced:?}");
        }
    }
}
