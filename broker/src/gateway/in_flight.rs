//! Requests in flight: their accounting, and the log line of each when it ends.

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
    cancel::CloseReason,
    limiter::{BodyMeter, Direction, UsageMeter},
    request::RequestSummary,
    streams::{Registration, StreamInfo},
    upload::Upload,
};
use crate::base::telemetry::Metrics;

/// A request or stream in flight. It ends, and is logged, when this is dropped.
#[derive(Debug)]
pub(super) struct InFlightRequest {
    registration: Registration,
    info: StreamInfo,
    request: Arc<RequestSummary>,
    started_at: Instant,
    status: u16,
    credential: Option<Arc<str>>,
    /// Bytes from the client.
    bytes_up: Arc<AtomicU64>,
    /// Bytes from the API server.
    bytes_down: Arc<AtomicU64>,
    usage_meter: UsageMeter,
    /// Counts against the tenant's limit of concurrent requests or streams.
    _permit: OwnedSemaphorePermit,
    end_reason: Option<&'static str>,
    refused: bool,
    metrics: Metrics,
}

impl InFlightRequest {
    /// Starts the accounting of a request that is within the limits.
    pub(super) fn new(
        registration: Registration,
        permit: OwnedSemaphorePermit,
        usage_meter: UsageMeter,
        info: StreamInfo,
        request: Arc<RequestSummary>,
        started_at: Instant,
        metrics: Metrics,
    ) -> Self {
        Self {
            registration,
            info,
            request,
            started_at,
            status: 0,
            credential: None,
            bytes_up: Arc::default(),
            bytes_down: Arc::default(),
            usage_meter,
            _permit: permit,
            end_reason: None,
            refused: false,
            metrics,
        }
    }

    /// A meter for the bytes in this direction.
    pub(super) fn body_meter(&self, direction: Direction) -> BodyMeter {
        let bytes = match direction {
            Direction::Up => &self.bytes_up,
            Direction::Down => &self.bytes_down,
        };
        BodyMeter::new(self.usage_meter.clone(), direction, Arc::clone(bytes))
    }

    /// The request body, metered.
    pub(super) fn upload(&self, body: Incoming) -> Upload {
        Upload::new(body, self.body_meter(Direction::Up), self.info.kind.is_stream())
    }

    /// Sets the credential that the request is sent with.
    pub(super) fn set_credential(&mut self, credential: &Arc<str>) {
        self.registration.set_credential(credential);
        self.credential = Some(Arc::clone(credential));
    }

    /// Records the status of the response. The start of a stream is logged.
    pub(super) fn response_started(&mut self, status: u16) {
        self.status = status;
        self.metrics.request(&self.request.method, GATEWAY_PATH, status, self.seconds());
        if self.info.kind.is_stream() && status < 300 {
            self.log("stream started");
        }
    }

    /// Sets the reason of an end that is not the normal one.
    pub(super) fn set_end_reason(&mut self, reason: &'static str) {
        self.end_reason = Some(reason);
    }

    /// Drops the request without a log line, because the refusal is logged elsewhere.
    pub(super) fn mark_refused(mut self) {
        self.refused = true;
    }

    /// Waits until the request is cancelled from outside.
    pub(super) async fn closed(&self) -> CloseReason {
        self.registration.cancel_handle().cancelled().await
    }

    fn seconds(&self) -> f64 {
        self.started_at.elapsed().as_secs_f64()
    }

    fn log(&self, message: &str) {
        tracing::info!(
            request_id = self.request.id,
            address = self.request.address.map(tracing::field::display),
            method = self.request.method.as_str(),
            path = self.request.path,
            kind = self.info.kind.as_str(),
            status = self.status,
            duration_ms = (self.seconds() * 1e5).round() / 1e2,
            bytes_up = self.bytes_up.load(Ordering::Relaxed),
            bytes_down = self.bytes_down.load(Ordering::Relaxed),
            user_id = %self.info.user,
            session_id = %self.info.session,
            workspace_id = %self.info.workspace,
            credential_id = self.credential.as_deref(),
            ended = self.end_reason,
            "{message}"
        );
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        if self.refused {
            return;
        }
        if self.status == 0 && self.end_reason.is_none() {
            self.end_reason = Some("client disconnected");
        }
        let is_stream = self.info.kind.is_stream() && self.status < 300;
        if is_stream {
            let open = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.usage_meter.limiter.usage.count_stream(self.usage_meter.verb, open);
        }
        self.log(if is_stream { "stream ended" } else { "request" });
    }
}

/// The body of a response, until it ends or is cancelled. A cancelled body ends with an error, so
/// that no client takes it for complete. The upstream body is dropped at that moment, even if the
/// client does not read and so never polls this one.
#[derive(Debug)]
pub(super) struct Download<B> {
    /// `None` once it is cancelled.
    inner: Arc<Mutex<Option<B>>>,
    meter: BodyMeter,
    in_flight: InFlightRequest,
}

impl<B: Send + 'static> Download<B> {
    /// Wraps a body; the request is in flight until the body is dropped.
    pub(super) fn new(inner: B, in_flight: InFlightRequest) -> Self {
        let inner = Arc::new(Mutex::new(Some(inner)));
        let released = Arc::clone(&inner);
        in_flight.registration.cancel_handle().on_cancel(move || drop(lock(&released).take()));
        Self { inner, meter: in_flight.body_meter(Direction::Down), in_flight }
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
        let cancelled = this.in_flight.registration.cancel_handle().poll(context);
        let mut inner = lock(&this.inner);
        let (Poll::Pending, Some(body)) = (cancelled, &mut *inner) else {
            drop(inner);
            let reason = this
                .in_flight
                .registration
                .cancel_handle()
                .reason()
                .map_or("cancelled", CloseReason::as_str);
            this.in_flight.set_end_reason(reason);
            return Poll::Ready(Some(Err(std::io::Error::other(reason))));
        };
        ready!(this.meter.poll_ready(context));
        let frame = ready!(Pin::new(body).poll_frame(context));
        drop(inner);
        this.meter.record_frame(frame.as_ref());
        if let Some(Err(_)) = &frame {
            this.in_flight.set_end_reason("connection to the API server lost");
        }
        Poll::Ready(match frame {
            // A trailer is a header that the allow-list was not applied to.
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
