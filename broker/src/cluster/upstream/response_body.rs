//! Body of an API server's response, streamed from its connection.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio_util::task::AbortOnDropHandle;

use super::http2_pool::Http2Connection;

/// The body of a response. If it is dropped before its end, the request is aborted at the API
/// server too. After a 101 it is empty, and has to be kept until the upgrade has resolved.
#[derive(Debug)]
pub struct UpstreamResponseBody {
    body: Incoming,
    _connection: ResponseConnection,
}

/// Connection that a response uses until it ends.
#[derive(Debug)]
enum ResponseConnection {
    /// Nothing: the connection returns to the pool by itself.
    Pooled,
    /// The task of the connection, which ends with the response. After an upgrade it has ended.
    Dedicated { _task: AbortOnDropHandle<Result<(), hyper::Error>> },
    /// The slot on a shared HTTP/2 connection.
    Shared { _slot: Arc<Http2Connection> },
}

impl UpstreamResponseBody {
    pub(super) fn http1(body: Incoming) -> Self {
        Self { body, _connection: ResponseConnection::Pooled }
    }

    pub(super) fn dedicated(
        body: Incoming,
        task: AbortOnDropHandle<Result<(), hyper::Error>>,
    ) -> Self {
        Self { body, _connection: ResponseConnection::Dedicated { _task: task } }
    }

    pub(super) fn http2(body: Incoming, slot: Arc<Http2Connection>) -> Self {
        Self { body, _connection: ResponseConnection::Shared { _slot: slot } }
    }
}

impl Body for UpstreamResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
