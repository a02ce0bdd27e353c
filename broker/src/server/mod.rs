//! The HTTP server: accepts connections and serves HTTP/1.1 and HTTP/2 on them.
//!
//! It limits the number of connections and of unsent responses, of all clients and of each address,
//! the size of request heads and the time that they take, and closes connections that are idle or
//! whose client does not read. With TLS the client chooses the protocol (ALPN); without TLS it is
//! HTTP/1.1. A [`Handler`] handles the requests.

mod accept;
mod active_requests;
mod descriptors;
mod preface_timeout;
mod request_head;
#[cfg(test)]
mod tests;
mod tls;
#[cfg(test)]
mod tls_tests;
mod unsent_responses;

use std::{convert::Infallible, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderValue, Request, Response, StatusCode, header, uri::Scheme};
use hyper::{
    body::{Body as _, Incoming},
    server::conn::{http1, http2},
    service::{Service, service_fn},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::{
    accept::Connections,
    descriptors::raise_descriptor_limit,
    tls::{TlsError, TlsFiles},
};
use self::{
    accept::{Acceptor, ClientConnection, ConnectionLimits},
    active_requests::ActiveRequests,
    preface_timeout::PrefaceTimeout,
    request_head::HeadError,
    unsent_responses::{ResponseLimiter, ResponseLimits, UnsentResponses},
};
use crate::{
    base::{reload::Reloaded, telemetry::Metrics},
    http::{Body, TrustedProxies, body},
};

/// Timeout of a TLS handshake. The number of handshakes has no limit of its own, because clients
/// that stall theirs would keep others from starting one.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the first bytes of a connection, of the head of a request, and of a connection
/// without a request in flight.
const HEAD_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a connection that is new when the server begins to stop has for its first request.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of PING frames on an idle HTTP/2 connection.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);
/// Timeout of the answer to a PING frame.
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a part of one of the broker's own responses may be unsent before the connection is
/// closed.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(1);
/// Limit of concurrent requests on one HTTP/2 connection, the same as the API server's.
const MAX_HTTP2_STREAMS: u32 = 250;

/// The connection that a request arrived on.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// Address of the listener.
    pub local: SocketAddr,
    /// Address of the client or of the proxy before it.
    pub remote: SocketAddr,
    /// Whether the connection has TLS.
    pub scheme: Scheme,
}

/// Handles the requests of all connections.
pub trait Handler: Send + Sync + 'static {
    /// Handles one request.
    fn handle(
        &self,
        request: Request<Incoming>,
        connection: &ConnectionInfo,
    ) -> impl Future<Output = Response<Body>> + Send;

    /// Whether the request is forwarded if it is not refused. Such a request has limits of its own
    /// ([`body::WithinTenantLimits`]), so only a refusal counts as a response of the broker.
    fn is_forwarded(&self, _request: &Request<Incoming>) -> bool {
        false
    }

    /// Ends streams, because the server begins to shut down.
    fn close_streams(&self) {}
}

/// A bound listener, with or without TLS.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    /// The TLS identity, if TLS is terminated here. A connection keeps the one that it began with.
    tls: Option<Reloaded<rustls::ServerConfig>>,
    proxies: TrustedProxies,
    metrics: Metrics,
    connections: Connections,
    responses: Arc<ResponseLimiter>,
}

impl Listener {
    /// A listener on this socket, with a TLS identity if TLS is terminated here. The limit of
    /// connections from one address does not apply to `proxies`, and the limit of responses counts
    /// the clients behind them.
    pub fn new(
        tcp: TcpListener,
        tls: Option<Reloaded<rustls::ServerConfig>>,
        proxies: TrustedProxies,
        metrics: Metrics,
    ) -> Self {
        let connections = Connections::new(ConnectionLimits::default());
        let limits = ResponseLimits::default();
        let responses = ResponseLimiter::new(limits, proxies.clone(), metrics.clone()).into();
        Self { tcp, tls, proxies, metrics, connections, responses }
    }

