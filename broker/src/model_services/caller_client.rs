//! Calls to the API server as the caller of a request. The head of each call is built from nothing;
//! nothing of the client's request is copied into it.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use http::{HeaderMap, HeaderValue, Request, StatusCode, header, response};
use http_body_util::BodyExt as _;
use tenant_shared::Code;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::{
    ModelServices,
    call::{Call, JSON, MAX_WRITE_ANSWER_BYTES},
    call_kind::CallOutcome,
    call_response::{Answer, make_room},
    failure::Failure,
    kubernetes_token::KubernetesToken,
    limits::{KeptMemory, RequestLimits, Reservation, SMALL_ANSWER_BYTES, TokenPermit},
    time_limit::TimeLimit,
};
use crate::{
    base::{
        rate_limit::{Client, InFlightSlot},
        request_context::{RequestInfo, record_upstream_call},
    },
    cluster::{MAX_POOLED_BODY_BYTES, Transport},
    gateway::{SessionRequest, UpstreamMessage, set_audit_headers},
    http::{ApiError, body},
};

/// Calls of one request in flight.
const MAX_CALLS_OF_REQUEST: usize = 16;
const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("tenant-broker/", env!("CARGO_PKG_VERSION")));

/// The credential that calls are sent with.
#[derive(Debug)]
pub(super) enum Sender {
    /// The token of the session's workspace.
    Session(Box<SessionRequest>),
    /// The caller's own token.
    Kubernetes { token: KubernetesToken, permit: TokenPermit, _slot: InFlightSlot },
}

/// A request of a caller who is within the limits. It asks the API server as the caller.
#[derive(Debug)]
pub(super) struct Asker {
    services: ModelServices,
    sender: Sender,
    info: Arc<RequestInfo>,
    limits: RequestLimits,
    time_limit: TimeLimit,
    calls: Arc<Semaphore>,
    /// Memory of the lists that were read, until the request ends.
    held: Mutex<Vec<Reservation>>,
    /// Memory of what is kept of small answers, until the request ends.
    kept: Mutex<KeptMemory>,
    /// Memory of the answers to writes, which are sent one after the other, until the request ends.
    writes: OnceLock<Reservation>,
    /// Whether the API server accepted the Kubernetes token with a call of this request.
    is_token_accepted: AtomicBool,
}

fn too_many_answers() -> Failure {
    Failure::too_many("too many large answers at once; try again", 2)
}

fn not_in_time() -> Failure {
    Failure::internal("the API server did not answer in time")
}

/// A call whose client may leave before the answer. A token that was not accepted before, by a call of
/// this request or of another one, counts as refused then, because it may be a guess. It keeps its limiter, because otherwise a client that
/// always leaves would have no limit of requests.
struct Unanswered<'a>(Option<&'a Asker>);

impl Unanswered<'_> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        let Some(asker) = self.0 else { return };
        let Sender::Kubernetes { token, .. } = &asker.sender else { return };
        // The accepted tokens of an address are limited in number, so this one may not be among them.
        if asker.is_token_accepted.load(Ordering::Relaxed) {
            return;
        }
        let limits = &asker.services.0.limits;
        limits.refused.count_unanswered(asker.client(), token.hash(), Instant::now());
    }
}

impl Asker {
    pub(super) fn new(
        services: ModelServices,
        sender: Sender,
        info: Arc<RequestInfo>,
        limits: RequestLimits,
        time_limit: TimeLimit,
    ) -> Self {
        let calls = Arc::new(Semaphore::new(MAX_CALLS_OF_REQUEST));
        let kept = Mutex::new(limits.memory.keep());
        Self {
            services,
            sender,
            info,
            limits,
            time_limit,
            calls,
            held: Mutex::default(),
            kept,
            writes: OnceLock::new(),
            is_token_accepted: AtomicBool::new(false),
        }
    }

    /// The part of a session's request that is in another namespace of its workspace. It has the
    /// limits of the request; `None` if the request has a Kubernetes token.
    pub(super) fn part_in(&self, namespace: &str) -> Option<Self> {
        let Sender::Session(request) = &self.sender else { return None };
        Some(Self {
            services: self.services.clone(),
            sender: Sender::Session(Box::new(request.part_in(namespace))),
            info: Arc::clone(&self.info),
            limits: self.limits.clone(),
            time_limit: self.time_limit,
            calls: Arc::clone(&self.calls),
            held: Mutex::default(),
            kept: Mutex::new(self.limits.memory.keep()),
            writes: OnceLock::new(),
            is_token_accepted: AtomicBool::new(false),
        })
    }

    /// Identifier of the workspace whose token is sent; `None` if the request has a Kubernetes token.
    pub(super) fn workspace_id(&self) -> Option<Uuid> {
        match &self.sender {
            Sender::Session(request) => Some(request.workspace_id()),
            Sender::Kubernetes { .. } => None,
        }
    }

