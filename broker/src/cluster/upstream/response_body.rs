//! Body of an API server's response, streamed from its connection.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{http1_pool::Http1Connection, http2_pool::Http2Connection};

/// The body of a response. If it is dropped before its end, the request is aborted at the API
/// server too.
#[derive(Debug)]
pub struct UpstreamResponseBody {
    body: Incoming,
    connection: ConnectionLease,
    /// The whole body was read.
    is_complete: bool,
}

/// The connection that a body is received on, held until the body is dropped.
#[derive(Debug)]
enum ConnectionLease {
    /// A pooled HTTP/1.1 connection, whose I/O is polled by the reader of the body; `None` once
    /// the connection is closed.
    Http1(Option<Http1Connection>),
    /// A connection with a task of its own.
    Spawned,
    /// A slot on a shared HTTP/2 connection.
    Http2 { _slot: Arc<Http2Connection> },
}

impl UpstreamResponseBody {
    pub(super) fn http1(body: Incoming, connection: Http1Connection) -> Self {
        Self { body, connection: ConnectionLease::Http1(Some(connection)), is_complete: false }
    }

    pub(super) fn spawned(body: Incoming) -> Self {
        Self { body, connection: ConnectionLease::Spawned, is_complete: false }
    }

    pub(super) fn http2(body: Incoming, slot: Arc<Http2Connection>) -> Self {
        Self { body, connection: ConnectionLease::Http2 { _slot: slot }, is_complete: false }
    }
}

impl Body for UpstreamResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let mut frame = Pin::new(&mut this.body).poll_frame(context);
        if let ConnectionLease::Http1(pooled) = &mut this.connection
            && frame.is_pending()
        {
            if pooled.as_mut().is_some_and(|connection| connection.poll_io(context)) {
                *pooled = None;
            }
            frame = Pin::new(&mut this.body).poll_frame(context);
        }
        this.is_complete |= matches!(frame, Poll::Ready(None));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for UpstreamResponseBody {
    fn drop(&mut self) {
        if let ConnectionLease::Http1(pooled) = &mut self.connection
            && let Some(connection) = pooled.take()
            && (self.is_complete || self.body.is_end_stream())
        {
            connection.return_to_pool();
        }
    }
}
