//! Request bodies of clients, streamed to the API server.

use std::{
    error::Error,
    io, iter,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

use super::discard::Discarder;
use crate::gateway::limits::BodyMeter;

/// How long the gateway waits for the next bytes of a body. The limit is needed because the request
/// counts against the tenant's concurrent requests.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// The body of a client's request cannot be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::gateway) enum UploadError {
    /// The client sent nothing for [`IDLE_TIMEOUT`].
    #[error("the body of the request stalled: no bytes arrived for a minute")]
    Stalled,
    /// Its framing is invalid: a malformed chunk, or fewer bytes than announced.
    #[error(
        "the body of the request is malformed or incomplete; check its chunks or Content-Length"
    )]
    Malformed,
}

/// The body of a client's request. Trailers are dropped, because they are headers that were not
/// checked, and the API server reads none. A body that cannot be forwarded ends with an
/// [`UploadError`].
#[derive(Debug)]
pub(in crate::gateway) struct Upload {
    /// `None` once it is discarded.
    inner: Option<Incoming>,
    meter: BodyMeter,
    is_stream: bool,
    discarder: Discarder,
    /// Runs only while the gateway waits for the client, not while it waits for the API server.
    idle_timer: Option<Pin<Box<Sleep>>>,
}

impl Upload {
    /// Wraps a body. The body of a stream has no idle timeout.
    pub(in crate::gateway) fn new(
        inner: Incoming,
        meter: BodyMeter,
        is_stream: bool,
        discarder: Discarder,
    ) -> Self {
        Self { inner: Some(inner), meter, is_stream, discarder, idle_timer: None }
    }

    fn poll_timeout(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if self.is_stream {
            return Poll::Pending;
        }
        let idle_timer =
            self.idle_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(IDLE_TIMEOUT)));
        ready!(idle_timer.as_mut().poll(context));
        Poll::Ready(io::Error::other(UploadError::Stalled))
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
        ready!(this.meter.poll_ready(context));
        let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
        let Poll::Ready(frame) = Pin::new(inner).poll_frame(context) else {
            let error = ready!(this.poll_timeout(context));
            // A client that sends nothing has nothing to be discarded.
            this.inner = None;
            return Poll::Ready(Some(Err(error)));
        };
        this.idle_timer = None;
        this.meter.record_frame(frame.as_ref());
        Poll::Ready(match frame {
            Some(Ok(frame)) if frame.is_trailers() => None,
            Some(Ok(frame)) => Some(Ok(frame)),
            Some(Err(_)) => Some(Err(io::Error::other(UploadError::Malformed))),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

/// The API server may respond before it has read the whole body, and close the connection. hyper
/// drops this then.
impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take().filter(|_| !self.is_stream) {
            self.discarder.discard(inner);
        }
    }
}

impl UploadError {
    /// The error of the client's body, if that is why a request to the API server failed.
    pub(in crate::gateway) fn find_in(error: &(dyn Error + 'static)) -> Option<Self> {
        iter::successors(Some(error), |error| Error::source(*error)).find_map(|error| {
            error.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref::<Self>().copied()
        })
    }
}
