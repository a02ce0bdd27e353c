//! The gateway: a reverse proxy that forwards Kubernetes requests of signed-in users with the token
//! of their workspace. It adds no permissions: the API server decides as for any request with that
//! token.
//!
//! A request is parsed once, authenticated, checked against the limits, filtered and forwarded;
//! bodies are streamed in both directions. Everything in flight is in a registry and can be closed
//! at once. The Kubernetes API has no call for that, so it completes the kill switch.
//!
//! Another module can answer a request of a session itself, with calls that have the same tokens,
//! limits and cancellation as forwarded requests ([`SessionCaller`]).
//!
//! For members of tenants the gateway chooses the membership by the named namespace, creates
//! namespaces, and lists theirs and the cluster-scoped resources that their Tenants grant with the
//! broker's own credential; all other requests are forwarded with the token of a membership.
//!
//! [`proxy`] has the order of all steps.
//!
//! | folder | responsibility |
//! |---|---|
//! | `kubernetes_api` | paths, `Status` objects, access reviews and namespaces of requests |
//! | `request`, `response` | headers and bodies, upgraded connections |
//! | `principals` | callers with their workspaces and rights, cached for a moment |
//! | `limits` | limits of tenants and of reads as the broker; usage |
//! | `in_flight` | the registry of requests and streams, and their cancellation |
//! | `interception` | responses of the broker instead of forwarded ones |
//! | `revocation` | tasks that close what is not authorized any more |

mod admit;
pub mod api;
mod error;
mod in_flight;
mod interception;
mod kubernetes_api;
mod limits;
mod membership;
mod principals;
mod proxy;
mod request;
mod respond;
mod response;
mod revocation;
mod session_request;
#[cfg(test)]
mod tests;
mod upstream_call;

use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

pub use self::{error::UPSTREAM_ERROR_CAUSES, limits::LIMITS};
use self::{
    in_flight::{CloseReason, Streams},
    kubernetes_api::path::Kind,
    limits::{BrokerReadLimiter, TenantLimiters},
    principals::{Joins, PrincipalCache},
};
pub(crate) use self::{
    limits::{LimitExceeded, TenantLimiter, usage::Verb},
    request::set_audit_headers,
    session_request::{SessionCaller, SessionRequest, UpstreamMessage},
};
use crate::{
    base::{clock::Clock, db::Db, error_chain, telemetry::Metrics},
    cluster::Clusters,
    credential::{Credentials, TokenCache},
    identity::Identity,
    tenant_operations::TenantOperations,
    workspace::{NotificationReceiver, Workspaces},
};

/// How long closed requests have to end before the last usage is stored. One whose client does not
/// read its response ends with the process.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Values of the label `kind` of requests in metrics.
pub fn request_kinds() -> [&'static str; 5] {
    Kind::ALL.map(Kind::as_str)
}

/// The dependencies of [`Gateway`].
#[derive(Debug)]
pub struct Dependencies {
    /// The database.
    pub db: Db,
    /// Authenticates callers.
    pub identity: Identity,
    /// The workspaces that callers may use.
    pub workspaces: Workspaces,
    /// Lists the credentials that were revoked.
    pub credentials: Credentials,
    /// The tokens that requests are sent with.
    pub tokens: TokenCache,
    /// The clusters that requests are forwarded to.
    pub clusters: Clusters,
    /// Source of times and identifiers.
    pub clock: Clock,
    /// Counts requests.
    pub metrics: Metrics,
    /// Whether the gateway intercepts the requests that [`interception`] names.
    pub synthesizes_responses: bool,
    /// Memberships in tenants and their namespaces; `None` without `tenants.enabled`.
    pub tenants: Option<TenantOperations>,
}

