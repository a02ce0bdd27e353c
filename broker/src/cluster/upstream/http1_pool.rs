//! Pool of HTTP/1.1 connections. Each serves one request at a time and is kept for the next.
//!
//! The task that waits for a response polls the connection's I/O itself; no connection has a task
//! of its own. So no request is handed from task to task and from core to core.

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

use super::{Io, UpstreamError, UpstreamRequestBody, UpstreamResponseBody, connector::Connector};

/// How long an idle connection is kept. It is shorter than the idle timeout of API servers (Go: 3
/// minutes).
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// The number of idle connections that the pool keeps.
const MAX_IDLE: usize = 128;

/// A connection that takes one request at a time.
#[derive(Debug)]
pub(super) struct Http1Connection {
    sender: http1::SendRequest<UpstreamRequestBody>,
    connection: Box<http1::Connection<Io, UpstreamRequestBody>>,
    pool: Arc<IdleConnections>,
}

/// Idle connections, the most recently used last. Each is kept with the thread that it was used
/// on, because its I/O events are delivered there.
#[derive(Debug, Default)]
struct IdleConnections(Mutex<Vec<(Instant, ThreadId, Http1Connection)>>);

/// The pool. Clones share its connections.
#[derive(Clone, Debug)]
pub(super) struct Http1Pool {
    connector: Arc<Connector>,
    idle: Arc<IdleConnections>,
}

impl Http1Pool {
    pub(super) fn new(connector: Arc<Connector>) -> Self {
        Self { connector, idle: Arc::default() }
    }

    /// Sends a request whose URI is in origin form.
    pub(super) async fn send(
        &self,
        mut request: Request<UpstreamRequestBody>,
    ) -> Result<Response<UpstreamResponseBody>, UpstreamError> {
        loop {
            let idle = self.idle.pop();
            let is_new = idle.is_none();
            let mut connection = match idle {
                Some(connection) => connection,
                None => Box::pin(self.connect()).await?,
            };
            match connection.send(request).await {
                Ok(response) => {
                    return Ok(response.map(|body| UpstreamResponseBody::http1(body, connection)));
                }
                Err(mut error) => match error.take_message() {
                    // The connection was closed while it was idle, and nothing was sent.
                    Some(unsent) if !is_new => request = unsent,
                    _ => return Err(UpstreamError::Connection(error.into_error())),
                },
            }
        }
    }

    async fn connect(&self) -> Result<Http1Connection, UpstreamError> {
        let (sender, connection) = self.handshake().await?;
        let (connection, pool) = (Box::new(connection), Arc::clone(&self.idle));
        Ok(Http1Connection { sender, connection, pool })
    }

    /// Sends a request on a new connection, which may switch to another protocol after the
    /// response's head.
    pub(super) async fn send_for_upgrade(
        &self,
        request: Request<UpstreamRequestBody>,
    ) -> Result<Response<UpstreamResponseBody>, UpstreamError> {
        let (mut sender, connection) = self.handshake().await?;
        tokio::spawn(connection.with_upgrades());
        let response = sender.send_request(request).await.map_err(UpstreamError::Connection)?;
        Ok(response.map(UpstreamResponseBody::spawned))
    }

    async fn handshake(
        &self,
    ) -> Result<
        (http1::SendRequest<UpstreamRequestBody>, http1::Connection<Io, UpstreamRequestBody>),
        UpstreamError,
    > {
        let io = self.connector.http1().await?;
        http1::handshake(io).await.map_err(UpstreamError::Connection)
    }
}

impl Http1Connection {
    async fn send(
        &mut self,
        request: Request<UpstreamRequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<UpstreamRequestBody>>> {
        let mut response = pin!(self.sender.try_send_request(request));
        let connection = &mut self.connection;
        let mut is_open = true;
        poll_fn(|context| {
            if let Poll::Ready(response) = response.as_mut().poll(context) {
                return Poll::Ready(response);
            }
            is_open = is_open && Pin::new(&mut **connection).poll(context).is_pending();
            // A connection that ends completes the response first, if only with an error.
            response.as_mut().poll(context)
        })
        .await
    }

    /// Polls the I/O of the request in flight; true once the connection is closed.
    pub(super) fn poll_io(&mut self, context: &mut Context<'_>) -> bool {
        Pin::new(&mut *self.connection).poll(context).is_ready()
    }

    /// Returns the connection to the pool, if it is ready for another request.
    pub(super) fn return_to_pool(mut self) {
        let pool = Arc::clone(&self.pool);
        if self.is_ready() {
            pool.push(self);
        }
    }

    fn is_ready(&mut self) -> bool {
        !self.poll_io(&mut Context::from_waker(Waker::noop())) && self.sender.is_ready()
    }
}

impl IdleConnections {
    fn pop(&self) -> Option<Http1Connection> {
        loop {
            let (since, mut connection) = self.pop_for_thread(thread::current().id())?;
            // Nothing polled it while it was idle, so the API server may have closed it.
            if since.elapsed() < IDLE_TIMEOUT && connection.is_ready() {
                return Some(connection);
            }
        }
    }

    fn pop_for_thread(&self, thread: ThreadId) -> Option<(Instant, Http1Connection)> {
        let mut idle = self.lock();
        let last = idle.iter().rposition(|(_, used_on, _)| *used_on == thread)?;
        let (since, _, connection) = idle.remove(last);
        Some((since, connection))
    }

    fn push(&self, connection: Http1Connection) {
        let now = Instant::now();
        let mut idle = self.lock();
        let expired = idle.partition_point(|(since, ..)| now - *since >= IDLE_TIMEOUT);
        let evicted: Vec<_> = idle.drain(..expired).collect();
        if idle.len() < MAX_IDLE {
            idle.push((now, thread::current().id(), connection));
        }
        drop(idle);
        drop(evicted);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Instant, ThreadId, Http1Connection)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
