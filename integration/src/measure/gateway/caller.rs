//! A client on one kept connection, as lean as possible because it shares the machine with the
//! measured processes.

use std::pin::Pin;

use anyhow::{Context, Result, bail};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::route::Route;

type Connection = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Characters of a response in an error.
const MAX_ERROR_CHARS: usize = 300;

/// A request of a [`Caller`].
#[derive(Clone, Debug)]
pub(crate) struct CallerRequest {
    method: Method,
    path: String,
    accept: HeaderValue,
    body: Bytes,
}

impl CallerRequest {
    /// A read.
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), accept: JSON, body: Bytes::new() }
    }

    /// The creation of an object, or another request with JSON.
    pub(crate) fn post(path: impl Into<String>, body: &serde_json::Value) -> Self {
        Self { method: Method::POST, body: body.to_string().into(), ..Self::get(path) }
    }

    /// Sets the representation of the response.
    #[must_use]
    pub(crate) fn accept(self, accept: HeaderValue) -> Self {
        Self { accept, ..self }
    }
}

/// A client with one connection.
pub(crate) struct Caller {
    sender: http1::SendRequest<Full<Bytes>>,
    // Polled together with the response, and not in a task of its own: waking another thread is not
    // part of a request's time.
    connection: Connection,
    host: HeaderValue,
    route: Route,
}

impl Caller {
    /// Connects, for streams or for single requests.
    pub(crate) async fn connect(route: &Route, for_streams: bool) -> Result<Self> {
        let address = if for_streams { route.for_streams } else { route.address };
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("connect to {} ({address})", route.name))?;
        stream.set_nodelay(true).context("send at once")?;
        let (sender, connection) = match &route.tls {
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await;
                handshake(stream.with_context(|| format!("connect to {} with TLS", route.name))?)
                    .await?
            }
            None => handshake(stream).await?,
        };
        let host = HeaderValue::try_from(address.to_string())?;
        Ok(Self { sender, connection, host, route: route.clone() })
    }

    /// Requests this path of the API server and returns the response, whose status must be 200.
    pub(crate) async fn open(&mut self, path: &str) -> Result<Response<Incoming>> {
        let answer = self.send(&CallerRequest::get(path)).await?;
        if answer.status() != StatusCode::OK {
            bail!("{} answered {} for {path}", self.route.name, answer.status());
        }
        Ok(answer)
    }

    async fn send(&mut self, request: &CallerRequest) -> Result<Response<Incoming>> {
        let CallerRequest { method, path, accept, body } = request;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.route.prefix))
            .header(header::HOST, self.host.clone())
            .header(header::ACCEPT, accept)
            // Without compression the bytes are the same on all routes.
            .header(header::ACCEPT_ENCODING, "identity");
        if let Some(authorization) = &self.route.authorization {
            request = request.header(header::AUTHORIZATION, authorization.clone());
        }
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, JSON);
        }
        let request = request.body(Full::new(body.clone()))?;
        let Self { sender, connection, .. } = self;
        let answer = async {
            sender.ready().await?;
            sender.send_request(request).await
        };
        let answer = tokio::select! {
            biased;
            answer = answer => answer.with_context(|| format!("ask {}", self.route.name))?,
            end = connection => bail!("{} closed the connection: {end:?}", self.route.name),
        };
        Ok(answer)
    }

    /// Returns the next chunk of a response body; `None` at its end.
    pub(crate) async fn next_chunk(&mut self, body: &mut Incoming) -> Result<Option<Bytes>> {
        let frame = tokio::select! {
            biased;
            frame = body.frame() => frame,
            end = &mut self.connection => {
                bail!("{} closed the connection: {end:?}", self.route.name)
            }
        };
        let frame = frame.transpose().with_context(|| format!("read from {}", self.route.name))?;
        Ok(frame.map(|frame| frame.into_data().unwrap_or_default()))
    }

    /// Requests this path and returns the length of the response body.
    pub(crate) async fn get(&mut self, path: &str) -> Result<usize> {
        let answer = self.open(path).await?;
        self.drain(answer).await
    }

    /// Requests this path and returns the status and the length of the response body.
    pub(crate) async fn try_get(&mut self, path: &str) -> Result<(StatusCode, usize)> {
        let answer = self.send(&CallerRequest::get(path)).await?;
        Ok((answer.status(), self.drain(answer).await?))
    }

    /// Sends a request that has to succeed, and returns the length of the response body.
    pub(crate) async fn succeed(&mut self, request: &CallerRequest) -> Result<usize> {
        let answer = self.send(request).await?;
        if !answer.status().is_success() {
            return Err(self.refusal(request, answer).await);
        }
        self.drain(answer).await
    }

    /// Sends a request that has to succeed, and returns the response body.
    pub(crate) async fn fetch(&mut self, request: &CallerRequest) -> Result<Vec<u8>> {
        let answer = self.send(request).await?;
        if !answer.status().is_success() {
            return Err(self.refusal(request, answer).await);
        }
        self.read(answer).await
    }

    /// The error for a response that is no success.
    async fn refusal(
        &mut self,
        request: &CallerRequest,
        answer: Response<Incoming>,
    ) -> anyhow::Error {
        let (status, name) = (answer.status(), self.route.name);
        let body = self.read(answer).await.unwrap_or_default();
        let text: String = String::from_utf8_lossy(&body).chars().take(MAX_ERROR_CHARS).collect();
        let CallerRequest { method, path, .. } = request;
        anyhow::anyhow!("{name} answered {status} for {method} {path}: {text}")
    }

    async fn read(&mut self, answer: Response<Incoming>) -> Result<Vec<u8>> {
        let (mut body, mut read) = (answer.into_body(), Vec::new());
        while let Some(piece) = self.next_chunk(&mut body).await? {
            read.extend_from_slice(&piece);
        }
        Ok(read)
    }

    async fn drain(&mut self, answer: Response<Incoming>) -> Result<usize> {
        let mut body = answer.into_body();
        let mut length = 0;
        while let Some(piece) = self.next_chunk(&mut body).await? {
            length += piece.len();
        }
        Ok(length)
    }
}

async fn handshake<Io>(io: Io) -> Result<(http1::SendRequest<Full<Bytes>>, Connection)>
where
    Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(io)).await?;
    Ok((sender, Box::pin(connection)))
}