/// The gateway. Clones share all state.
#[derive(Clone, Debug)]
pub struct Gateway {
    clusters: Clusters,
    identity: Identity,
    workspaces: Workspaces,
    principals: PrincipalCache,
    tokens: TokenCache,
    credentials: Credentials,
    streams: Streams,
    limiters: TenantLimiters,
    broker_reads: BrokerReadLimiter,
    db: Db,
    clock: Clock,
    metrics: Metrics,
    synthesizes_responses: bool,
    tenants: Option<TenantOperations>,
    joins: Joins,
}

/// A background task of the gateway ended, although nothing stopped it.
#[derive(Debug, thiserror::Error)]
#[error(
    "a background task of the gateway ended, so streams could stay open after a suspension; start \
     the broker again and report the panic"
)]
pub struct TaskEnded(#[source] Option<JoinError>);

/// The background tasks of the gateway, until they are stopped.
#[derive(Debug)]
pub struct BackgroundTasks {
    gateway: Gateway,
    tasks: JoinSet<()>,
    /// Cancelled once nothing is in flight any more.
    gateway_stopped: CancellationToken,
}

impl BackgroundTasks {
    /// Waits until one of the tasks ends by itself, which only a panic causes. The broker must not
    /// go on then: without the tasks revocations close no streams.
    pub async fn ended(&mut self) -> TaskEnded {
        match self.tasks.join_next().await {
            Some(result) => TaskEnded(result.err()),
            None => std::future::pending().await,
        }
    }

    /// Stops the tasks, closes the requests that did not finish while the server drained, and
    /// flushes usage, theirs too.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
        self.gateway.streams.close(CloseReason::Stopping, |_| true);
        self.gateway_stopped.cancel();
        // A closed request counts its bytes and time when its connection notices.
        self.gateway.streams.drained(CLOSE_TIMEOUT).await;
        if let Err(error) = self.gateway.flush_usage_once().await {
            tracing::warn!(
                error = error_chain(&error),
                "cannot store the last usage of the gateway"
            );
        }
    }
}

impl Gateway {
    /// A gateway with these dependencies.
    pub fn new(dependencies: Dependencies) -> Self {
        let Dependencies {
            db,
            identity,
            workspaces,
            credentials,
            tokens,
            clusters,
            clock,
            metrics,
            synthesizes_responses,
            tenants,
        } = dependencies;
        let principals = PrincipalCache::new(
            identity.clone(),
            workspaces.clone(),
            clusters.clone(),
            tenants.clone(),
        );
        Self {
            principals,
            tokens,
            credentials,
            streams: Streams::default(),
            limiters: TenantLimiters::default(),
            broker_reads: BrokerReadLimiter::default(),
            db,
            clusters,
            identity,
            workspaces,
            clock,
            metrics,
            synthesizes_responses,
            tenants,
            joins: Joins::default(),
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
        let gateway_stopped = notifications.gateway_stopped();
        let mut tasks = JoinSet::new();
        tasks.spawn(watcher.clone().watch_revocations(notifications));
        if let Some(tenants) = watcher.tenants.clone() {
            tasks.spawn(watcher.clone().watch_tenants(tenants.clone()));
            tasks.spawn(watcher.clone().watch_moves(tenants.clone()));
            tasks.spawn(watcher.clone().watch_member_rights(tenants.clone()));
            tasks.spawn(watcher.clone().sweep_member_rights(tenants));
        }
        tasks.spawn(watcher.reconcile_streams());
        tasks.spawn(self.clone().flush_usage());
        BackgroundTasks { gateway: self.clone(), tasks, gateway_stopped }
    }

    /// Sets the gauges of the requests and streams in flight.
    pub fn record_gauges(&self) {
        for kind in Kind::ALL {
            self.metrics.set_gateway_in_flight(kind.as_str(), self.streams.count(kind));
        }
    }

    /// Closes all streams because the broker shuts down; clients reconnect to another replica.
    pub fn stop(&self) {
        self.streams.close(CloseReason::Stopping, |info| info.kind.is_stream());
    }
}
