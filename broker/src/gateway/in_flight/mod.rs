//! Requests in flight: their accounting, and the log line of each when it ends.

mod cancel;
mod discard;
mod streams;
mod upload;

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;

use self::upload::Upload;
pub(super) use self::{
    cancel::CloseReason,
    discard::Discarder,
    streams::{BrokerReadView, MemberNamespace, Registration, StreamInfo, Streams},
    upload::UploadError,
};
use super::kubernetes_api::path::Kind;
use super::limits::{BodyMeter, BrokerReadPermit, UsageMeter, usage::Direction};
use crate::{
    base::{
        rate_limit::RateLimiter,
        request_context::{self, RequestInfo},
        telemetry::Metrics,
    },
    credential::CachedToken,
    http::{AccessLogLine, ApiError, Details, Forwarded, body},
};

/// Label `cause` in metrics: the API server's response ended before it was complete.
pub(super) const INCOMPLETE: &str = "incomplete";

/// A request or stream in flight. It ends with [`InFlightRequest::end`], which writes the
/// access-log line, or when it is dropped because the client disconnected.
#[derive(Debug)]
pub(super) struct InFlightRequest {
    registration: Registration,
    info: StreamInfo,
    request: Arc<RequestInfo>,
    status: u16,
    credential: Option<Arc<str>>,
    /// Bytes from the client.
    bytes_up: Arc<AtomicU64>,
    /// Bytes from the API server.
    bytes_down: Arc<AtomicU64>,
    usage_meter: UsageMeter,
    metrics: Metrics,
    /// Counts against the tenant's limit of concurrent requests or streams, also while data of the
    /// response are unsent.
    permit: Arc<OwnedSemaphorePermit>,
    /// Counts against the limits of reads with the broker's own credential; `None` for others.
    broker_read: Option<BrokerReadPermit>,
    has_ended: bool,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The response is complete.
    Complete,
    /// The request was closed from outside.
    Closed(CloseReason),
    /// The connection to the API server was lost.
    UpstreamLost,
    /// A connection of a tunnel was lost.
    ConnectionLost,
    /// A connection could not be upgraded.
    UpgradeFailed,
    /// The client disconnected before it had a response, or before it had read all of it.
    ClientDisconnected,
}

impl End {
    /// Value of the field `ended` of the access log; `None` for the normal end.
    fn reason(self) -> Option<&'static str> {
        match self {
            Self::Complete => None,
            Self::Closed(reason) => Some(reason.as_str()),
            Self::UpstreamLost => Some("connection to the API server lost"),
            Self::ConnectionLost => Some("connection lost"),
            Self::UpgradeFailed => Some("upgrade failed"),
            Self::ClientDisconnected => Some("client disconnected"),
        }
    }
}

impl InFlightRequest {
    /// Starts the accounting of a request that is within the limits.
    pub(super) fn new(
        registration: Registration,
        permit: OwnedSemaphorePermit,
        usage_meter: UsageMeter,
        info: StreamInfo,
        request: Arc<RequestInfo>,
        metrics: Metrics,
    ) -> Self {
        let permit = Arc::new(permit);
        let mut in_flight =
            Self::part_of_request(registration, permit, usage_meter, info, request, metrics);
        in_flight.has_ended = false;
        in_flight
    }

    /// Starts the accounting of a call that is part of another request. That one is within the
    /// limits, and its line of the access log is written elsewhere.
    pub(super) fn part_of_request(
        registration: Registration,
        permit: Arc<OwnedSemaphorePermit>,
        usage_meter: UsageMeter,
        info: StreamInfo,
        request: Arc<RequestInfo>,
        metrics: Metrics,
    ) -> Self {
        Self {
            registration,
            info,
            request,
            status: 0,
            credential: None,
            bytes_up: Arc::default(),
            bytes_down: Arc::default(),
            usage_meter,
            metrics,
            permit,
            broker_read: None,
            has_ended: true,
        }
    }

