//! Questions to the API server with the token of a tenant: a second time with another token, if the
//! first is no longer taken and the question can be put again.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use tenant_shared::Code;

use super::{
    Body, Gateway, cut_off, passage::Passage, path::Kind, tokens::Token, visitors::Visitor,
};
use crate::{
    cluster::{Travel, UpstreamAnswer},
    identity::Presented,
    problem::Failure,
};

/// Bytes of the API server's answer to `/version` at most.
const MOST_VERSION_BYTES: usize = 64 * 1024;

/// What a question carries.
pub(super) enum Payload {
    /// All of it; nothing if it is empty.
    Whole(Bytes),
    /// As it comes; it cannot be sent again.
    Stream(Body),
}

/// The way of one request of a client.
pub(super) struct Exchange<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) presented: &'a Presented,
    pub(super) visitor: Arc<Visitor>,
    /// The namespace that the request names.
    pub(super) namespace: Option<&'a str>,
    /// What the request does.
    pub(super) kind: Kind,
    /// How it goes to the API server.
    pub(super) travel: Travel,
    pub(super) passage: Passage,
}

impl Exchange<'_> {
    /// Asks, and returns the head of the answer.
    ///
    /// # Errors
    /// There is no token, the API server does not answer, or the request is cut off.
    pub(super) async fn send(
        &mut self,
        method: &Method,
        path_and_query: &str,
        headers: &HeaderMap,
        payload: Payload,
    ) -> Result<Response<UpstreamAnswer>, Failure> {
        let uri = self.gateway.upstream.uri(path_and_query)?;
        let (body, again) = match payload {
            Payload::Whole(bytes) => (whole(bytes.clone()), Some(bytes)),
            Payload::Stream(body) => (body, None),
        };
        let token = match self.token().await {
            Ok(token) => token,
            Err(failure) => Box::pin(self.token_of_other_account(failure)).await?,
        };
        let response = self.once(&token, request(method, uri.clone(), headers, body)).await?;
        if response.status() != StatusCode::UNAUTHORIZED
            || (self.kind == Kind::Proxy && Box::pin(self.is_good(&token)).await?)
        {
            return Ok(response);
        }
        let again = again.map(|bytes| request(method, uri, headers, whole(bytes)));
        Box::pin(self.with_another_token(&token, again)).await
    }

    /// Whether the API server takes this token. A program behind `/proxy/` may answer 401 as it likes,
    /// and must not have the broker issue a new token each time.
    async fn is_good(&mut self, token: &Token) -> Result<bool, Failure> {
        let uri = self.gateway.upstream.uri("/version")?;
        let asked = request(&Method::GET, uri, &HeaderMap::new(), whole(Bytes::new()));
        let answer = self.once(token, asked).await?;
        let answer = self.read(answer, MOST_VERSION_BYTES).await?;
        Ok(answer.status() != StatusCode::UNAUTHORIZED)
    }

    async fn with_another_token(
        &mut self,
        refused: &Token,
        again: Option<Request<Body>>,
    ) -> Result<Response<UpstreamAnswer>, Failure> {
        let refused = Arc::clone(refused.credential_id());
        self.gateway.tokens.forget_those(|id| id == &*refused);
        self.look_again().await?;
        let Some(request) = again else { return Err(token_replaced()) };
        let token = self.token().await?;
        let response = self.once(&token, request).await?;
        match response.status() {
            // Not the client's: that one is good, so it must not be told to sign in.
            StatusCode::UNAUTHORIZED => Err(token_replaced()),
            _ => Ok(response),
        }
    }

    /// The same, and reads a short answer to its end.
    ///
    /// # Errors
    /// The same; the answer is too long.
    pub(super) async fn read(
        &mut self,
        response: Response<UpstreamAnswer>,
        most: usize,
    ) -> Result<Response<Bytes>, Failure> {
        let (mut head, body) = response.into_parts();
        let bytes = tokio::select! {
            read = Limited::new(body, most).collect() => read,
            why = self.passage.cut() => return Err(cut_off(why)),
        };
        let bytes = bytes
            .map_err(|_| {
                Failure::new(Code::ClusterUnavailable, "the API server's answer broke off")
                    .retry_after(1)
            })?
            .to_bytes();
        head.headers.remove(header::CONTENT_LENGTH);
        Ok(Response::from_parts(head, bytes))
    }

    async fn token(&mut self) -> Result<Token, Failure> {
        let workspace = self.visitor.workspace(self.namespace)?;
        let active = self.gateway.visitors.active(&self.visitor, workspace)?;
        self.gateway.tokens.of(active).await
    }

    /// A token, if there was none only because the workspace's ServiceAccount is another one now.
    async fn token_of_other_account(&mut self, failure: Failure) -> Result<Token, Failure> {
        let before = self.account();
        self.look_again().await?;
        if self.account() == before { Err(failure) } else { self.token().await }
    }

    fn account(&self) -> Option<Arc<str>> {
        let workspace = self.visitor.workspace(self.namespace).ok()?;
        let active = self.gateway.visitors.active(&self.visitor, workspace).ok()?;
        Some(Arc::clone(active.service_account_uid()))
    }

    async fn look_again(&mut self) -> Result<(), Failure> {
        self.gateway.visitors.forget(self.presented);
        self.visitor = self.gateway.visitors.find(self.presented).await?;
        Ok(())
    }

    async fn once(
        &mut self,
        token: &Token,
        mut request: Request<Body>,
    ) -> Result<Response<UpstreamAnswer>, Failure> {
        self.passage.goes_as(token.credential_id());
        request.headers_mut().insert(header::AUTHORIZATION, token.authorization());
        tokio::select! {
            response = self.gateway.upstream.send(request, self.travel) => Ok(response?),
            why = self.passage.cut() => Err(cut_off(why)),
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

/// A body of these bytes.
pub(crate) fn whole(bytes: Bytes) -> Body {
    if bytes.is_empty() {
        return Empty::new().map_err(|never| match never {}).boxed();
    }
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

/// What a client is told whose token upstream ended under way.
pub(super) fn token_replaced() -> Failure {
    let text = "the token of the workspace was just replaced; send the request again";
    Failure::new(Code::WorkspaceNotReady, text).retry_after(1)
}