    /// Counts its connections together with those of other listeners.
    #[must_use]
    pub fn with_connections(self, connections: Connections) -> Self {
        Self { connections, ..self }
    }

    /// Counts its connections and responses together with those of another listener.
    #[must_use]
    pub fn with_limits_of(self, other: &Self) -> Self {
        let responses = Arc::clone(&other.responses);
        Self { connections: other.connections.clone(), responses, ..self }
    }

    /// Serves until `stop` resolves. Then it accepts no more connections but those that wait
    /// already, shuts the others down gracefully, ends the gateway's streams and gives requests in
    /// flight the time `drain` to finish.
    pub async fn serve(
        self,
        handler: impl Handler,
        stop: impl Future<Output = ()>,
        drain: Duration,
    ) {
        // Shared, because a copy per connection would be larger than the connection's buffers.
        let handler = Arc::new(handler);
        let local = self.tcp.local_addr().ok();
        let scheme = if self.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let responses = self.responses;
        let acceptor = Acceptor::new(self.tcp, self.connections, self.proxies, self.metrics);
        let (shutdown, tasks) = (CancellationToken::new(), TaskTracker::new());
        let mut stop = pin!(stop);
        let mut stopping = false;
        loop {
            let accepted = if stopping {
                // The end of the listener resets the connections that wait for it. The budget of
                // the task (tokio's `coop`) limits their number.
                match acceptor.accept().now_or_never() {
                    Some(accepted) => accepted,
                    None => break,
                }
            } else {
                tokio::select! {
                    accepted = acceptor.accept() => accepted,
                    () = &mut stop => {
                        stopping = true;
                        // The runtime looks for new connections meanwhile.
                        tokio::task::yield_now().await;
                        continue;
                    }
                }
            };
            let Ok((stream, remote)) = accepted else {
                if stopping {
                    break;
                }
                // Most likely the process is out of file descriptors: wait until some are closed.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let connection = Connection {
                handler: Arc::clone(&handler),
                info: ConnectionInfo {
                    local: local.unwrap_or(remote),
                    remote,
                    scheme: scheme.clone(),
                },
                shutdown: shutdown.clone(),
                idle_timeout: HEAD_TIMEOUT,
                responses: Arc::clone(&responses),
                unsent: UnsentResponses::default(),
                response_timeout: RESPONSE_TIMEOUT,
            };
            let tls = self.tls.as_ref().map(|tls| TlsAcceptor::from(tls.get()));
            // A separate task, so that the memory of the handshake is freed with it.
            tasks.spawn(connection.start(stream, tls, tasks.clone()));
        }
        drop(acceptor);
        tasks.close();
        // A connection that is asked to shut down before its first request closes at once, and the
        // request that is on its way fails.
        let _ = tokio::time::timeout(FIRST_REQUEST_TIMEOUT.min(drain), tasks.wait()).await;
        shutdown.cancel();
        // Afterwards, because clients whose streams end at once open them again.
        handler.close_streams();
        let _ = tokio::time::timeout(drain, tasks.wait()).await;
    }
}

struct Connection<H> {
    handler: Arc<H>,
    info: ConnectionInfo,
    shutdown: CancellationToken,
    /// How long an HTTP/2 connection may have no request in flight.
    idle_timeout: Duration,
    /// The broker's own responses on all connections.
    responses: Arc<ResponseLimiter>,
    /// Those on this connection.
    unsent: UnsentResponses,
    /// How long a part of them may be unsent.
    response_timeout: Duration,
}

