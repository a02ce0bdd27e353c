//! The gateway: a reverse proxy that forwards Kubernetes requests of signed-in users with the token
//! of their workspace. It adds no permissions: the API server decides as for any request with that
//! token.
//!
//! A request is parsed once, authenticated, checked against the limits, filtered and forwarded;
//! bodies are streamed in both directions. Everything in flight is in a registry and can be closed
//! at once. The Kubernetes API has no call for that, so it completes the kill switch.

pub mod api;
mod cancel;
mod cors;
mod headers;
mod in_flight;
mod interception;
mod kubernetes_status;
mod limiter;
mod path;
mod principals;
mod reconcile;
mod request;
mod response_headers;
mod review;
mod revocation_watcher;
mod streams;
mod synthesized;
mod tokens;
mod tunnel;
mod upload;
mod upstream_call;
mod usage;
mod usage_flush;

use std::{
    cell::RefCell,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::body::{Body as _, Incoming};
use tenant_shared::{Code, GATEWAY_PATH};
use tokio::task::JoinSet;

pub(crate) use self::upstream_call::full_body;
use self::{
    cancel::CloseReason,
    headers::HeaderError,
    in_flight::InFlightRequest,
    interception::Interception,
    limiter::{LimitExceeded, TenantLimiter, TenantLimiters, UsageMeter},
    path::{Kind, PathError},
    principals::PrincipalCache,
    request::{RequestSummary, UpstreamRequest},
    streams::{StreamInfo, Streams},
    tokens::TokenCache,
    upload::UploadError,
    upstream_call::{RequestBody, UpstreamCall},
    usage::Verb,
};
use crate::{
    access::Owned as _,
    base::{
        clock::Clock,
        db::Db,
        error_chain,
        rate_limit::Client,
        request_context::{REQUEST, RequestContext, record_field},
        telemetry::Metrics,
    },
    cluster::{Transport, Upstream, UpstreamError},
    credential::Credentials,
    http::ApiError,
    identity::Identity,
    workspace::{NotificationReceiver, WorkspaceRow, Workspaces},
};

/// Bytes of a refused request that are read and dropped.
const MAX_DISCARDED_BYTES: usize = 1024 * 1024;
/// Frames of a refused request that are read and dropped.
const MAX_DISCARDED_FRAMES: usize = 16_384;
/// How long a refused request is read and dropped.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Body of a request or response.
pub type Body = BoxBody<Bytes, std::io::Error>;

/// The gateway. Clones share all state.
#[derive(Clone, Debug)]
pub struct Gateway {
    identity: Identity,
    workspaces: Workspaces,
    principals: PrincipalCache,
    tokens: TokenCache,
    credentials: Credentials,
    streams: Streams,
    limiters: TenantLimiters,
    upstream: Upstream,
    db: Db,
    clock: Clock,
    metrics: Metrics,
    own_answers: bool,
}

/// The background tasks of the gateway, until they are stopped.
#[derive(Debug)]
pub struct BackgroundTasks {
    gateway: Gateway,
    tasks: JoinSet<()>,
}

impl BackgroundTasks {
    /// Stops the tasks and flushes usage.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
        if let Err(error) = self.gateway.flush_usage_once().await {
            tracing::warn!(
                error = error_chain(&error),
                "cannot store the last usage of the gateway"
            );
        }
    }
}

impl From<PathError> for ApiError {
    fn from(error: PathError) -> Self {
        Self::new(Code::InvalidRequest, error.to_string())
    }
}

impl From<HeaderError> for ApiError {
    fn from(error: HeaderError) -> Self {
        let code = match error {
            HeaderError::Impersonation => Code::Forbidden,
            HeaderError::TwoAuthorizations => Code::InvalidRequest,
        };
        Self::new(code, error.to_string())
    }
}

impl From<UpstreamError> for ApiError {
    fn from(error: UpstreamError) -> Self {
        record_field("cause", error_chain(&error));
        match error {
            UpstreamError::Connection(error)
                if let Some(error) = UploadError::from_hyper(&error) =>
            {
                Self::new(Code::InvalidRequest, error.to_string())
            }
            UpstreamError::Path(_) => {
                Self::new(Code::InvalidRequest, "the path cannot be forwarded")
            }
            UpstreamError::Connect(_) | UpstreamError::Connection(_) => Self::new(
                Code::ClusterUnavailable,
                "the cluster's API server does not answer; try again",
            ),
        }
    }
}

impl Gateway {
    /// A gateway to the cluster of these workspaces. With `own_answers` it intercepts the requests
    /// that [`interception`] names.
    pub fn new(
        db: Db,
        identity: Identity,
        workspaces: Workspaces,
        credentials: Credentials,
        clock: Clock,
        metrics: Metrics,
        own_answers: bool,
    ) -> Self {
        Self {
            principals: PrincipalCache::new(identity.clone(), workspaces.clone()),
            tokens: TokenCache::new(credentials.clone(), clock.clone()),
            credentials,
            streams: Streams::default(),
            limiters: TenantLimiters::default(),
            db,
            upstream: workspaces.cluster().upstream().clone(),
            identity,
            workspaces,
            clock,
            metrics,
            own_answers,
        }
    }

