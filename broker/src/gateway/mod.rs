//! The gateway: any Kubernetes call of somebody who is signed in, forwarded with the token of their
//! workspace. It adds no rights: the API server decides as it does for that token elsewhere.
//!
//! A request is read once, judged, cleaned, and sent on; its body and the answer's flow both ways
//! as they come. Everything under way is in a registry and can be ended from outside, which no
//! call of the Kubernetes API can do: that completes the kill switch.

mod accounts;
mod answer;
mod answer_headers;
pub mod api;
mod closing;
mod cors;
mod cut;
mod exchange;
mod headers;
mod own;
mod passage;
mod path;
mod reconcile;
mod request;
mod review;
mod share;
mod status;
mod streams;
mod tokens;
mod tunnel;
mod upload;
mod usage;
mod visitors;

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

pub(crate) use self::exchange::whole;
use self::{
    cut::Why,
    exchange::{Exchange, Payload},
    headers::HeaderError,
    own::Asked,
    passage::Passage,
    path::{Kind, PathError},
    request::{Outgoing, Seen},
    share::{Meter, Shares},
    streams::{Facts, Streams},
    tokens::Tokens,
    upload::UploadError,
    usage::Verb,
    visitors::Visitors,
};
use crate::{
    access::Owned as _,
    clock::Clock,
    cluster::{Travel, Upstream, UpstreamError},
    credential::Credentials,
    db::Db,
    identity::Identity,
    problem::{Failure, REQUEST, RequestFacts, chain, note},
    rate_limit::Client,
    telemetry::Metrics,
    workspace::{Rung, Workspaces},
};

/// Bytes of a refused request that are read all the same, in how many frames, and for how long.
const MAX_DISCARDED_BYTES: usize = 1024 * 1024;
const MAX_DISCARDED_FRAMES: usize = 16_384;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// What an answer carries.
pub type Body = BoxBody<Bytes, std::io::Error>;

/// The gateway. Clones share everything.
#[derive(Clone, Debug)]
pub struct Gateway {
    identity: Identity,
    workspaces: Workspaces,
    visitors: Visitors,
    tokens: Tokens,
    credentials: Credentials,
    streams: Streams,
    shares: Shares,
    upstream: Upstream,
    db: Db,
    clock: Clock,
    metrics: Metrics,
    own_answers: bool,
}

/// What the gateway does beside answering, until it is stopped.
#[derive(Debug)]
pub struct Keeping {
    gateway: Gateway,
    tasks: JoinSet<()>,
}

impl Keeping {
    /// Stops, and writes down what tenants used.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
        if let Err(error) = self.gateway.write_usage().await {
            tracing::warn!(
                error = chain(&error),
                "what went through the gateway lately is not written down"
            );
        }
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        Self::new(Code::InvalidRequest, error.to_string())
    }
}

impl From<HeaderError> for Failure {
    fn from(error: HeaderError) -> Self {
        let code = match error {
            HeaderError::Impersonation => Code::Forbidden,
            HeaderError::TwoAuthorizations => Code::InvalidRequest,
        };
        Self::new(code, error.to_string())
    }
}

