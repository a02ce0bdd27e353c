//! Accepts connections and serves HTTP/1.1 and HTTP/2 on them, within limits: connections, headers and
//! their time. Requests of the gateway go to the gateway as they come; everything else
//! goes to the pages and the API.

use std::{convert::Infallible, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use http::{Request, Response, uri::Scheme};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{
        conn::auto,
        graceful::{GracefulShutdown, Watcher},
    },
};
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

use crate::{
    gateway::{self, Gateway},
    opening::Opening,
    proxy::TrustedProxies,
};

/// Connections at once; each has a file descriptor, and one more for a stream of the gateway.
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
/// Bytes of the head of a request.
const MOST_HEAD_BYTES: usize = 64 * 1024;

/// What answers.
#[derive(Clone)]
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
    pub async fn serve(
        self,
        answering: Answering,
        stop: impl Future<Output = ()>,
        drain: Duration,
    ) {
        let local = self.tcp.local_addr().ok();
        let tls = self.tls.map(TlsAcceptor::from);
        let https = if tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let graceful = GracefulShutdown::new();
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
            let connection =
                Connection { answering: answering.clone(), local, remote, scheme: https.clone() };
            let (tls, watcher) = (tls.clone(), graceful.watcher());
            tokio::spawn(async move {
                let _place = place;
                let _ = stream.set_nodelay(true);
                match tls {
                    None => connection.serve(stream, watcher).await,
                    Some(tls) => {
                        let shaken = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream));
                        if let Ok(Ok(stream)) = shaken.await {
                            connection.serve(stream, watcher).await;
                        }
                    }
                }
            });
        }
        drop(self.tcp);
        answering.gateway.stop();
        let _ = tokio::time::timeout(drain, graceful.shutdown()).await;
    }
}

type Accepted = (TcpStream, SocketAddr, OwnedSemaphorePermit);

/// Waits for room, then for a connection.
async fn accept(listener: &TcpListener, connections: &Arc<Semaphore>) -> Option<Accepted> {
    let place = Arc::clone(connections).acquire_owned().await.ok()?;
    let (stream, remote) = listener.accept().await.ok()?;
    Some((stream, remote, place))
}

struct Connection {
    answering: Answering,
    local: Option<SocketAddr>,
    remote: SocketAddr,
    scheme: Scheme,
}

impl Connection {
    async fn serve<Io>(self, io: Io, watcher: Watcher)
    where
        Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MOST_HEAD_BYTES);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(HTTP2_PING.0)
            .keep_alive_timeout(HTTP2_PING.1)
            .max_concurrent_streams(HTTP2_STREAMS)
            .max_header_list_size(u32::try_from(MOST_HEAD_BYTES).unwrap_or(u32::MAX));
        let this = Arc::new(self);
        let io = TokioIo::new(Opening::new(io, HEAD_TIMEOUT));
        let service = service_fn(move |request| {
            let this = Arc::clone(&this);
            async move { Ok::<_, Infallible>(this.answer(request).await) }
        });
        let connection = builder.serve_connection_with_upgrades(io, service);
        // A client that breaks off is no news; its requests have their lines.
        let _ = watcher.watch(connection.into_owned()).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<gateway::Body> {
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
