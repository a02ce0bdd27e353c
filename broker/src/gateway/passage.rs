//! One request on its way through: what is known of it, what it carried, and the line it leaves in
//! the log when it is over.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tenant_shared::GATEWAY_PATH;
use tokio::sync::OwnedSemaphorePermit;

use super::{
    cut::Why,
    request::Seen,
    share::{Direction, Flow, Meter},
    streams::{Entry, Facts},
    upload::Upload,
};
use crate::telemetry::Metrics;

/// A request on its way. It is over when this is dropped.
#[derive(Debug)]
pub(super) struct Passage {
    entry: Entry,
    facts: Facts,
    request: Arc<Seen>,
    began: Instant,
    status: u16,
    credential: Option<Arc<str>>,
    /// Bytes from the client.
    up: Arc<AtomicU64>,
    /// Bytes from the API server.
    down: Arc<AtomicU64>,
    meter: Meter,
    /// Its place among the tenant's requests.
    _place: OwnedSemaphorePermit,
    ended: Option<&'static str>,
    refused: bool,
    metrics: Metrics,
}

impl Passage {
    /// A request that may pass.
    pub(super) fn new(
        entry: Entry,
        place: OwnedSemaphorePermit,
        meter: Meter,
        facts: Facts,
        request: Arc<Seen>,
        began: Instant,
        metrics: Metrics,
    ) -> Self {
        Self {
            entry,
            facts,
            request,
            began,
            status: 0,
            credential: None,
            up: Arc::default(),
            down: Arc::default(),
            meter,
            _place: place,
            ended: None,
            refused: false,
            metrics,
        }
    }

    /// What flows in this direction.
    pub(super) fn flow(&self, direction: Direction) -> Flow {
        let bytes = match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        };
        Flow::new(self.meter.clone(), direction, Arc::clone(bytes))
    }

    /// What the client sends.
    pub(super) fn upload(&self, body: Incoming) -> Upload {
        Upload::new(body, self.flow(Direction::Up), self.facts.kind.is_stream())
    }

    /// The token that it goes upstream with.
    pub(super) fn goes_as(&mut self, credential: &Arc<str>) {
        self.entry.goes_as(credential);
        self.credential = Some(Arc::clone(credential));
    }

    /// The API server answered. A stream has a line for its begin.
    pub(super) fn answered(&mut self, status: u16) {
        self.status = status;
        self.metrics.request(&self.request.method, GATEWAY_PATH, status, self.seconds());
        if self.facts.kind.is_stream() && status < 300 {
            self.log("stream begins");
        }
    }

    /// Why it is over, where it did not just end.
    pub(super) fn ended(&mut self, why: &'static str) {
        self.ended = Some(why);
    }

    /// It was refused after all; whoever refuses writes the line.
    pub(super) fn refused(mut self) {
        self.refused = true;
    }

    /// Returns once somebody ends it from outside.
    pub(super) async fn cut(&self) -> Why {
        self.entry.cut().happened().await
    }

    fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn log(&self, message: &str) {
        tracing::info!(
            request_id = self.request.id,
            address = self.request.address.map(tracing::field::display),
            method = self.request.method.as_str(),
            path = self.request.path,
            kind = self.facts.kind.as_str(),
            status = self.status,
            duration_ms = (self.seconds() * 1e5).round() / 1e2,
            bytes_up = self.up.load(Ordering::Relaxed),
            bytes_down = self.down.load(Ordering::Relaxed),
            user_id = %self.facts.user,
            session_id = %self.facts.session,
            workspace_id = %self.facts.workspace,
            credential_id = self.credential.as_deref(),
            ended = self.ended,
            "{message}"
        );
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        if self.refused {
            return;
        }
        if self.status == 0 && self.ended.is_none() {
            self.ended = Some("client left");
        }
        let is_stream = self.facts.kind.is_stream() && self.status < 300;
        if is_stream {
            let open = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.meter.share.usage.stream(self.meter.verb, open);
        }
        self.log(if is_stream { "stream ends" } else { "request" });
    }
}

/// What the API server sends, until it ends or is cut. A body that is cut ends with an error, so that
/// no client takes it for whole; and the API server is let go then, even if the client does not read
/// and so never hears of it.
#[derive(Debug)]
pub(super) struct Download<B> {
    /// Empty once it is cut.
    inner: Arc<Mutex<Option<B>>>,
    flow: Flow,
    passage: Passage,
}

impl<B: Send + 'static> Download<B> {
    /// This body, on this passage.
    pub(super) fn new(inner: B, passage: Passage) -> Self {
        let inner = Arc::new(Mutex::new(Some(inner)));
        let held = Arc::clone(&inner);
        passage.entry.cut().releases(move || drop(lock(&held).take()));
        Self { inner, flow: passage.flow(Direction::Down), passage }
    }
}

fn lock<B>(inner: &Mutex<Option<B>>) -> MutexGuard<'_, Option<B>> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<B> Body for Download<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let cut = this.passage.entry.cut().poll(context);
        let mut inner = lock(&this.inner);
        let (Poll::Pending, Some(body)) = (cut, &mut *inner) else {
            drop(inner);
            let why = this.passage.entry.cut().why().map_or("cut", Why::as_str);
            this.passage.ended(why);
            return Poll::Ready(Some(Err(std::io::Error::other(why))));
        };
        ready!(this.flow.poll_ready(context));
        let frame = ready!(Pin::new(body).poll_frame(context));
        drop(inner);
        this.flow.carried(frame.as_ref());
        if let Some(Err(_)) = &frame {
            this.passage.ended("the API server broke off");
        }
        Poll::Ready(match frame {
            // A trailer of an answer is a header that the allow-list has not seen.
            Some(Ok(frame)) if frame.is_trailers() => None,
            frame => frame.map(|frame| frame.map_err(std::io::Error::other)),
        })
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.inner).as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.inner).as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}
