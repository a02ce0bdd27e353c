//! Calls to the API server as the caller of a request. The head of each call is built from nothing;
//! nothing of the client's request is copied into it.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderValue, Request, StatusCode, header, response};
use http_body_util::BodyExt as _;
use tenant_shared::Code;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::{
    ModelServices,
    call::{Call, JSON, MAX_UPSTREAM_WRITE_BYTES},
    call_kind::{CallKind, CallOutcome},
    call_response::{CallResponse, reserve_capacity},
    cancelled_call::CancelledCallGuard,
    failure::Failure,
    kubernetes_token::KubernetesToken,
    limits::{
        RequestLimits, Reservation, SMALL_UPSTREAM_BYTES, SmallResponseReservation, TokenPermit,
    },
    time_limit::{CallLimit, TimeLimit},
};
use crate::{
    base::{
        rate_limit::{ClientNetwork, InFlightSlot},
        request_context::{RequestInfo, record_upstream_call},
    },
    cluster::{MAX_POOLED_BODY_BYTES, Transport},
    gateway::{SessionRequest, UpstreamMessage, set_audit_headers},
    http::{ApiError, body},
};

/// How often a call that the byte rate delays looks whether its request was closed.
const CLOSED_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Calls of one request in flight.
const MAX_CALLS_OF_REQUEST: usize = 16;
const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("tenant-broker/", env!("CARGO_PKG_VERSION")));

/// The credential that calls are sent with.
#[derive(Debug)]
pub(super) enum CallCredential {
    /// The token of the session's workspace.
    Session(Box<SessionRequest>),
    /// The caller's own token.
    Kubernetes { token: KubernetesToken, permit: TokenPermit, _slot: InFlightSlot },
}

/// The client of a request within the limits. It calls the API server as the caller.
#[derive(Debug)]
pub(super) struct CallerClient {
    services: ModelServices,
    credential: CallCredential,
    info: Arc<RequestInfo>,
    limits: RequestLimits,
    time_limit: TimeLimit,
    calls: Arc<Semaphore>,
    /// Memory of the lists that were read, until the request ends.
    list_reservations: Mutex<Vec<Reservation>>,
    /// Memory of what is kept of small responses, until the request ends.
    small_reservation: Mutex<SmallResponseReservation>,
    /// Memory of the responses to writes, which are sent one after the other, until the request
    /// ends.
    writes: OnceLock<Reservation>,
    /// Whether the API server accepted the Kubernetes token with a call of this request.
    is_token_accepted: AtomicBool,
}

fn out_of_memory() -> Failure {
    Failure::too_many("too many large answers at once; try again", 2)
}

fn not_in_time() -> Failure {
    Failure::internal("the API server did not answer in time")
}

impl CallerClient {
    pub(super) fn new(
        services: ModelServices,
        credential: CallCredential,
        info: Arc<RequestInfo>,
        limits: RequestLimits,
        time_limit: TimeLimit,
    ) -> Self {
        let calls = Arc::new(Semaphore::new(MAX_CALLS_OF_REQUEST));
        let small_reservation = Mutex::new(limits.memory.small_responses());
        Self {
            services,
            credential,
            info,
            limits,
            time_limit,
            calls,
            list_reservations: Mutex::default(),
            small_reservation,
            writes: OnceLock::new(),
            is_token_accepted: AtomicBool::new(false),
        }
    }

    /// The part of a session's request that is in another namespace of its workspace. It has the
    /// limits of the request; `None` if the request has a Kubernetes token.
    pub(super) fn part_in(&self, namespace: &str) -> Option<Self> {
        let CallCredential::Session(request) = &self.credential else { return None };
        Some(Self {
            services: self.services.clone(),
            credential: CallCredential::Session(Box::new(request.part_in(namespace))),
            info: Arc::clone(&self.info),
            limits: self.limits.clone(),
            time_limit: self.time_limit,
            calls: Arc::clone(&self.calls),
            list_reservations: Mutex::default(),
            small_reservation: Mutex::new(self.limits.memory.small_responses()),
            writes: OnceLock::new(),
            is_token_accepted: AtomicBool::new(false),
        })
    }