impl<H: Handler> Connection<H> {
    /// Completes the TLS handshake, if there is TLS, and spawns the task that serves the connection.
    async fn start(self, stream: ClientConnection, tls: Option<TlsAcceptor>, tasks: TaskTracker) {
        let Some(tls) = tls else {
            tasks.spawn(self.serve_http1(stream));
            return;
        };
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream));
        let Ok(Ok(stream)) = handshake.await else { return };
        // On the heap, because a future reserves space for every variable that a value is moved to.
        let stream = Box::new(stream);
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            tasks.spawn(self.serve_http2(stream));
        } else {
            tasks.spawn(self.serve_http1(stream));
        }
    }

    async fn serve_http1<Io>(self, io: Io)
    where
        Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (shutdown, unsent, timeout) =
            (self.shutdown.clone(), self.unsent.clone(), self.response_timeout);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(request_head::MAX_BYTES)
            .serve_connection(TokioIo::new(io), self.service())
            .with_upgrades();
        let mut connection = Box::pin(connection);
        // An aborted connection is not logged; its requests have log lines of their own. hyper has
        // no limit on the time that a client takes to read a response.
        tokio::select! {
            _ = connection.as_mut() => return,
            () = unsent.overdue(timeout) => return,
            () = shutdown.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        tokio::select! {
            _ = connection => {}
            () = unsent.overdue(timeout) => {}
        }
    }

    async fn serve_http2<Io>(self, io: Io)
    where
        Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (shutdown, idle_timeout) = (self.shutdown.clone(), self.idle_timeout);
        let (unsent, timeout) = (self.unsent.clone(), self.response_timeout);
        let requests = ActiveRequests::new();
        let service = requests.clone().count_for(self.service());
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(HTTP2_PING_INTERVAL)
            .keep_alive_timeout(HTTP2_PING_TIMEOUT)
            .max_concurrent_streams(MAX_HTTP2_STREAMS)
            .max_header_list_size(u32::try_from(request_head::MAX_BYTES).unwrap_or(u32::MAX))
            // hyper itself waits for the client's first bytes without a limit.
            .serve_connection(TokioIo::new(PrefaceTimeout::new(io, HEAD_TIMEOUT)), service);
        let mut connection = Box::pin(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = unsent.overdue(timeout) => return,
            () = shutdown.cancelled() => {}
            () = requests.idle_for(idle_timeout) => {}
        }
        connection.as_mut().graceful_shutdown();
        // The shutdown waits for the client to acknowledge it, which it may omit, and for the rest
        // of earlier responses, which it may leave unread.
        tokio::select! {
            _ = connection => {}
            () = unsent.overdue(timeout) => {}
            () = requests.idle_for(idle_timeout) => {}
        }
    }

    /// The service that handles the requests of this connection.
    fn service(
        self,
    ) -> impl Service<
        Request<Incoming>,
        Response = Response<Body>,
        Error = Infallible,
        Future: Send + Unpin + 'static,
    > {
        let this = Arc::new(self);
        service_fn(move |request| {
            let this = Arc::clone(&this);
            // A connection reserves space for this future as long as it lives, also during a watch.
            // The pointer is small, and the boxed future is freed once the response has begun.
            Box::pin(async move { Ok(this.respond(request).await) })
        })
    }

    /// Responds within the limits of unsent responses. A request of the broker's own is refused
    /// before it is handled; a refusal of a forwarded one may lose its body.
    async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        let client = self.responses.client(self.info.remote.ip(), request.headers());
        let slot = if self.handler.is_forwarded(&request) {
            None
        } else {
            match self.responses.try_acquire(client) {
                None => return too_many_responses(),
                slot => slot,
            }
        };
        let response = match HeadError::check(&request) {
            Some(error) => error.response().map(body::full),
            None => self.handler.handle(request, &self.info).await,
        };
        let has_own_limits = response.extensions().get::<body::WithinTenantLimits>().is_some();
        if has_own_limits || response.body().is_end_stream() {
            return response;
        }
        match slot.or_else(|| self.responses.try_acquire(client)) {
            Some(slot) => response.map(|body| self.unsent.track(body, slot)),
            None => without_body(response),
        }
    }
}

/// The response to a client with too many unsent responses. It has no body, because that would be
/// another one.
fn too_many_responses() -> Response<Body> {
    let mut response = Response::new(body::full(Bytes::new()));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

fn without_body(response: Response<Body>) -> Response<Body> {
    let mut response = response.map(|_| body::full(Bytes::new()));
    for name in [header::CONTENT_LENGTH, header::CONTENT_TYPE] {
        response.headers_mut().remove(name);
    }
    response
}
