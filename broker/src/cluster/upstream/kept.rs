//! Connections of HTTP/1.1, each for one request at a time, kept for the next.
//!
//! Whoever waits for an answer drives its connection, and no task of its own does: no request is
//! handed from task to task and from core to core.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1},
};

use super::{Io, UpstreamAnswer, UpstreamBody, UpstreamError, connector::Connector};

/// How long an idle connection is kept; shorter than API servers keep theirs (Go: 3 minutes).
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// Idle connections that are kept.
const MOST_IDLE: usize = 128;

/// A connection that takes one request at a time.
#[derive(Debug)]
pub(super) struct KeptConnection {
    sender: http1::SendRequest<UpstreamBody>,
    connection: Box<http1::Connection<Io, UpstreamBody>>,
    home: Arc<Idle>,
}

/// Connections that wait for a request, the last one used on top, each with the thread that it was
/// used on: its events come there.
#[derive(Debug, Default)]
struct Idle(Mutex<Vec<(Instant, ThreadId, KeptConnection)>>);

/// The connections. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct KeptConnections {
    connector: Arc<Connector>,
    idle: Arc<Idle>,
}

impl KeptConnections {
    pub(super) fn new(connector: Arc<Connector>) -> Self {
        Self { connector, idle: Arc::default() }
    }

    /// Sends a request in the form of HTTP/1.1.
    pub(super) async fn send(
        &self,
        mut request: Request<UpstreamBody>,
    ) -> Result<Response<UpstreamAnswer>, UpstreamError> {
        loop {
            let kept = self.idle.take();
            let is_new = kept.is_none();
            let mut connection = match kept {
                Some(connection) => connection,
                None => Box::pin(self.new_connection()).await?,
            };
            match connection.ask(request).await {
                Ok(response) => {
                    return Ok(response.map(|body| UpstreamAnswer::kept(body, connection)));
                }
                Err(mut error) => match error.take_message() {
                    // It was closed while it was kept, and nothing was sent.
                    Some(unsent) if !is_new => request = unsent,
                    _ => return Err(UpstreamError::Connection(error.into_error())),
                },
            }
        }
    }

    async fn new_connection(&self) -> Result<KeptConnection, UpstreamError> {
        let (sender, connection) = self.open().await?;
        let (connection, home) = (Box::new(connection), Arc::clone(&self.idle));
        Ok(KeptConnection { sender, connection, home })
    }

    /// Sends a request after which the connection may be another protocol's.
    pub(super) async fn send_for_upgrade(
        &self,
        request: Request<UpstreamBody>,
    ) -> Result<Response<UpstreamAnswer>, UpstreamError> {
        let (mut sender, connection) = self.open().await?;
        tokio::spawn(connection.with_upgrades());
        let response = sender.send_request(request).await.map_err(UpstreamError::Connection)?;
        Ok(response.map(UpstreamAnswer::driven))
    }

    async fn open(
        &self,
    ) -> Result<
        (http1::SendRequest<UpstreamBody>, http1::Connection<Io, UpstreamBody>),
        UpstreamError,
    > {
        let io = self.connector.http1().await?;
        http1::handshake(io).await.map_err(UpstreamError::Connection)
    }
}

impl KeptConnection {
    async fn ask(
        &mut self,
        request: Request<UpstreamBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<UpstreamBody>>> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let connection = &mut self.connection;
        let mut open = true;
        poll_fn(|context| {
            if let Poll::Ready(answered) = answer.as_mut().poll(context) {
                return Poll::Ready(answered);
            }
            open = open && Pin::new(&mut **connection).poll(context).is_pending();
            // A connection that ends answers first, if only with an error.
            answer.as_mut().poll(context)
        })
        .await
    }

    /// Goes on with what is under way; true once the connection is over.
    pub(super) fn drive(&mut self, context: &mut Context<'_>) -> bool {
        Pin::new(&mut *self.connection).poll(context).is_ready()
    }

    /// Keeps the connection for the next request, if it is ready for one.
    pub(super) fn go_home(mut self) {
        let home = Arc::clone(&self.home);
        if self.is_ready() {
            home.put(self);
        }
    }

    fn is_ready(&mut self) -> bool {
        !self.drive(&mut Context::from_waker(Waker::noop())) && self.sender.is_ready()
    }
}

impl Idle {
    fn take(&self) -> Option<KeptConnection> {
        loop {
            let (since, mut connection) = self.last_of(thread::current().id())?;
            // Nobody looked at it while it waited: the API server may have closed it.
            if since.elapsed() < IDLE_TIMEOUT && connection.is_ready() {
                return Some(connection);
            }
        }
    }

    fn last_of(&self, thread: ThreadId) -> Option<(Instant, KeptConnection)> {
        let mut idle = self.lock();
        let last = idle.iter().rposition(|(_, of, _)| *of == thread)?;
        let (since, _, connection) = idle.remove(last);
        Some((since, connection))
    }

    fn put(&self, connection: KeptConnection) {
        let now = Instant::now();
        let mut idle = self.lock();
        let old = idle.partition_point(|(since, ..)| now - *since >= IDLE_TIMEOUT);
        let gone: Vec<_> = idle.drain(..old).collect();
        if idle.len() < MOST_IDLE {
            idle.push((now, thread::current().id(), connection));
        }
        drop(idle);
        drop(gone);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Instant, ThreadId, KeptConnection)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