    /// Identifier of the workspace whose token is sent; `None` if the request has a Kubernetes token.
    pub(super) fn workspace_id(&self) -> Option<Uuid> {
        match &self.credential {
            CallCredential::Session(request) => Some(request.workspace_id()),
            CallCredential::Kubernetes { .. } => None,
        }
    }

    /// Retains reserved memory until the request ends.
    pub(super) fn retain_until_end(&self, memory: Reservation) {
        self.list_reservations.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
    }

    /// Reserves memory for this number of bytes until the request ends.
    ///
    /// # Errors
    /// There is not enough.
    pub(super) fn reserve_bytes(&self, bytes: usize) -> Result<(), Failure> {
        let mut small_reservation =
            self.small_reservation.lock().unwrap_or_else(PoisonError::into_inner);
        if small_reservation.try_reserve_more(bytes) { Ok(()) } else { Err(out_of_memory()) }
    }

    /// Reserves memory for the responses to the writes of a change. So neither a write of a change
    /// that has begun nor its rollback fails because memory is exhausted. The lists of the request
    /// are evaluated, so their memory is free.
    ///
    /// # Errors
    /// There is not enough.
    pub(super) fn reserve_writes(&self) -> Result<(), Failure> {
        self.list_reservations.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let mut memory = self.limits.memory.reserve();
        if !memory.try_grow_to(MAX_UPSTREAM_WRITE_BYTES) {
            return Err(out_of_memory());
        }
        // If there is a reservation already, that one is used.
        let _ = self.writes.set(memory);
        Ok(())
    }

    /// The client that sent the request.
    pub(super) fn network(&self) -> ClientNetwork {
        ClientNetwork::from_address(self.info.address)
    }

    /// The service that the request is for.
    pub(super) fn services(&self) -> &ModelServices {
        &self.services
    }

    /// Whether a call with this failure was certainly not carried out: it was not sent, or the API
    /// server did not accept the token.
    pub(super) fn is_not_carried_out(&self, failure: &Failure) -> bool {
        match failure.status() {
            StatusCode::TOO_MANY_REQUESTS => true,
            StatusCode::UNAUTHORIZED => {
                matches!(self.credential, CallCredential::Kubernetes { .. })
            }
            _ => false,
        }
    }

    /// Whether the API server accepted the Kubernetes token with a call of this request.
    pub(super) fn is_token_accepted(&self) -> bool {
        self.is_token_accepted.load(Ordering::Relaxed)
    }

    /// Fails if a session's request was closed, so that no further call is sent.
    ///
    /// # Errors
    /// The reason.
    pub(super) fn require_open(&self) -> Result<(), Failure> {
        match &self.credential {
            CallCredential::Session(request) => Ok(request.require_open()?),
            CallCredential::Kubernetes { .. } => Ok(()),
        }
    }

    /// Whether a session's request was closed.
    pub(super) fn is_closed(&self) -> bool {
        self.require_open().is_err()
    }

    /// Waits until the caller's byte rate allows another call. No permit is held meanwhile, because other
    /// callers share them. What a change writes, and its reads after that, are not delayed.
    ///
    /// # Errors
    /// That takes longer than the call may.
    async fn wait_for_byte_rate(&self, call: &Call) -> Result<(), Failure> {
        if call.is_write || call.limit == CallLimit::Own {
            return Ok(());
        }
        let delay = || match &self.credential {
            CallCredential::Session(request) => request.byte_rate_delay(),
            CallCredential::Kubernetes { permit, .. } => permit.limiter.byte_rate_delay(),
        };
        while let Some(delay) = delay() {
            let left = self.time_limit.call(call.limit, call.timeout, Instant::now());
            if delay > left {
                let text = "the requests before this one transferred too many bytes; try again";
                return Err(Failure::too_many(text, delay.as_secs() + 1));
            }
            self.require_open()?;
            tokio::time::sleep(delay.min(CLOSED_POLL_INTERVAL)).await;
        }
        Ok(())
    }