    /// A meter for the bytes in this direction.
    pub(super) fn body_meter(&self, direction: Direction) -> BodyMeter {
        let bytes = match direction {
            Direction::Up => &self.bytes_up,
            Direction::Down => &self.bytes_down,
        };
        let (usage, metrics) = (self.usage_meter.clone(), self.metrics.clone());
        BodyMeter::new(usage, direction, Arc::clone(bytes), metrics)
    }

    /// The request body, metered. Its rest is discarded within these limits.
    pub(super) fn upload(&self, body: Incoming, limits: &RateLimiter) -> Upload {
        let discarder = Discarder { limits: limits.clone(), address: self.request.address };
        Upload::new(body, self.body_meter(Direction::Up), self.info.kind.is_stream(), discarder)
    }

    /// Sets the token that the request is sent with.
    pub(super) fn set_token(&mut self, token: &CachedToken) {
        self.registration.set_token(token);
        self.credential = Some(Arc::clone(token.credential_id()));
    }

    /// Counts the request as a read with the broker's own credential until it ends.
    pub(super) fn set_broker_read(&mut self, permit: BrokerReadPermit) {
        self.broker_read = Some(permit);
    }

    /// Records the status of the response, and that the access-log line is written at the end. The
    /// start of a stream is logged.
    pub(super) fn response_started(&mut self, status: StatusCode) {
        request_context::defer_access_log();
        self.status = status.as_u16();
        if self.is_stream() {
            self.log("stream started", None);
        }
    }

    /// Ends a request that the broker refuses. The outer stack logs the refusal.
    pub(super) fn refuse(mut self, error: ApiError) -> ApiError {
        self.has_ended = true;
        error
    }

    /// Ends the request: counts its time and writes the access-log line. Later calls do nothing.
    pub(super) fn end(&mut self, end: End) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        // The client may have left before the response.
        request_context::defer_access_log();
        if end == End::UpstreamLost {
            self.metrics.gateway_upstream_error(INCOMPLETE);
        }
        let is_stream = self.is_stream();
        if is_stream {
            let open = self.request.started_at.elapsed().as_millis();
            let open = u64::try_from(open).unwrap_or(u64::MAX);
            self.usage_meter.limiter.usage.count_stream(self.usage_meter.verb, open);
        }
        self.log(if is_stream { "stream ended" } else { "request" }, end.reason());
    }

    /// Waits until the request is cancelled from outside.
    pub(super) async fn closed(&self) -> CloseReason {
        self.registration.cancel_handle().cancelled().await
    }

    /// Whether this is a stream that was not refused.
    fn is_stream(&self) -> bool {
        self.info.kind.is_stream() && self.status < 300
    }

    fn log(&self, message: &'static str, ended: Option<&'static str>) {
        let details = Details::Forwarded(Forwarded {
            kind: self.info.kind.as_str(),
            bytes_up: self.bytes_up.load(Ordering::Relaxed),
            bytes_down: self.bytes_down.load(Ordering::Relaxed),
            user_id: self.info.user,
            session_id: self.info.session,
            workspace_id: self.info.workspace,
            credential_id: self.credential.as_deref(),
            ended,
        });
        AccessLogLine { message, request: &self.request, status: self.status, details }.write();
    }
}

/// hyper drops the response body, or the future of the request, when the client disconnects.
impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.end(End::ClientDisconnected);
    }
}

/// The last event of a watch whose resourceVersion is of no use any more. Clients then list again (API
/// concepts, "410 Gone responses"). After a broken connection they would go on from the version that they
/// have, and keep the objects that they do not see any more.
const EXPIRED_EVENT: &[u8] = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the tenants of the user, or what they grant, changed: list again","reason":"Expired","code":410}}
"#;

