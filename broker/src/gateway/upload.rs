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

/// Why the body of a client's request cannot be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UploadError {
    /// The client sent nothing for [`PATIENCE`].
    #[error("the body of the request stopped: nothing came for a minute")]
    Stopped,
    /// It is not what its framing says: a malformed chunk, or fewer bytes than announced.
    #[error(
        "the body of the request is malformed or incomplete; check its chunks or Content-Length"
    )]
    Malformed,
}

/// The body of a client's request, without trailers: a trailer is a header that nobody checked, and
/// the API server reads none. It ends with an [`UploadError`] where it cannot be forwarded.
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
        Poll::Ready(io::Error::other(UploadError::Stopped))
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
        Poll::Ready(match frame {
            Some(Ok(frame)) if frame.is_trailers() => None,
            Some(Ok(frame)) => Some(Ok(frame)),
            Some(Err(_)) => Some(Err(io::Error::other(UploadError::Malformed))),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl UploadError {
    /// What a request to the API server broke off with, if the client's body is the reason.
    pub(super) fn of(error: &hyper::Error) -> Option<Self> {
        let source = error.source().filter(|_| error.is_user())?.downcast_ref::<io::Error>()?;
        source.get_ref()?.downcast_ref::<Self>().copied()
    }
}
