//! Requests in flight on one HTTP/2 connection, so that an idle connection can be closed.
//!
//! hyper closes an idle HTTP/1.1 connection, but keeps one of HTTP/2 as long as the client answers
//! PING frames.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::{
    body::Incoming,
    service::{Service, service_fn},
};
use tokio::time::Instant;

use crate::http::Body;

/// The requests in flight of one connection. Clones share the count.
#[derive(Clone, Debug)]
pub(super) struct ActiveRequests(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    count: usize,
    /// When the last request ended, or the connection began.
    idle_since: Instant,
}

/// A request in flight, until it is dropped.
#[derive(Debug)]
struct ActiveRequest(ActiveRequests);

impl ActiveRequests {
    /// The requests of a connection that begins now.
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State { count: 0, idle_since: Instant::now() })))
    }

    /// Counts the requests to a service, each until hyper drops the body of its response.
    pub(super) fn count_for<S>(
        self,
        service: S,
    ) -> impl Service<
        Request<Incoming>,
        Response = Response<CountedBody>,
        Error = Infallible,
        Future: Send + 'static,
    >
    where
        S: Service<
                Request<Incoming>,
                Response = Response<Body>,
                Error = Infallible,
                Future: Send + 'static,
            >,
    {
        service_fn(move |request: Request<Incoming>| {
            let active = self.begin();
            let response = service.call(request);
            let counted = |inner: Body| CountedBody { inner, _active: active };
            async move { response.await.map(|response| response.map(counted)) }
        })
    }

    /// Waits until there was no request in flight for this long, from now on.
    pub(super) async fn idle_for(&self, timeout: Duration) {
        let mut since = Instant::now();
        loop {
            // Requests do not wake this task, because there are many of them.
            tokio::time::sleep_until(since + timeout).await;
            match self.idle_since() {
                Some(idle_since) if idle_since <= since => return,
                Some(idle_since) => since = idle_since,
                None => since = Instant::now(),
            }
        }
    }

    fn begin(&self) -> ActiveRequest {
        self.lock().count += 1;
        ActiveRequest(self.clone())
    }

    /// When the last request ended; `None` while one is in flight.
    fn idle_since(&self) -> Option<Instant> {
        let state = self.lock();
        (state.count == 0).then_some(state.idle_since)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.count = state.count.saturating_sub(1);
        state.idle_since = Instant::now();
    }
}

/// The body of a response. Its request is in flight until it is dropped.
#[derive(Debug)]
pub(super) struct CountedBody {
    inner: Body,
    _active: ActiveRequest,
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn the_idle_time_begins_when_the_last_request_ends() {
        let requests = ActiveRequests::new();
        for _ in 0..2 {
            let called = Instant::now();
            requests.idle_for(TIMEOUT).await;
            assert!(called.elapsed() >= TIMEOUT, "earlier idle time does not count");
        }
        let (first, second) = (requests.begin(), requests.begin());
        let end = async {
            tokio::time::sleep(TIMEOUT * 3).await;
            drop(first);
            tokio::time::sleep(TIMEOUT / 2).await;
            let ended = Instant::now();
            drop(second);
            ended
        };
        let idle = async {
            requests.idle_for(TIMEOUT).await;
            Instant::now()
        };
        let (ended, idle) = tokio::join!(end, idle);
        assert!(idle >= ended + TIMEOUT, "it was idle for {:?}", idle - ended);
    }
}