    /// Starts the tasks that close revoked streams and flush usage. Revocations are read with the
    /// connections of `authority`.
    pub fn spawn_background_tasks(
        &self,
        notifications: NotificationReceiver,
        authority: &Db,
    ) -> BackgroundTasks {
        let watcher = Self {
            db: authority.clone(),
            identity: self.identity.with_db(authority),
            workspaces: self.workspaces.with_db(authority),
            credentials: self.credentials.with_db(authority),
            ..self.clone()
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(watcher.clone().watch_revocations(notifications));
        tasks.spawn(watcher.reconcile_streams());
        tasks.spawn(self.clone().flush_usage());
        BackgroundTasks { gateway: self.clone(), tasks }
    }

    /// Handles one request.
    pub async fn handle(
        &self,
        request: Request<Incoming>,
        address: Option<IpAddr>,
    ) -> Response<Body> {
        let started_at = Instant::now();
        let origin = cors::allowed_origin(&request, self.identity.origins());
        if cors::is_preflight(&request) {
            return cors::preflight(origin.as_ref()).map(full_body);
        }
        // The broker's own id, never the client's: it becomes the Audit-ID at the API server.
        let id = self.clock.random_id().to_string();
        let summary = Arc::new(RequestSummary::new(&request, &id, address));
        let context = RequestContext {
            id,
            address,
            user_agent: request::user_agent(request.headers()),
            notes: RefCell::default(),
        };
        let (parts, body) = request.into_parts();
        let mut body = Some(body);
        let mut response = REQUEST
            .scope(context, async {
                match self.forward(parts, &mut body, &summary, started_at).await {
                    Ok(response) => response,
                    Err(failure) => {
                        if let Some(body) = body {
                            self.discard(body, address);
                        }
                        self.refuse(&failure, &summary, started_at)
                    }
                }
            })
            .await;
        if let Some(origin) = &origin {
            cors::expose(response.headers_mut(), origin);
        }
        response
    }

    /// Authenticates a request, checks it and forwards it.
    ///
    /// The futures of rare steps are boxed, here and in the functions that it calls: the future of
    /// every request reserves space for those that are not, and is moved more than once before it
    /// is polled.
    async fn forward(
        &self,
        mut parts: http::request::Parts,
        body: &mut Option<Incoming>,
        summary: &Arc<RequestSummary>,
        started_at: Instant,
    ) -> Result<Response<Body>, ApiError> {
        let presented = self.identity.extract(&parts.method, &parts.headers)?;
        let principal = self.principals.get(&presented).await?;
        headers::check(&parts.headers)?;
        let target = path::parse(&parts.uri)?;
        if target.cluster != self.workspaces.cluster().name() {
            return Err(ApiError::new(Code::NotFound, "there is no such cluster"));
        }
        let workspace = principal.workspace(target.namespace)?;
        let active = self.principals.active(&principal, workspace)?;
        let own_namespace = workspace.row().namespace().to_owned();
        let interception = if self.own_answers {
            interception::intercept(&parts.method, &target, &parts.headers, &own_namespace)
        } else {
            Interception::PassThrough
        };
        let outgoing = UpstreamRequest::from_client(
            &mut parts.headers,
            &mut parts.extensions,
            &presented,
            summary,
        )?;
        let info = StreamInfo {
            kind: target.kind,
            workspace: workspace.row().id(),
            service_account: Arc::clone(active.service_account_uid()),
            user: principal.caller.user_id(),
            session: principal.caller.session_id(),
            credential: None,
        };
        let verb = Verb::of_request(&parts.method, &target);
        let in_flight = match self.admit(info, workspace.row(), verb, summary, started_at) {
            Ok(in_flight) => in_flight,
            Err((exceeded, limiter)) => {
                return Err(exceeded.delayed_error(&limiter.limits).await);
            }
        };
        let mut call = UpstreamCall {
            gateway: self,
            presented: &presented,
            principal: Arc::clone(&principal),
            namespace: target.namespace,
            kind: target.kind,
            transport: transport(&outgoing, target.kind),
            in_flight,
        };
        let Some(body) = body.take() else {
            return Err(cancelled_request(CloseReason::DatabaseUnavailable));
        };
        let path = match &interception {
            Interception::Watch(path) => path,
            _ => target.path_and_query,
        };
        let result = match interception {
            Interception::List(representation) => {
                Box::pin(synthesized::list(&mut call, &outgoing, representation, &own_namespace))
                    .await
            }
            Interception::AccessReview | Interception::SelfReview => {
                let access_review = synthesized::access_review(
                    &mut call,
                    &outgoing,
                    &interception,
                    path,
                    body,
                    &own_namespace,
                );
                Box::pin(access_review).await
            }
            Interception::PassThrough | Interception::Watch(_) => {
                let body = if body.is_end_stream() {
                    RequestBody::Full(Bytes::new())
                } else {
                    RequestBody::Stream(call.in_flight.upload(body).boxed())
                };
                match call.send(&parts.method, path, &outgoing.headers, body).await {
                    Ok(response) => {
                        return outgoing.into_response(response, &target, call.in_flight);
                    }
                    Err(failure) => Err(failure),
                }
            }
        };
        match result {
            Ok(response) => {
                outgoing.into_response(response.map(Full::new), &target, call.in_flight)
            }
            Err(failure) => {
                call.in_flight.mark_refused();
                Err(failure)
            }
        }
    }

    /// Counts a request against the limits of its tenant and registers it, so that it can be closed
    /// from outside.
    ///
    /// # Errors
    /// The exceeded limit of the tier.
    fn admit(
        &self,
        info: StreamInfo,
        workspace: &WorkspaceRow,
        verb: Verb,
        summary: &Arc<RequestSummary>,
        started_at: Instant,
    ) -> Result<InFlightRequest, (LimitExceeded, Arc<TenantLimiter>)> {
        let limits = || self.workspaces.gateway_limits(workspace);
        let limiter = self.limiters.get_or_create(info.workspace, limits);
        let permit = match limiter.acquire(info.kind) {
            Ok(permit) => permit,
            Err(exceeded) => {
                limiter.usage.count_throttled(verb);
                self.metrics.throttled(exceeded.as_str());
                return Err((exceeded, limiter));
            }
        };
        limiter.usage.count_request(verb);
        Ok(InFlightRequest::new(
            self.streams.register(info.clone()),
            permit,
            UsageMeter { limiter, verb },
            info,
            Arc::clone(summary),
            started_at,
            self.metrics.clone(),
        ))
    }

    /// Closes all streams because the broker shuts down; clients reconnect to another replica.
    pub fn stop(&self) {
        self.streams.close(CloseReason::Stopping, |info| info.kind.is_stream());
    }

    /// Reads and drops the rest of a refused request, because a client that is still sending would
    /// not see the response but a closed connection. If too many bodies are being discarded,
    /// nothing is read, and the server closes the connection (HTTP/2: the stream) after the
    /// response.
    fn discard(&self, body: Incoming, address: Option<IpAddr>) {
        if body.is_end_stream() {
            return;
        }
        let Some(permit) = self.identity.limits().discard_body(Client::from_address(address))
        else {
            return;
        };
        tokio::spawn(async move {
            let _ = tokio::time::timeout(DISCARD_TIMEOUT, drop_frames(body)).await;
            drop(permit);
        });
    }

    fn refuse(
        &self,
        failure: &ApiError,
        summary: &RequestSummary,
        started_at: Instant,
    ) -> Response<Body> {
        let response =
            kubernetes_status::status_response(failure, &summary.id, summary.is_discovery());
        let status = response.status().as_u16();
        let seconds = started_at.elapsed().as_secs_f64();
        self.metrics.request(&summary.method, GATEWAY_PATH, status, seconds);
        summary.log_refusal(failure.code(), status, seconds);
        response.map(full_body)
    }
}

/// The connection that a request needs: its own for upgrades and calls, a shared one for watches.
fn transport(outgoing: &UpstreamRequest, kind: Kind) -> Transport {
    if outgoing.is_upgrade() {
        Transport::Upgrade
    } else if kind == Kind::Watch {
        Transport::Http2
    } else {
        Transport::Http1
    }
}

/// Reads a body frame by frame and drops the frames.
async fn drop_frames(mut body: Incoming) {
    let (mut bytes, mut frames) = (0, 0);
    while let Some(Ok(frame)) = body.frame().await {
        bytes += frame.data_ref().map_or(0, Bytes::len);
        frames += 1;
        if bytes > MAX_DISCARDED_BYTES || frames > MAX_DISCARDED_FRAMES {
            break;
        }
    }
}

fn cancelled_request(reason: CloseReason) -> ApiError {
    match reason {
        CloseReason::Suspended => ApiError::new(
            Code::WorkspaceSuspended,
            "the workspace is suspended; ask an administrator",
        ),
        CloseReason::SessionEnded => ApiError::new(Code::Unauthenticated, crate::http::SIGN_IN),
        CloseReason::Revoked => upstream_call::token_replaced(),
        CloseReason::Stopping | CloseReason::DatabaseUnavailable => ApiError::new(
            Code::StorageUnavailable,
            "the broker cannot continue this request; send it again",
        ),
    }
}