    /// Counts a Kubernetes token as refused whose client left before the response, unless it was
    /// accepted before, by a call of this request or of another one: it may be a guess. The token keeps
    /// its limiter. Otherwise a client that always leaves would have no limit of requests.
    fn count_cancelled(&self) {
        let CallCredential::Kubernetes { token, .. } = &self.credential else { return };
        // The accepted tokens of an address are limited in number, so this one may not be among them.
        if !self.is_token_accepted() {
            let refused = &self.services.0.limits.refused;
            refused.count_cancelled(self.network(), token.hash(), Instant::now());
        }
    }

    /// The credential that calls are sent with.
    pub(super) fn credential(&self) -> &CallCredential {
        &self.credential
    }

    /// Runs reads that are not calls of the caller within the time that the operation has left.
    ///
    /// # Errors
    /// They take longer, or fail.
    pub(super) async fn in_time<T>(
        &self,
        reads: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let timeout = self.time_limit.reads(Instant::now());
        tokio::time::timeout(timeout, reads).await.unwrap_or_else(|_| Err(not_in_time()))
    }

    /// Sends a call. Nothing is sent twice, except that a workspace's token which the API server no
    /// longer accepts is replaced once.
    ///
    /// # Errors
    /// The API server does not accept the caller's token, does not answer in time, or answers more
    /// than the limit; the request is cancelled.
    pub(super) async fn send(&self, call: Call) -> Result<CallResponse, Failure> {
        record_upstream_call();
        let kind = call.kind;
        let result = match self.wait_for_byte_rate(&call).await {
            Ok(()) => self.send_in_time(call).await,
            Err(failure) => Err(failure),
        };
        let outcome = match &result {
            Ok(response) if response.status.is_success() => CallOutcome::Success,
            Ok(response) if response.status.is_client_error() => CallOutcome::Refused,
            Err(failure) if !failure.status().is_server_error() => CallOutcome::Refused,
            _ => CallOutcome::Failed,
        };
        self.services.0.metrics.model_services_call(kind.as_str(), outcome.as_str());
        result
    }

    async fn send_in_time(&self, call: Call) -> Result<CallResponse, Failure> {
        let timeout = self.time_limit.call(call.limit, call.timeout, Instant::now());
        if timeout.is_zero() {
            // `timeout` polls once, which may send the call.
            return Err(not_in_time());
        }
        let kind = call.kind;
        let guard = CancelledCallGuard::new(|| {
            self.count_cancelled();
            let outcome = CallOutcome::Cancelled.as_str();
            self.services.0.metrics.model_services_call(kind.as_str(), outcome);
        });
        // On the heap, because an operation has many calls.
        let sent = Box::pin(self.send_untimed(call, || guard.begin()));
        let result = tokio::time::timeout(timeout, sent).await;
        guard.end();
        result.unwrap_or_else(|_| Err(not_in_time()))
    }

