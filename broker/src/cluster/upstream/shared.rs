//! Connections of HTTP/2 that many requests share.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{Request, Response};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::{UpstreamAnswer, UpstreamBody, UpstreamError, connector::Connector};

/// Requests at once on one connection; API servers take 250 and more.
const MOST_STREAMS: usize = 100;
/// Bytes of one answer that are on their way at most.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Room for all of them, so that answers which nobody reads hold up no others.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * MOST_STREAMS as u32;
/// How often a silent connection is asked whether it is alive, and how long it may take.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));

/// A connection, as long as anybody uses it or may.
#[derive(Debug)]
pub(super) struct SharedConnection(http2::SendRequest<UpstreamBody>);

/// The connections. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct SharedConnections {
    connector: Arc<Connector>,
    open: Arc<Mutex<Vec<Arc<SharedConnection>>>>,
    /// One at a time opens a connection, and the others find room on it.
    opening: Arc<tokio::sync::Mutex<()>>,
}

impl SharedConnections {
    pub(super) fn new(connector: Arc<Connector>) -> Self {
        Self { connector, open: Arc::default(), opening: Arc::default() }
    }

    /// Sends a request; gives it back if the API server does not speak HTTP/2.
    pub(super) async fn send(
        &self,
        mut request: Request<UpstreamBody>,
    ) -> Result<Result<Response<UpstreamAnswer>, Request<UpstreamBody>>, UpstreamError> {
        loop {
            let Some(connection) = self.connection().await? else { return Ok(Err(request)) };
            match connection.0.clone().try_send_request(request).await {
                Ok(response) => {
                    return Ok(Ok(response.map(|body| UpstreamAnswer::shared(body, connection))));
                }
                Err(mut error) => match error.take_message() {
                    // It was closed meanwhile, and nothing was sent.
                    Some(unsent) => request = unsent,
                    None => return Err(UpstreamError::Connection(error.into_error())),
                },
            }
        }
    }

    /// A connection with room for one more.
    async fn connection(&self) -> Result<Option<Arc<SharedConnection>>, UpstreamError> {
        if let Some(connection) = self.with_room() {
            return Ok(Some(connection));
        }
        let _one = self.opening.lock().await;
        if let Some(connection) = self.with_room() {
            return Ok(Some(connection));
        }
        let Some(io) = self.connector.http2().await? else { return Ok(None) };
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING.0)
            .keep_alive_timeout(PING.1)
            .handshake(io)
            .await
            .map_err(UpstreamError::Connection)?;
        tokio::spawn(connection);
        let connection = Arc::new(SharedConnection(sender));
        self.lock().push(Arc::clone(&connection));
        Ok(Some(connection))
    }

    /// The fullest that has room, so that those which are no longer needed run empty. A place is
    /// taken with the reference.
    fn with_room(&self) -> Option<Arc<SharedConnection>> {
        let mut open = self.lock();
        open.retain(|connection| !connection.0.is_closed());
        let places = |connection: &Arc<SharedConnection>| Arc::strong_count(connection) - 1;
        let fullest = open
            .iter()
            .filter(|connection| places(connection) < MOST_STREAMS)
            .max_by_key(|connection| places(connection))
            .cloned();
        // One empty connection is kept for what comes next.
        let mut spare = 1;
        open.retain(|connection| {
            places(connection) > 0 || {
                spare -= 1;
                spare >= 0
            }
        });
        fullest
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<SharedConnection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
