//! What a client sends, as it comes.

use std::{
    error::Error as _,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

use super::share::Flow;

/// How long a client may keep the gateway waiting for the next bytes of a body. The request is one of
/// its tenant's at once, and somebody waits for the answer.
const PATIENCE: Duration = Duration::from_mins(1);

/// The body of a client's request. It ends with [`io::ErrorKind::TimedOut`] where that does not go on.
#[derive(Debug)]
pub(super) struct Upload {
    inner: Incoming,
    flow: Flow,
    is_stream: bool,
    /// While the client is waited for. That others take their time does not count.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Upload {
    /// This body, as it flows. That of a stream may be silent as long as the client likes.
    pub(super) fn new(inner: Incoming, flow: Flow, is_stream: bool) -> Self {
        Self { inner, flow, is_stream, waiting: None }
    }

    fn poll_patience(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if self.is_stream {
            return Poll::Pending;
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(PATIENCE)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        ready!(this.flow.poll_ready(context));
        let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(context) else {
            return this.poll_patience(context).map(|error| Some(Err(error)));
        };
        this.waiting = None;
        this.flow.carried(frame.as_ref());
        Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Whether a request to the API server broke off because the client's body did not go on.
pub(super) fn stopped(error: &hyper::Error) -> bool {
    error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>())
        .is_some_and(|source| source.kind() == io::ErrorKind::TimedOut)
        && error.is_user()
}