    /// Sends a call once it has its permits. Runs `on_permits` then, before anything is sent.
    async fn send_untimed(
        &self,
        call: Call,
        on_permits: impl FnOnce(),
    ) -> Result<CallResponse, Failure> {
        let closed = |error: tokio::sync::AcquireError| Failure::internal_error(&error);
        let request_permit = self.calls.acquire().await.map_err(closed)?;
        let caller_permit = self.limits.calls.acquire().await.map_err(closed)?;
        on_permits();
        let (mut body, mut reserved): (Vec<u8>, usize) = (Vec::new(), 0);
        let mut memory = self.limits.memory.reserve();
        let max_bytes = call.max_bytes;
        let is_reserved = call.is_write && self.writes.get().is_some();
        if call.is_write && !is_reserved && !memory.try_grow_to(max_bytes) {
            return Err(out_of_memory());
        }
        let mut receive = |data: &[u8]| {
            let length = body.len() + data.len();
            if length > max_bytes {
                return Err(Failure::internal("the API server's answer is too large"));
            }
            if length > reserved {
                let limit =
                    if length <= SMALL_UPSTREAM_BYTES { SMALL_UPSTREAM_BYTES } else { max_bytes };
                let capacity = length.saturating_mul(2).min(limit).max(length);
                if !is_reserved && !memory.try_grow_to(capacity) {
                    return Err(out_of_memory());
                }
                reserve_capacity(&mut body, capacity);
                reserved = capacity;
            }
            body.extend_from_slice(data);
            Ok(())
        };
        let head = match &self.credential {
            CallCredential::Session(request) => {
                let mut failure = None;
                let message = self.message(call);
                let sent = request.send(&message, |data| {
                    receive(data).map_err(|error| {
                        failure = Some(error);
                        ApiError::new(Code::ClusterUnavailable, "the answer is not read")
                    })
                });
                sent.await.map_err(|error| failure.take().unwrap_or_else(|| error.into()))?
            }
            CallCredential::Kubernetes { token, permit, .. } => {
                self.send_with_token(call, token, permit, receive).await?
            }
        };
        drop((request_permit, caller_permit));
        let retry_after = head.headers.get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(CallResponse { status: head.status, retry_after, body, memory })
    }

    /// The message of a call, without a credential.
    fn message(&self, call: Call) -> UpstreamMessage {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, call.accept);
        headers.insert(header::USER_AGENT, USER_AGENT);
        if !call.body.is_empty() {
            headers.insert(header::CONTENT_TYPE, JSON);
        }
        set_audit_headers(&mut headers, &self.info);
        UpstreamMessage {
            method: call.method,
            path_and_query: call.path_and_query,
            headers,
            body: call.body,
        }
    }

    async fn send_with_token(
        &self,
        call: Call,
        token: &KubernetesToken,
        permit: &TokenPermit,
        mut receive: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<response::Parts, Failure> {
        let unavailable = |error: crate::cluster::UpstreamError| Failure::internal_error(&error);
        let upstream = self.services.0.cluster.upstream();
        let kind = call.kind;
        let message = self.message(call);
        let transport = if message.body.len() as u64 <= MAX_POOLED_BODY_BYTES {
            Transport::Http1
        } else {
            Transport::Dedicated
        };
        let mut request = Request::new(body::full(message.body));
        *request.method_mut() = message.method;
        *request.uri_mut() = upstream.uri(&message.path_and_query).map_err(unavailable)?;
        *request.headers_mut() = message.headers;
        request.headers_mut().insert(header::AUTHORIZATION, token.authorization());
        let response = upstream.send(request, transport).await.map_err(unavailable)?;
        let (head, mut body) = response.into_parts();
        let limits = &self.services.0.limits;
        let network = self.network();
        if head.status == StatusCode::UNAUTHORIZED {
            // A token that was accepted just now is no guess; it ended meanwhile, which the next request
            // notices. The server of Projects may refuse a token that the API server accepts, and each
            // list of Projects has a call beside it that the API server decides about.
            if kind != CallKind::Projects && !self.is_token_accepted() {
                limits.refused.count(network, token.hash(), Instant::now());
                limits.tokens.forget(token.hash());
                self.services.0.metrics.model_services_token_refused();
            }
            return Err(Failure::unauthenticated());
        }
        // Other answers may be those of a proxy in front of the API server, which did not check the
        // token. Each caller of a valid token gets a success, of a review at least.
        if head.status.is_success() {
            limits.refused.accept(network, token.hash(), Instant::now());
            self.is_token_accepted.store(true, Ordering::Relaxed);
        }
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Failure::internal_error(&error))?;
            if let Some(data) = frame.data_ref() {
                receive(data)?;
                permit.limiter.consume_bytes(data.len());
            }
        }
        Ok(head)
    }
}
