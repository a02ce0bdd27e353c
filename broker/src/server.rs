//! Accepts connections and serves HTTP/1.1 and HTTP/2 on them, within limits: connections, headers and
//! their time. With TLS the client chooses (ALPN), without it is HTTP/1.1. Requests of the gateway go
//! to the gateway as they come; everything else goes to the pages and the API.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use http::{Request, Response, uri::Scheme};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::{Service, service_fn},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use poem::{
    Endpoint as _,
    endpoint::BoxEndpoint,
    web::{LocalAddr, RemoteAddr},
};
use tenant_shared::GATEWAY_PATH;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    gateway::{self, Gateway},
    lanes::Lanes,
    opening::Opening,
    proxy::TrustedProxies,
    request_head::{self, HeadError},
};

/// Connections at once; each has a file descriptor, and one more for a request of the gateway under
/// way, unless that is a watch.
const MOST_CONNECTIONS: usize = 16_384;
/// How long a handshake may take. They have no limit of their own: whoever does not go on with one
/// would keep others from beginning theirs.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the first bytes and the head of a request may take, and how long an idle HTTP/1.1
/// connection is kept.
const HEAD_TIMEOUT: Duration = Duration::from_mins(1);
/// How often a silent HTTP/2 connection is asked whether it is alive, and how long it may take.
const HTTP2_PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));
/// Requests at once on one HTTP/2 connection, as many as API servers take.
const HTTP2_STREAMS: u32 = 250;

/// What answers.
pub struct Answering {
    /// Requests below `/clusters/`.
    pub gateway: Gateway,
    /// The proxies whose word counts for where a request came from.
    pub proxies: TrustedProxies,
    /// All others.
    pub pages: Arc<BoxEndpoint<'static, poem::Response>>,
}

impl std::fmt::Debug for Answering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Answering")
    }
}

/// A bound listener and how it speaks.
#[derive(Debug)]
pub struct Listener {
    /// Where.
    pub tcp: TcpListener,
    /// TLS, if it is served here.
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

impl Listener {
    /// Serves until `stop` resolves; then accepts nothing more, tells clients to go elsewhere, ends
    /// the gateway's streams and lets requests under way finish for `drain`.
    ///
    /// # Errors
    /// The threads for it cannot be started.
    pub async fn serve(
        self,
        answering: Answering,
        stop: impl Future<Output = ()>,
        drain: Duration,
    ) -> io::Result<()> {
        let lanes = Lanes::start()?;
        // Shared, for each connection would keep a copy of it: more than its buffers take.
        let answering = Arc::new(answering);
        let local = self.tcp.local_addr().ok();
        let tls = self.tls.map(TlsAcceptor::from);
        let https = if tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let (ending, serving) = (CancellationToken::new(), TaskTracker::new());
        let mut stop = pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = accept(&self.tcp, &connections) => accepted,
                () = &mut stop => break,
            };
            let Some((stream, remote, place)) = accepted else {
                // Out of file descriptors, most likely: give others time to close some.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let connection = Connection {
                answering: Arc::clone(&answering),
                local,
                remote,
                scheme: https.clone(),
                ending: ending.clone(),
            };
            let (tls, serving_then) = (tls.clone(), serving.clone());
            // A task of its own, so that the room that a handshake needs goes with it.
            let begin = async move {
                // Its events come to the thread that it is served on.
                let Ok(stream) = TcpStream::from_std(stream) else { return };
                let Some(tls) = tls else {
                    serving_then.spawn(connection.serve_http1(stream, place));
                    return;
                };
                let shaken = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream));
                let Ok(Ok(stream)) = shaken.await else { return };
                // On the heap, for a future keeps room for each place that a value is moved to.
                let stream = Box::new(stream);
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    serving_then.spawn(connection.serve_http2(stream, place));
                } else {
                    serving_then.spawn(connection.serve_http1(stream, place));
                }
            };
            serving.spawn_on(begin, lanes.next());
        }
        drop(self.tcp);
        answering.gateway.stop();
        ending.cancel();
        serving.close();
        let _ = tokio::time::timeout(drain, serving.wait()).await;
        lanes.write_log_lines().await;
        Ok(())
    }
}

type Accepted = (std::net::TcpStream, SocketAddr, OwnedSemaphorePermit);

/// Waits for room, then for a connection.
async fn accept(listener: &TcpListener, connections: &Arc<Semaphore>) -> Option<Accepted> {
    let place = Arc::clone(connections).acquire_owned().await.ok()?;
    let (stream, remote) = listener.accept().await.ok()?;
    let _ = stream.set_nodelay(true);
    Some((stream.into_std().ok()?, remote, place))
}

struct Connection {
    answering: Arc<Answering>,
    local: Option<SocketAddr>,
    remote: SocketAddr,
    scheme: Scheme,
    ending: CancellationToken,
}

impl Connection {
    async fn serve_http1<Io>(self, io: Io, _place: OwnedSemaphorePermit)
    where
        Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let ending = self.ending.clone();
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(request_head::MOST_BYTES)
            .serve_connection(TokioIo::new(io), self.service())
            .with_upgrades();
        until(ending, Box::pin(connection), http1::UpgradeableConnection::graceful_shutdown).await;
    }

    async fn serve_http2<Io>(self, io: Io, _place: OwnedSemaphorePermit)
    where
        Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let ending = self.ending.clone();
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(HTTP2_PING.0)
            .keep_alive_timeout(HTTP2_PING.1)
            .max_concurrent_streams(HTTP2_STREAMS)
            .max_header_list_size(u32::try_from(request_head::MOST_BYTES).unwrap_or(u32::MAX))
            // hyper waits for the client's first bytes here without a limit.
            .serve_connection(TokioIo::new(Opening::new(io, HEAD_TIMEOUT)), self.service());
        until(ending, Box::pin(connection), http2::Connection::graceful_shutdown).await;
    }

    /// Answers the requests of the connection.
    fn service(
        self,
    ) -> impl Service<
        Request<Incoming>,
        Response = Response<gateway::Body>,
        Error = Infallible,
        Future: Send + Unpin + 'static,
    > {
        let this = Arc::new(self);
        service_fn(move |request| {
            let this = Arc::clone(&this);
            // A connection keeps room for one of these as long as it lives, a watch's too; the
            // pointer is small, and what it points to goes once the answer has begun.
            Box::pin(async move { Ok(this.answer(request).await) })
        })
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<gateway::Body> {
        if let Some(error) = HeadError::of(&request) {
            return error.response().map(gateway::whole);
        }
        if request.uri().path().starts_with(GATEWAY_PATH) {
            let address = self.answering.proxies.client(self.remote.ip(), request.headers());
            return self.answering.gateway.answer(request, Some(address)).await;
        }
        let local = self.local.unwrap_or(self.remote);
        let request = poem::Request::from((
            request,
            LocalAddr(local.into()),
            RemoteAddr(self.remote.into()),
            self.scheme.clone(),
        ));
        self.answering.pages.get_response(request).await.into()
    }
}

/// Serves a connection to its end, which is asked for once everything is to end.
async fn until<C: Future>(
    ending: CancellationToken,
    mut connection: Pin<Box<C>>,
    shut: fn(Pin<&mut C>),
) {
    // A client that breaks off is no news; its requests have their lines.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = ending.cancelled() => shut(connection.as_mut()),
    }
    let _ = connection.await;
}
