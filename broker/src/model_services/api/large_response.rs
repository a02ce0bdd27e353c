//! Large responses. They hold memory until they are sent, because a client may not read them.
//!
//! The server closes a connection on which a part of 64 KiB is unsent for a minute. A client that
//! reads a little faster could keep a large response for hours, so it has a limit for all parts
//! together, too.

use std::{
    collections::VecDeque,
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

use super::response_text::{LARGE_RESPONSE_BYTES, ResponseText};
use crate::{
    base::rate_limit::ClientNetwork,
    http::{Body, body},
    model_services::{Failure, ModelServices, limits::UnsentReservation},
};

/// The largest part in which a large response is passed on, in bytes.
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
    /// What is not passed on yet.
    rest: VecDeque<Bytes>,
    /// Length of all of it, in bytes.
    length: usize,
    deadline: Instant,
}

impl http_body::Body for LargeBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Some(mut first) = self.rest.pop_front() else { return Poll::Ready(None) };
        if Instant::now() >= self.deadline {
            self.rest.clear();
            self.length = 0;
            let text = "the client does not read the response in time";
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, text))));
        }
        let part = first.split_to(first.len().min(MAX_PART_BYTES));
        if !first.is_empty() {
            self.rest.push_front(first);
        }
        self.length -= part.len();
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length as u64)
    }
}

/// A body with these bytes, which hold a permit until the last one is sent, and which are passed on
/// within this time.
fn large_body<P: Send + Sync + 'static>(bytes: Vec<Bytes>, permit: P, timeout: Duration) -> Body {
    let length = bytes.iter().map(Bytes::len).sum();
    let permit = Arc::new(permit);
    let with_permit = |bytes| body::with_permit(bytes, Arc::clone(&permit));
    let rest = bytes.into_iter().map(with_permit).collect();
    LargeBody { rest, length, deadline: Instant::now() + timeout }.boxed()
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
        let body = large_body(vec![bytes], reservation, SEND_TIMEOUT);
        Ok(Response::from_parts(head, body.into()))
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
        Ok(Some(self.0.limits.unsent.reserve(ClientNetwork::current(), bytes)?))
    }

    /// A reservation of nothing for the response to the current request.
    pub(super) fn begin_response(&self) -> UnsentReservation {
        self.0.limits.unsent.begin(ClientNetwork::current())
    }
}

/// A response with this text, which holds memory until its last part is sent.
pub(super) fn response(ResponseText { parts, reservation }: ResponseText) -> Response {
    let Some(reservation) = reservation else {
        // It has one part.
        return Response::builder().body(parts.into_iter().next().unwrap_or_default());
    };
    let body = large_body(parts, reservation, SEND_TIMEOUT);
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
        let new = |timeout| large_body(vec![vec![7; length].into()], Arc::clone(&permit), timeout);

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

    #[tokio::test]
    async fn a_response_in_parts_is_passed_on_in_their_order() {
        let permit = Arc::new(());
        let lengths = [MAX_PART_BYTES + 1, 1, 2];
        let parts = lengths.iter().zip(1_u8..);
        let parts = parts.map(|(length, byte)| Bytes::from(vec![byte; *length])).collect();
        let mut body = large_body(parts, Arc::clone(&permit), SEND_TIMEOUT);
        let length = lengths.iter().sum::<usize>() as u64;
        assert_eq!(http_body::Body::size_hint(&body).exact(), Some(length));
        let mut received = Vec::new();
        while let Some(frame) = body.frame().await {
            received.push(frame.unwrap().into_data().unwrap());
        }
        let found: Vec<_> = received.iter().map(|part| (part[0], part.len())).collect();
        assert_eq!(found, [(1, MAX_PART_BYTES), (1, 1), (2, 1), (3, 2)]);
        assert_eq!(Arc::strong_count(&permit), 2);
        received.truncate(3);
        assert_eq!(Arc::strong_count(&permit), 2, "a part is unsent");
        drop((body, received));
        assert_eq!(Arc::strong_count(&permit), 1);
    }
}
