//! What an API server answers, as it comes.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{kept::KeptConnection, shared::SharedConnection};

/// The body of an answer. Dropped before its end, it ends the request at the API server too.
#[derive(Debug)]
pub struct UpstreamAnswer {
    body: Incoming,
    connection: Carrier,
    /// All of it was read.
    ended: bool,
}

/// What the body comes on.
#[derive(Debug)]
enum Carrier {
    /// A connection of its own, driven by whoever reads the body; `None` once that is over.
    Kept(Option<KeptConnection>),
    /// One that a task drives.
    Driven,
    /// A place on one with others.
    Shared { _place: Arc<SharedConnection> },
}

impl UpstreamAnswer {
    pub(super) fn kept(body: Incoming, connection: KeptConnection) -> Self {
        Self { body, connection: Carrier::Kept(Some(connection)), ended: false }
    }

    pub(super) fn driven(body: Incoming) -> Self {
        Self { body, connection: Carrier::Driven, ended: false }
    }

    pub(super) fn shared(body: Incoming, place: Arc<SharedConnection>) -> Self {
        Self { body, connection: Carrier::Shared { _place: place }, ended: false }
    }
}

impl Body for UpstreamAnswer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let mut frame = Pin::new(&mut this.body).poll_frame(context);
        if let Carrier::Kept(kept) = &mut this.connection
            && frame.is_pending()
        {
            if kept.as_mut().is_some_and(|connection| connection.drive(context)) {
                *kept = None;
            }
            frame = Pin::new(&mut this.body).poll_frame(context);
        }
        this.ended |= matches!(frame, Poll::Ready(None));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for UpstreamAnswer {
    fn drop(&mut self) {
        if let Carrier::Kept(kept) = &mut self.connection
            && let Some(connection) = kept.take()
            && (self.ended || self.body.is_end_stream())
        {
            connection.go_home();
        }
    }
}