/// The body of a response, until it ends or is cancelled. A cancelled body ends with an error, so
/// that no client takes it for complete, or as a watch with [`EXPIRED_EVENT`]. The upstream body is dropped at that moment, even if the
/// client does not read and so never polls this one. Its data hold the tenant's permit until they
/// are sent.
#[derive(Debug)]
pub(super) struct Download<B> {
    /// `None` once it is cancelled.
    inner: Arc<Mutex<Option<B>>>,
    meter: BodyMeter,
    in_flight: InFlightRequest,
    watch: WatchEnd,
}

/// Whether a cancelled body may end with [`EXPIRED_EVENT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchEnd {
    /// It is no watch in JSON.
    NotJsonWatch,
    /// All events were sent as a whole.
    BetweenEvents,
    /// The end of an event is not sent yet.
    InEvent,
    /// The event was sent.
    Reported,
}

impl WatchEnd {
    /// The state after these bytes of events, which are lines.
    fn after(self, sent: &[u8]) -> Self {
        match (self, sent.last()) {
            (Self::BetweenEvents | Self::InEvent, Some(b'\n')) => Self::BetweenEvents,
            (Self::BetweenEvents | Self::InEvent, Some(_)) => Self::InEvent,
            (unchanged, _) => unchanged,
        }
    }
}

impl<B: Body + Send + 'static> Download<B> {
    /// Wraps a body; the request is in flight until the body is dropped. It ends with the last frame,
    /// because hyper does not poll a body after that whose length it knows.
    pub(super) fn new(inner: B, mut in_flight: InFlightRequest) -> Self {
        if inner.is_end_stream() {
            in_flight.end(End::Complete);
        }
        let inner = Arc::new(Mutex::new(Some(inner)));
        let released = Arc::clone(&inner);
        in_flight.registration.cancel_handle().on_cancel(move || drop(lock(&released).take()));
        let meter = in_flight.body_meter(Direction::Down);
        Self { inner, meter, in_flight, watch: WatchEnd::NotJsonWatch }
    }

    /// Has a watch whose caller sees other objects now end with [`EXPIRED_EVENT`]. The body is JSON.
    pub(super) fn end_with_expired_event(&mut self) {
        if self.in_flight.info.kind == Kind::Watch {
            self.watch = WatchEnd::BetweenEvents;
        }
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
            let reason = this.in_flight.registration.cancel_handle().reason();
            let end = reason.map_or(End::UpstreamLost, End::Closed);
            this.in_flight.end(end);
            match this.watch {
                WatchEnd::Reported => return Poll::Ready(None),
                WatchEnd::BetweenEvents if reason == Some(CloseReason::TenantsChanged) => {
                    this.watch = WatchEnd::Reported;
                    let event = Bytes::from_static(EXPIRED_EVENT);
                    return Poll::Ready(Some(Ok(Frame::data(event))));
                }
                _ => {}
            }
            let text = end.reason().unwrap_or_default();
            return Poll::Ready(Some(Err(std::io::Error::other(text))));
        };
        ready!(this.meter.poll_ready(context));
        let frame = ready!(Pin::new(&mut *body).poll_frame(context));
        let is_complete = body.is_end_stream();
        drop(inner);
        this.meter.record_frame(frame.as_ref());
        if let Some(data) = frame.as_ref().and_then(|it| it.as_ref().ok()?.data_ref()) {
            this.watch = this.watch.after(data);
        }
        match &frame {
            Some(Err(_)) => this.in_flight.end(End::UpstreamLost),
            Some(Ok(_)) if !is_complete => {}
            Some(Ok(_)) | None => this.in_flight.end(End::Complete),
        }
        Poll::Ready(match frame {
            // A trailer is a header that the allow-list was not applied to.
            Some(Ok(frame)) if frame.is_trailers() => None,
            Some(Ok(frame)) => {
                let permit = &this.in_flight.permit;
                Some(Ok(frame.map_data(|data| body::with_permit(data, Arc::clone(permit)))))
            }
            Some(Err(error)) => Some(Err(std::io::Error::other(error))),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.inner).as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.inner).as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}
