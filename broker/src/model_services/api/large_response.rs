//! Large responses. They hold memory until they are sent, because a client may not read them.
//!
//! The server closes a connection on which a part of 64 KiB is unsent for a minute. A client that
//! reads a little faster could keep a large response for hours, so it has a limit for all parts
//! together, too.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use poem::Response;
use tokio::time::Instant;

use crate::{
    base::rate_limit::ClientNetwork,
    http::{Body, body},
    model_services::{Failure, ModelServices, limits::UnsentReservation},
};

/// Size from which a response holds memory until it is sent.
const LARGE_RESPONSE_BYTES: usize = 16 * 1024;
/// Length of the parts in which a large response is passed on, in bytes.
const MAX_PART_BYTES: usize = 64 * 1024;
/// How long a large response may take to be passed on. After that time the connection, or with
/// HTTP/2 the stream, is closed.
const SEND_TIMEOUT: Duration = Duration::from_mins(2);

/// An extension of responses that hold memory already.
#[derive(Clone, Copy, Debug)]
struct ReservedMemory;

/// The body of a large response.
#[derive(Debug)]
struct LargeBody {
    rest: Bytes,
    deadline: Instant,
}

impl http_body::Body for LargeBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        if Instant::now() >= self.deadline {
            // `clear` would keep the permit.
            self.rest = Bytes::new();
            let text = "the client does not read the response in time";
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, text))));
        }
        let length = self.rest.len().min(MAX_PART_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

/// A body with these bytes, which hold a permit until the last one is sent, and which are passed on
/// within this time.
fn large_body<P: Send + Sync + 'static>(bytes: Bytes, permit: P, timeout: Duration) -> Body {
    let rest = body::with_permit(bytes, Arc::new(permit));
    LargeBody { rest, deadline: Instant::now() + timeout }.boxed()
}

impl ModelServices {
    /// Reserves memory for a large response until it is sent. That memory is not the one of the API
    /// server's responses, so clients that do not read keep nobody from asking the API server.
    ///
    /// # Errors
    /// Too many large responses to this client, or to all, are not sent yet; the response is larger
    /// than one client's share.
    pub(super) async fn reserve_response_memory(
        &self,
        response: Response,
    ) -> poem::Result<Response> {
        if response.extensions().get::<ReservedMemory>().is_some() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let bytes = body.into_bytes().await?;
        let Some(reservation) = self.reserve_response(bytes.len())? else {
            return Ok(Response::from_parts(head, bytes.into()));
        };
        Ok(Response::from_parts(head, large_body(bytes, reservation, SEND_TIMEOUT).into()))
    }

    /// Reserves memory for a response; `None` for one that is not large.
    ///
    /// # Errors
    /// See [`Self::reserve_response_memory`].
    pub(super) fn reserve_response(
        &self,
        bytes: usize,
    ) -> Result<Option<UnsentReservation>, Failure> {
        if bytes < LARGE_RESPONSE_BYTES {
            return Ok(None);
        }
        self.0.limits.unsent.reserve(ClientNetwork::current(), bytes).map(Some)
    }
}

/// A response with these bytes, which hold memory until the last one is sent.
pub(super) fn response(bytes: Bytes, reservation: Option<UnsentReservation>) -> Response {
    let Some(reservation) = reservation else { return Response::builder().body(bytes) };
    let body = large_body(bytes, reservation, SEND_TIMEOUT);
    Response::builder().extension(ReservedMemory).body(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(500);

    #[tokio::test]
    async fn a_large_response_holds_memory_until_its_last_part_is_sent_or_its_time_is_over() {
        let length = MAX_PART_BYTES * 2 + 1;
        let permit = Arc::new(());
        let new = |timeout| large_body(vec![7; length].into(), Arc::clone(&permit), timeout);

        let mut body = new(SEND_TIMEOUT);
        let mut received = Vec::new();
        while let Some(frame) = body.frame().await {
            assert_eq!(Arc::strong_count(&permit), 2);
            received.push(frame.unwrap().into_data().unwrap());
        }
        let lengths: Vec<usize> = received.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [MAX_PART_BYTES, MAX_PART_BYTES, 1]);
        drop((body, received));
        assert_eq!(Arc::strong_count(&permit), 1);

        let mut body = new(TIMEOUT);
        assert_eq!(http_body::Body::size_hint(&body).exact(), Some(length as u64));
        drop(body.frame().await.unwrap().unwrap());
        tokio::time::sleep(TIMEOUT).await;
        let late = body.frame().await.unwrap().unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        assert_eq!(Arc::strong_count(&permit), 1, "its memory is free");
        assert!(body.frame().await.is_none());
    }
}
