//! Accepts connections within two limits: of all connections, and of those from one address.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

use crate::{
    base::{
        rate_limit::{CONNECTIONS_PER_ADDRESS, ClientNetwork, InFlightLimiter, InFlightSlot},
        telemetry::Metrics,
    },
    http::TrustedProxies,
};

/// Limits of concurrent connections, tunnels included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionLimits {
    /// Connections of all clients. Each needs a file descriptor, and a second one while a request of
    /// the gateway is in flight, unless that is a watch.
    pub(super) total: usize,
    /// Connections from one address (IPv6: from one /64 network) that is no trusted proxy. Somebody
    /// with one address can keep that many open and leaves the others to everybody else.
    pub(super) per_client: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { total: 16_384, per_client: 4_096 }
    }
}

/// The connections within the limits. Clones share them: all listeners of a process have one budget
/// of file descriptors.
#[derive(Clone, Debug)]
pub struct Connections {
    total: Arc<Semaphore>,
    clients: Arc<InFlightLimiter>,
}

impl Connections {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        Self {
            total: Arc::new(Semaphore::new(limits.total)),
            clients: InFlightLimiter::new(limits.total, limits.per_client),
        }
    }
}

/// Accepts the connections of one listener.
#[derive(Debug)]
pub(super) struct Acceptor {
    tcp: TcpListener,
    connections: Connections,
    proxies: TrustedProxies,
    metrics: Metrics,
}

impl Acceptor {
    /// An acceptor of the connections of this socket.
    pub(super) fn new(
        tcp: TcpListener,
        connections: Connections,
        proxies: TrustedProxies,
        metrics: Metrics,
    ) -> Self {
        Self { tcp, connections, proxies, metrics }
    }

    /// Waits until the limit of connections allows another one, and accepts it. Connections of an
    /// address that has too many are closed at once.
    ///
    /// # Errors
    /// The process most likely has too many open files.
    pub(super) async fn accept(&self) -> io::Result<(ClientConnection, SocketAddr)> {
        loop {
            let total = Arc::clone(&self.connections.total);
            let permit = total.acquire_owned().await.map_err(io::Error::other)?;
            let (tcp, remote) = self.tcp.accept().await?;
            let Ok(slot) = self.client_slot(remote.ip()) else {
                self.metrics.unauthenticated_refused(CONNECTIONS_PER_ADDRESS);
                continue;
            };
            let _ = tcp.set_nodelay(true);
            return Ok((ClientConnection { tcp, _slot: slot, _permit: permit }, remote));
        }
    }

    /// A slot for a connection from this address; a trusted proxy needs none.
    fn client_slot(&self, address: IpAddr) -> Result<Option<InFlightSlot>, TooManyConnections> {
        if self.proxies.contains(address) {
            return Ok(None);
        }
        let client = ClientNetwork::from_address(Some(address));
        self.connections.clients.try_acquire(client).map(Some).ok_or(TooManyConnections)
    }
}

/// The address has as many connections as one address may have.
#[derive(Debug)]
struct TooManyConnections;

/// A connection. It counts against the limits until it is closed, also while it is a tunnel, which
/// outlives the HTTP connection.
#[derive(Debug)]
pub(super) struct ClientConnection {
    // First field: closed before the permits are released.
    tcp: TcpStream,
    _slot: Option<InFlightSlot>,
    _permit: OwnedSemaphorePermit,
}

impl AsyncRead for ClientConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(context, buffer)
    }
}

impl AsyncWrite for ClientConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}
