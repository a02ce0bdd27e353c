//! Responses of the broker itself that are not sent completely. A client that does not read them,
//! for example with an HTTP/2 window of 0 bytes (RFC 9113 section 6.9.2), cannot make the broker
//! hold many of them, nor hold one for long.
//!
//! Responses that the gateway forwards have limits of their own.

use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use crate::{
    base::{
        rate_limit::{ClientNetwork, InFlightLimiter, InFlightSlot, RESPONSES_AT_ONCE},
        telemetry::Metrics,
    },
    http::{Body, TrustedProxies, body},
};

/// Length of the parts in which a body is passed on, in bytes. Each part has the whole timeout, so
/// that a slow client has time for a long response.
const MAX_PART_BYTES: usize = 64 * 1024;

/// Limits of the broker's own responses in flight: from the request until the last byte of the
/// response is written to the connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseLimits {
    /// Responses to all clients.
    pub(super) total: usize,
    /// Responses to one address (IPv6: to one /64 network).
    pub(super) per_client: usize,
}

impl Default for ResponseLimits {
    fn default() -> Self {
        Self { total: 4_096, per_client: 256 }
    }
}

/// Limits the responses on all connections of a listener.
#[derive(Debug)]
pub(super) struct ResponseLimiter {
    slots: Arc<InFlightLimiter>,
    proxies: TrustedProxies,
    metrics: Metrics,
}

impl ResponseLimiter {
    /// A limiter of responses to clients behind these proxies.
    pub(super) fn new(limits: ResponseLimits, proxies: TrustedProxies, metrics: Metrics) -> Self {
        let slots = InFlightLimiter::new(limits.total, limits.per_client);
        Self { slots, proxies, metrics }
    }

    /// The client of a request that came from this address.
    pub(super) fn client(&self, connection: IpAddr, headers: &HeaderMap) -> ClientNetwork {
        ClientNetwork::from_address(Some(self.proxies.client(connection, headers)))
    }

    /// A slot for a response to this client; `None`, which is counted, if it has too many.
    pub(super) fn try_acquire(&self, client: ClientNetwork) -> Option<InFlightSlot> {
        let slot = self.slots.try_acquire(client);
        if slot.is_none() {
            self.metrics.unauthenticated_refused(RESPONSES_AT_ONCE);
        }
        slot
    }
}

/// The responses of one connection that are not sent completely. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct UnsentResponses(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// When each unsent part was passed on, oldest first.
    parts: BTreeMap<u64, Instant>,
}

impl UnsentResponses {
    /// The body of a response that begins now. The slot is taken until its last byte is sent, or
    /// the connection is closed.
    pub(super) fn track(&self, inner: Body, slot: InFlightSlot) -> Body {
        let slot = Arc::new(slot);
        let first = Some(self.begin(&slot));
        let unsent = self.clone();
        UnsentBody { inner, rest: Bytes::new(), first, slot, unsent }.boxed()
    }

    /// Waits until a part is unsent for this long.
    pub(super) async fn overdue(&self, timeout: Duration) {
        loop {
            // Responses do not wake this task, because there are many of them: a part that begins
            // meanwhile is due later.
            let due = self.oldest().unwrap_or_else(Instant::now) + timeout;
            if due <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(due).await;
        }
    }

    fn oldest(&self) -> Option<Instant> {
        self.lock().parts.values().next().copied()
    }

    fn begin(&self, slot: &Arc<InFlightSlot>) -> Arc<UnsentPart> {
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        state.parts.insert(id, Instant::now());
        Arc::new(UnsentPart { unsent: self.clone(), id, _slot: Arc::clone(slot) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of a response, until it is sent or dropped.
#[derive(Debug)]
struct UnsentPart {
    unsent: UnsentResponses,
    id: u64,
    _slot: Arc<InFlightSlot>,
}

impl Drop for UnsentPart {
    fn drop(&mut self) {
        self.unsent.lock().parts.remove(&self.id);
    }
}

/// A body that is passed on in parts, each of which is unsent until the server has written it.
#[derive(Debug)]
struct UnsentBody {
    inner: Body,
    /// The rest of a frame of `inner`.
    rest: Bytes,
    /// The first part. It is unsent before hyper asks for it.
    first: Option<Arc<UnsentPart>>,
    slot: Arc<InFlightSlot>,
    unsent: UnsentResponses,
}

impl http_body::Body for UnsentBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.inner).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let data = this.rest.split_to(this.rest.len().min(MAX_PART_BYTES));
        let part = this.first.take().unwrap_or_else(|| this.unsent.begin(&this.slot));
        Poll::Ready(Some(Ok(Frame::data(body::with_permit(data, part)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.inner.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(inner.lower().saturating_add(rest));
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use http_body::Body as _;

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(50);
    /// Time limit of the wait for a part that is overdue.
    const STEP_TIMEOUT: Duration = Duration::from_secs(10);

    fn client() -> ClientNetwork {
        ClientNetwork::V4(Ipv4Addr::LOCALHOST)
    }

    #[tokio::test]
    async fn a_response_has_its_slot_until_its_last_part_is_dropped() {
        let limiter = InFlightLimiter::new(1, 1);
        let slot = limiter.try_acquire(client()).unwrap();
        let unsent = UnsentResponses::default();
        let length = MAX_PART_BYTES + 1;
        let mut tracked = unsent.track(body::full(vec![7_u8; length].into()), slot);
        let mut parts: Vec<Bytes> = Vec::new();
        while !tracked.is_end_stream() {
            let passed_on: usize = parts.iter().map(Bytes::len).sum();
            assert_eq!(tracked.size_hint().exact(), Some((length - passed_on) as u64));
            parts.push(tracked.frame().await.unwrap().unwrap().into_data().unwrap());
        }
        let lengths: Vec<usize> = parts.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [MAX_PART_BYTES, 1]);
        drop(tracked);
        for part in parts {
            assert!(limiter.try_acquire(client()).is_none() && unsent.oldest().is_some());
            drop(part);
        }
        assert!(limiter.try_acquire(client()).is_some());
        assert_eq!(unsent.oldest(), None);
    }

    #[tokio::test]
    async fn an_unsent_part_is_overdue_although_later_ones_are_sent() {
        let limiter = InFlightLimiter::new(9, 9);
        let unsent = UnsentResponses::default();
        let waiting = unsent.clone();
        let overdue = tokio::spawn(async move {
            waiting.overdue(TIMEOUT).await;
            Instant::now()
        });
        let begin = || {
            let slot = limiter.try_acquire(client()).unwrap();
            unsent.track(body::full(Bytes::from_static(b"a")), slot)
        };
        for _ in 0..5 {
            drop(begin());
            tokio::time::sleep(TIMEOUT / 2).await;
        }
        assert!(!overdue.is_finished(), "each was sent at once");
        let (start, _unread) = (Instant::now(), begin());
        while !overdue.is_finished() {
            assert!(start.elapsed() < STEP_TIMEOUT, "nobody notices");
            drop(begin());
            tokio::time::sleep(TIMEOUT / 4).await;
        }
        assert!(overdue.await.unwrap() >= start + TIMEOUT);
    }
}
