//! Pool of HTTP/2 connections, each shared by many requests. hyper-util's client has one connection
//! for each server, on which requests beyond the server's limit of streams wait.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{Request, Response, Uri};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::{UpstreamError, UpstreamRequestBody, UpstreamResponseBody, connector::Connector};

/// Concurrent requests on one connection. API servers accept 100 by default, and count a request
/// until they have noticed its end.
const MAX_CONCURRENT_STREAMS: usize = 80;
/// Flow-control window of one response: bytes that may be in flight.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Flow-control window of a connection. It covers the windows of all its streams, so that
/// responses which nobody reads hold up no others.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * MAX_CONCURRENT_STREAMS as u32;
/// How often a connection is checked with a PING frame.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long the acknowledgement of a PING frame may take before the connection counts as dead.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection. Each request in flight holds a reference to it.
#[derive(Debug)]
pub(super) struct Http2Connection(http2::SendRequest<UpstreamRequestBody>);

/// The pool. Clones share its connections.
#[derive(Clone, Debug)]
pub(super) struct Http2Pool {
    connector: Connector,
    url: Uri,
    connections: Arc<Mutex<Vec<Arc<Http2Connection>>>>,
    /// One request at a time opens a connection; the others then find capacity on it.
    connect_lock: Arc<tokio::sync::Mutex<()>>,
}

impl Http2Pool {
    pub(super) fn new(connector: Connector, url: Uri) -> Self {
        Self { connector, url, connections: Arc::default(), connect_lock: Arc::default() }
    }

    /// Sends a request; gives it back if the API server does not support HTTP/2.
    pub(super) async fn send(
        &self,
        mut request: Request<UpstreamRequestBody>,
    ) -> Result<Result<Response<UpstreamResponseBody>, Request<UpstreamRequestBody>>, UpstreamError>
    {
        loop {
            let Some(connection) = self.get_or_connect().await? else { return Ok(Err(request)) };
            match connection.0.clone().try_send_request(request).await {
                Ok(response) => {
                    let response =
                        response.map(|body| UpstreamResponseBody::http2(body, connection));
                    return Ok(Ok(response));
                }
                Err(mut error) => match error.take_message() {
                    // The connection was closed meanwhile, and nothing was sent.
                    Some(unsent) => request = unsent,
                    None => return Err(UpstreamError::Connection(error.into_error().into())),
                },
            }
        }
    }

    /// A connection with capacity for one more request.
    async fn get_or_connect(&self) -> Result<Option<Arc<Http2Connection>>, UpstreamError> {
        if let Some(connection) = self.fullest_with_capacity() {
            return Ok(Some(connection));
        }
        let _connecting = self.connect_lock.lock().await;
        if let Some(connection) = self.fullest_with_capacity() {
            return Ok(Some(connection));
        }
        let io = self.connector.http2(self.url.clone()).await.map_err(UpstreamError::Connect)?;
        let Some(io) = io else { return Ok(None) };
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(io)
            .await
            .map_err(|error| UpstreamError::Connection(error.into()))?;
        tokio::spawn(connection);
        let connection = Arc::new(Http2Connection(sender));
        self.lock().push(Arc::clone(&connection));
        Ok(Some(connection))
    }

    /// The fullest connection that has capacity, so that connections which are no longer needed
    /// drain. The returned reference occupies a slot on the connection.
    fn fullest_with_capacity(&self) -> Option<Arc<Http2Connection>> {
        let mut connections = self.lock();
        connections.retain(|connection| !connection.0.is_closed());
        let in_flight = |connection: &Arc<Http2Connection>| Arc::strong_count(connection) - 1;
        let fullest = connections
            .iter()
            .filter(|connection| in_flight(connection) < MAX_CONCURRENT_STREAMS)
            .max_by_key(|connection| in_flight(connection))
            .cloned();
        // One idle connection is kept for the next request.
        let mut spare = 1;
        connections.retain(|connection| {
            in_flight(connection) > 0 || {
                spare -= 1;
                spare >= 0
            }
        });
        fullest
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Http2Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