    /// Holds memory until the request ends.
    pub(super) fn hold(&self, memory: Reservation) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
    }

    /// Holds memory for so many more bytes until the request ends.
    ///
    /// # Errors
    /// There is not enough.
    pub(super) fn keep(&self, bytes: usize) -> Result<(), Failure> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.keep(bytes) { Ok(()) } else { Err(too_many_answers()) }
    }

    /// Reserves memory for the answers to the writes of a change. So no write of a change that has begun
    /// fails for want of memory, nor one that takes it back. The lists of the request are evaluated, so
    /// their memory is free.
    ///
    /// # Errors
    /// There is not enough.
    pub(super) fn reserve_writes(&self) -> Result<(), Failure> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let mut memory = self.limits.memory.reserve();
        if !memory.grow_to(MAX_WRITE_ANSWER_BYTES) {
            return Err(too_many_answers());
        }
        // If there is a reservation already, that one is used.
        let _ = self.writes.set(memory);
        Ok(())
    }

    /// The client that sent the request.
    pub(super) fn client(&self) -> Client {
        Client::from_address(self.info.address)
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
            StatusCode::UNAUTHORIZED => matches!(self.sender, Sender::Kubernetes { .. }),
            _ => false,
        }
    }

    /// The credential that calls are sent with.
    pub(super) fn sender(&self) -> &Sender {
        &self.sender
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
    pub(super) async fn ask(&self, call: Call) -> Result<Answer, Failure> {
        record_upstream_call();
        let kind = call.kind;
        let timeout = self.time_limit.call(call.limit, call.timeout, Instant::now());
        let answered = if timeout.is_zero() {
            // `timeout` polls once, which may send the call.
            Err(not_in_time())
        } else {
            let unanswered = Unanswered(Some(self));
            // On the heap, because an operation has many calls.
            let answered = tokio::time::timeout(timeout, Box::pin(self.ask_untimed(call))).await;
            unanswered.disarm();
            answered.unwrap_or_else(|_| Err(not_in_time()))
        };
        let outcome = match &answered {
            Ok(answer) if answer.status.is_success() => CallOutcome::Success,
            Ok(answer) if answer.status.is_client_error() => CallOutcome::Refused,
            Err(failure) if !failure.status().is_server_error() => CallOutcome::Refused,
            _ => CallOutcome::Failed,
        };
        self.services.0.metrics.model_services_call(kind.as_str(), outcome.as_str());
        answered
    }

    async fn ask_untimed(&self, call: Call) -> Result<Answer, Failure> {
        let closed = |error: tokio::sync::AcquireError| Failure::internal_error(&error);
        let turn = self.calls.acquire().await.map_err(closed)?;
        let of_caller = self.limits.calls.acquire().await.map_err(closed)?;
        let (mut body, mut reserved): (Vec<u8>, usize) = (Vec::new(), 0);
        let mut memory = self.limits.memory.reserve();
        let max_bytes = call.max_bytes;
        let is_reserved = call.is_write && self.writes.get().is_some();
        if call.is_write && !is_reserved && !memory.grow_to(max_bytes) {
            return Err(too_many_answers());
        }
        let mut receive = |data: &[u8]| {
            let length = body.len() + data.len();
            if length > max_bytes {
                return Err(Failure::internal("the API server's answer is too large"));
            }
            if length > reserved {
                let limit =
                    if length <= SMALL_ANSWER_BYTES { SMALL_ANSWER_BYTES } else { max_bytes };
                let capacity = length.saturating_mul(2).min(limit).max(length);
                if !is_reserved && !memory.grow_to(capacity) {
                    return Err(too_many_answers());
                }
                make_room(&mut body, capacity);
                reserved = capacity;
            }
            body.extend_from_slice(data);
            Ok(())
        };
        let head = match &self.sender {
            Sender::Session(request) => {
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
            Sender::Kubernetes { token, permit, .. } => {
                self.send_with_token(call, token, permit, receive).await?
            }
        };
        drop((turn, of_caller));
        let retry_after = head.headers.get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(Answer { status: head.status, retry_after, body, memory })
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
        let client = self.client();
        if head.status == StatusCode::UNAUTHORIZED {
            limits.refused.count(client, token.hash(), Instant::now());
            limits.tokens.forget(token.hash());
            self.services.0.metrics.model_services_token_refused();
            return Err(Failure::unauthenticated());
        }
        if !head.status.is_server_error() && head.status != StatusCode::TOO_MANY_REQUESTS {
            limits.refused.accept(client, token.hash(), Instant::now());
            self.is_token_accepted.store(true, Ordering::Relaxed);
        }
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Failure::internal_error(&error))?;
            if let Some(data) = frame.data_ref() {
                receive(data)?;
                if let Some(wait) = permit.limiter.consume_bytes(data.len()) {
                    tokio::time::sleep(wait).await;
                }
            }
        }
        Ok(head)
    }
}
