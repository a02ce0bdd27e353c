//! Calls to the API server with a tenant's token. If the API server no longer accepts the token,
//! the call is retried with a new one, provided that its body can be sent again.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use tenant_shared::Code;

use super::{
    Body, Gateway, cancelled_request, in_flight::InFlightRequest, path::Kind,
    principals::Principal, tokens::Token,
};
use crate::{
    cluster::{Transport, UpstreamResponseBody},
    http::ApiError,
    identity::PresentedCredential,
};

/// The limit of the API server's response to `/version`, in bytes.
const MAX_VERSION_BYTES: usize = 64 * 1024;

/// Body of a call.
pub(super) enum RequestBody {
    /// The complete body, which may be empty.
    Full(Bytes),
    /// A stream, which cannot be sent again.
    Stream(Body),
}

/// One request of a client and its calls to the API server.
pub(super) struct UpstreamCall<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) presented: &'a PresentedCredential,
    pub(super) principal: Arc<Principal>,
    /// The namespace that the request names.
    pub(super) namespace: Option<&'a str>,
    /// Kind of the request.
    pub(super) kind: Kind,
    /// Transport of the calls.
    pub(super) transport: Transport,
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
        let uri = self.gateway.upstream.uri(path_and_query)?;
        let (body, retry) = match body {
            RequestBody::Full(bytes) => (full_body(bytes.clone()), Some(bytes)),
            RequestBody::Stream(body) => (body, None),
        };
        let token = match self.token().await {
            Ok(token) => token,
            Err(failure) => Box::pin(self.token_of_rotated_account(failure)).await?,
        };
        let response = self.send_once(&token, request(method, uri.clone(), headers, body)).await?;
        if response.status() != StatusCode::UNAUTHORIZED
            || (self.kind == Kind::Proxy && Box::pin(self.is_token_accepted(&token)).await?)
        {
            return Ok(response);
        }
        let retry = retry.map(|bytes| request(method, uri, headers, full_body(bytes)));
        Box::pin(self.retry_with_new_token(&token, retry)).await
    }

    /// Whether the API server accepts this token. A program behind `/proxy/` may respond with 401
    /// at any time, and must not make the broker issue a new token each time.
    async fn is_token_accepted(&mut self, token: &Token) -> Result<bool, ApiError> {
        let uri = self.gateway.upstream.uri("/version")?;
        let probe = request(&Method::GET, uri, &HeaderMap::new(), full_body(Bytes::new()));
        let response = self.send_once(token, probe).await?;
        let response = self.read_body(response, MAX_VERSION_BYTES).await?;
        Ok(response.status() != StatusCode::UNAUTHORIZED)
    }

    async fn retry_with_new_token(
        &mut self,
        refused: &Token,
        retry: Option<Request<Body>>,
    ) -> Result<Response<UpstreamResponseBody>, ApiError> {
        let refused = Arc::clone(refused.credential_id());
        self.gateway.tokens.evict_if(|id| id == &*refused);
        self.refresh_principal().await?;
        let Some(request) = retry else { return Err(token_replaced()) };
        let token = self.token().await?;
        let response = self.send_once(&token, request).await?;
        match response.status() {
            // The client's own credential is valid, so it must not be told to sign in.
            StatusCode::UNAUTHORIZED => Err(token_replaced()),
            _ => Ok(response),
        }
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
        let bytes = bytes
            .map_err(|_| {
                ApiError::new(Code::ClusterUnavailable, "the API server's response is incomplete")
                    .retry_after(1)
            })?
            .to_bytes();
        head.headers.remove(header::CONTENT_LENGTH);
        Ok(Response::from_parts(head, bytes))
    }

    async fn token(&mut self) -> Result<Token, ApiError> {
        let workspace = self.principal.workspace(self.namespace)?;
        let active = self.gateway.principals.active(&self.principal, workspace)?;
        self.gateway.tokens.get(active).await
    }

    /// Gets a token after a failure, if the workspace's ServiceAccount was rotated meanwhile.
    async fn token_of_rotated_account(&mut self, failure: ApiError) -> Result<Token, ApiError> {
        let previous = self.service_account_uid();
        self.refresh_principal().await?;
        if self.service_account_uid() == previous { Err(failure) } else { self.token().await }
    }

    fn service_account_uid(&self) -> Option<Arc<str>> {
        let workspace = self.principal.workspace(self.namespace).ok()?;
        let active = self.gateway.principals.active(&self.principal, workspace).ok()?;
        Some(Arc::clone(active.service_account_uid()))
    }

    async fn refresh_principal(&mut self) -> Result<(), ApiError> {
        self.gateway.principals.remove(self.presented);
        self.principal = self.gateway.principals.get(self.presented).await?;
        Ok(())
    }

    async fn send_once(
        &mut self,
        token: &Token,
        mut request: Request<Body>,
    ) -> Result<Response<UpstreamResponseBody>, ApiError> {
        self.in_flight.set_credential(token.credential_id());
        request.headers_mut().insert(header::AUTHORIZATION, token.authorization());
        tokio::select! {
            response = self.gateway.upstream.send(request, self.transport) => Ok(response?),
            reason = self.in_flight.closed() => Err(cancelled_request(reason)),
        }
    }
}

fn request(method: &Method, uri: http::Uri, headers: &HeaderMap, body: Body) -> Request<Body> {
    let mut request = Request::new(body);
    *request.method_mut() = method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = headers.clone();
    request
}

/// A body with these bytes.
pub(crate) fn full_body(bytes: Bytes) -> Body {
    if bytes.is_empty() {
        return Empty::new().map_err(|never| match never {}).boxed();
    }
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

/// The error for a client whose upstream token became invalid during the request.
pub(super) fn token_replaced() -> ApiError {
    let text = "the token of the workspace was just replaced; send the request again";
    ApiError::new(Code::WorkspaceNotReady, text).retry_after(1)
}