impl From<UpstreamError> for Failure {
    fn from(error: UpstreamError) -> Self {
        note("cause", chain(&error));
        match error {
            UpstreamError::Connection(error) if let Some(error) = UploadError::of(&error) => {
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
    /// A gateway to the cluster of these workspaces. With `own_answers` it has a part in the answers
    /// that [`own`] names.
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
            visitors: Visitors::new(identity.clone(), workspaces.clone()),
            tokens: Tokens::new(credentials.clone(), clock.clone()),
            credentials,
            streams: Streams::default(),
            shares: Shares::default(),
            db,
            upstream: workspaces.cluster().upstream().clone(),
            identity,
            workspaces,
            clock,
            metrics,
            own_answers,
        }
    }

    /// Ends what may not go on, which it asks of this share of the database, and writes down what
    /// tenants use, from now on.
    pub fn keep(&self, rung: Rung, authority: &Db) -> Keeping {
        let closing = Self {
            db: authority.clone(),
            identity: self.identity.on(authority),
            workspaces: self.workspaces.on(authority),
            credentials: self.credentials.on(authority),
            ..self.clone()
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(closing.clone().keep_closing(rung));
        tasks.spawn(closing.keep_reconciling());
        tasks.spawn(self.clone().keep_usage());
        Keeping { gateway: self.clone(), tasks }
    }

    /// Answers one request.
    pub async fn answer(
        &self,
        request: Request<Incoming>,
        address: Option<IpAddr>,
    ) -> Response<Body> {
        let began = Instant::now();
        let origin = cors::origin(&request, self.identity.origins());
        if cors::is_preflight(&request) {
            return cors::preflight(origin.as_ref()).map(whole);
        }
        // Ours, never the client's: it becomes the Audit-ID at the API server.
        let id = self.clock.random_id().to_string();
        let seen = Arc::new(Seen::new(&request, &id, address));
        let facts = RequestFacts {
            id,
            address,
            user_agent: request::user_agent(request.headers()),
            notes: RefCell::default(),
        };
        let (parts, body) = request.into_parts();
        let mut body = Some(body);
        let mut response = REQUEST
            .scope(facts, async {
                match self.forward(parts, &mut body, &seen, began).await {
                    Ok(response) => response,
                    Err(failure) => {
                        if let Some(body) = body {
                            self.discard(body, address);
                        }
                        self.refuse(&failure, &seen, began)
                    }
                }
            })
            .await;
        if let Some(origin) = &origin {
            cors::readable(response.headers_mut(), origin);
        }
        response
    }

    /// The whole way, from top to bottom: who, where to, whether it is on, and over.
    ///
    /// What is seldom done on this way is on the heap, here and further down: the future of every
    /// request has room for all that is not, and is moved more than once before it begins.
    async fn forward(
        &self,
        mut parts: http::request::Parts,
        sent: &mut Option<Incoming>,
        seen: &Arc<Seen>,
        began: Instant,
    ) -> Result<Response<Body>, Failure> {
        let presented = self.identity.presented(&parts.method, &parts.headers)?;
        let visitor = self.visitors.find(&presented).await?;
        headers::check(&parts.headers)?;
        let target = path::parse(&parts.uri)?;
        if target.cluster != self.workspaces.cluster().name() {
            return Err(Failure::new(Code::NotFound, "there is no such cluster"));
        }
        let workspace = visitor.workspace(target.namespace)?;
        let active = self.visitors.active(&visitor, workspace)?;
        let own = workspace.found().namespace().to_owned();
        let asked = if self.own_answers {
            own::asked(&parts.method, &target, &parts.headers, &own)
        } else {
            Asked::AsWritten
        };
        let outgoing = Outgoing::read(&mut parts.headers, &mut parts.extensions, &presented, seen)?;
        let facts = Facts {
            kind: target.kind,
            workspace: workspace.found().id(),
            service_account: Arc::clone(active.service_account_uid()),
            user: visitor.caller.user_id(),
            session: visitor.caller.session_id(),
            credential: None,
        };
        let share =
            self.shares.of(facts.workspace, || self.workspaces.gateway_limits(workspace.found()));
        let verb = Verb::of(&parts.method, &target);
        let place = match share.enter(target.kind) {
            Ok(place) => place,
            Err(excess) => {
                share.usage.throttled(verb);
                self.metrics.throttled(excess.as_str());
                return Err(excess.refusal(&share.limits).await);
            }
        };
        share.usage.request(verb);
        let meter = Meter { share, verb };
        let entry = self.streams.enter(facts.clone());
        let metrics = self.metrics.clone();
        let passage = Passage::new(entry, place, meter, facts, Arc::clone(seen), began, metrics);
        let mut exchange = Exchange {
            gateway: self,
            presented: &presented,
            visitor: Arc::clone(&visitor),
            namespace: target.namespace,
            kind: target.kind,
            travel: if outgoing.is_upgrade() {
                Travel::Upgrade
            } else if target.kind == Kind::Watch {
                Travel::Together
            } else {
                Travel::Alone
            },
            passage,
        };
        let Some(body) = sent.take() else { return Err(cut_off(Why::Unknown)) };
        let path = match &asked {
            Asked::Watch(path) => path,
            _ => target.path_and_query,
        };
        let answered = match asked {
            Asked::List(form) => Box::pin(answer::list(&mut exchange, &outgoing, form, &own)).await,
            Asked::AccessReview | Asked::SelfReview => {
                let reviewed = answer::reviewed(&mut exchange, &outgoing, &asked, path, body, &own);
                Box::pin(reviewed).await
            }
            Asked::AsWritten | Asked::Watch(_) => {
                let payload = if body.is_end_stream() {
                    Payload::Whole(Bytes::new())
                } else {
                    Payload::Stream(exchange.passage.upload(body).boxed())
                };
                match exchange.send(&parts.method, path, &outgoing.headers, payload).await {
                    Ok(response) => return outgoing.answer(response, &target, exchange.passage),
                    Err(failure) => Err(failure),
                }
            }
        };
        match answered {
            Ok(response) => outgoing.answer(response.map(Full::new), &target, exchange.passage),
            Err(failure) => {
                exchange.passage.refused();
                Err(failure)
            }
        }
    }

    /// Ends all streams: the broker stops, and clients find another replica.
    pub fn stop(&self) {
        self.streams.cut(Why::Stopping, |of| of.kind.is_stream());
    }

    /// Reads and drops what the client of a refused request still sends: a client that is still
    /// sending would not see the answer, only that the connection breaks. If too many do so already,
    /// nothing is read, and the server closes the connection (HTTP/2: the stream) after the answer.
    fn discard(&self, body: Incoming, address: Option<IpAddr>) {
        if body.is_end_stream() {
            return;
        }
        let Some(place) = self.identity.limits().discard_body(Client::of(address)) else { return };
        tokio::spawn(async move {
            let _ = tokio::time::timeout(DISCARD_TIMEOUT, drop_frames(body)).await;
            drop(place);
        });
    }

    fn refuse(&self, failure: &Failure, seen: &Seen, began: Instant) -> Response<Body> {
        let response = status::answer(failure, &seen.id, seen.is_discovery());
        let status = response.status().as_u16();
        let took = began.elapsed().as_secs_f64();
        self.metrics.request(&seen.method, GATEWAY_PATH, status, took);
        seen.log_refusal(failure.code(), status, took);
        response.map(whole)
    }
}

/// Reads a body frame by frame and keeps nothing of it.
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

fn cut_off(why: Why) -> Failure {
    match why {
        Why::Suspended => Failure::new(
            Code::WorkspaceSuspended,
            "the workspace is suspended; ask an administrator",
        ),
        Why::SessionEnded => Failure::new(Code::Unauthenticated, crate::problem::SIGN_IN),
        Why::Revoked => exchange::token_replaced(),
        Why::Stopping | Why::Unknown => Failure::new(
            Code::StorageUnavailable,
            "the broker cannot go on; send the request again",
        ),
    }
}
