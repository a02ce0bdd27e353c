//! An API server without storage: it gives the responses of a function, and records the requests.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tower_service::Service;

/// A request that the API server got.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    pub(crate) method: Method,
    query: String,
    accept: String,
    pub(crate) body: Option<Value>,
}

impl RecordedRequest {
    /// The number in a parameter of the query; 0 without the parameter.
    pub(crate) fn number(&self, parameter: &str) -> usize {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        let mut values = pairs.filter(|(name, _)| *name == parameter);
        values.next().map_or(0, |(_, value)| value.parse().unwrap())
    }

    /// Whether the client asks for the metadata of the objects only.
    pub(crate) fn is_for_metadata(&self) -> bool {
        self.accept.contains("PartialObjectMetadata")
    }
}

/// A status and a body.
pub(crate) type StubResponse = (StatusCode, Value);

/// The API server. Clones share the recorded requests.
#[derive(Clone)]
pub(crate) struct StubApiServer {
    respond: Arc<dyn Fn(&RecordedRequest) -> StubResponse + Send + Sync>,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl StubApiServer {
    pub(crate) fn new(
        respond: impl Fn(&RecordedRequest) -> StubResponse + Send + Sync + 'static,
    ) -> Self {
        Self { respond: Arc::new(respond), requests: Arc::default() }
    }

    /// Gives each of these responses once. A further request panics.
    pub(crate) fn in_order(responses: impl IntoIterator<Item = StubResponse>) -> Self {
        let responses: Mutex<VecDeque<_>> = Mutex::new(responses.into_iter().collect());
        Self::new(move |_| responses.lock().unwrap().pop_front().unwrap())
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// The requests until now, in their order.
    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

impl Service<Request<Body>> for StubApiServer {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let accept = head.headers.get(header::ACCEPT);
            let request = RecordedRequest {
                method: head.method,
                query: head.uri.query().unwrap_or_default().to_owned(),
                accept: accept.map_or_else(String::new, |it| it.to_str().unwrap().to_owned()),
                body: (!body.is_empty()).then(|| serde_json::from_slice(&body).unwrap()),
            };
            let (status, body) = (server.respond)(&request);
            server.requests.lock().unwrap().push(request);
            let mut response = Response::new(body.to_string());
            *response.status_mut() = status;
            Ok(response)
        })
    }
}

/// A response with an object of the kind `Status`, whose message is the reason.
pub(crate) fn status(status: StatusCode, reason: &str) -> StubResponse {
    let outcome = if status.is_success() { "Success" } else { "Failure" };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": outcome,
        "message": reason, "reason": reason, "code": status.as_u16(),
    });
    (status, body)
}
