//! Model services: the namespaces that somebody may see, the models that KServe serves there, and
//! Llama Stack distributions that use these models.
//!
//! Every call to Kubernetes carries the caller's own token: a Kubernetes token of theirs, or the
//! two-hour token of the workspace of their session, as in the gateway. So RBAC decides, and the API
//! server's audit log names the caller. The broker adds no right, and remembers nothing of an answer.
//!
//! | file | responsibility |
//! |---|---|
//! | `caller`, `kubernetes_token` | the caller of a request, by session or Kubernetes token |
//! | `caller_client`, `call`, `call_response`, `call_kind`, `cancelled_call`, `list` | calls to the API server as the caller |
//! | `limits`, `time_limit` | limits of requests, calls, memory and time |
//! | `refusal_rows` | limit of audit rows of refused changes |
//! | `review` | who the caller is, and whether they may use a namespace |
//! | `cluster_domain` | the domain of the cluster's routes |
//! | `user` | the caller's name, and settings for a frontend |
//! | `namespaces` | the namespaces that the caller may read |
//! | `models`, `inference` | the models of a namespace, and their conversion to the types of the API |
//! | `lenient`, `known_keys` | lenient deserialization: a value of an unexpected type becomes the default, and unused fields are skipped |
//! | `model_url` | URLs of models, as their owners write them |
//! | `owners` | owners of objects that models may own |
//! | `endpoint`, `token` | URL and token Secret of a model |
//! | `distribution` | the Llama Stack of a namespace |
//! | `failure` | failures with their HTTP status |
//! | `api` | the HTTP API, `/gen-ai/api/v1` |

pub mod api;
mod call;
mod call_kind;
mod call_response;
mod caller;
mod caller_client;
mod cancelled_call;
mod cluster_domain;
mod distribution;
mod endpoint;
mod failure;
mod inference;
mod known_keys;
mod kubernetes_token;
mod lenient;
mod limits;
mod list;
mod model_url;
mod models;
mod namespaces;
mod owners;
mod refusal_rows;
mod review;
mod settings;
mod time_limit;
mod token;
mod user;

use std::sync::Arc;

use self::{
    call_kind::{CallKind, CallOutcome},
    cluster_domain::LastRead,
    distribution::{ChangesInFlight, name_to_delete},
    limits::Limits,
    refusal_rows::RefusalRows,
};
pub use self::{
    distribution::DistributionSettings,
    failure::Failure,
    review::InNamespace,
    settings::{AccessCheck, ClusterDomain, ModelServicesSettings, TokenLimits},
};
use crate::{
    base::{clock::Clock, db::Db, telemetry::Metrics},
    cluster::Cluster,
    gateway::Gateway,
    identity::Identity,
};

/// Values of the label `call` of calls to the API server in metrics.
pub const CALLS: &[&str] = CallKind::LABELS;
/// Values of the label `outcome` of calls to the API server in metrics.
pub const CALL_OUTCOMES: &[&str] = CallOutcome::LABELS;

/// The dependencies of [`ModelServices`].
#[derive(Debug)]
pub struct Dependencies {
    pub settings: ModelServicesSettings,
    /// Reads the credentials of sessions.
    pub identity: Identity,
    /// Principals, tokens, limits and registry of sessions' requests.
    pub gateway: Gateway,
    /// The cluster that is asked.
    pub cluster: Cluster,
    /// The database of the audit trail.
    pub db: Db,
    /// Source of times and identifiers.
    pub clock: Clock,
    /// Counts calls.
    pub metrics: Metrics,
}

/// Model services. Clones share all state.
#[derive(Clone, Debug)]
pub struct ModelServices(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: ModelServicesSettings,
    identity: Identity,
    gateway: Gateway,
    cluster: Cluster,
    db: Db,
    clock: Clock,
    metrics: Metrics,
    limits: Limits,
    refusal_rows: RefusalRows,
    /// Changes that go on without their clients.
    changes_in_flight: ChangesInFlight,
    domain: LastRead,
}

impl ModelServices {
    /// The services with these dependencies.
    pub fn new(dependencies: Dependencies) -> Self {
        let Dependencies { settings, identity, gateway, cluster, db, clock, metrics } =
            dependencies;
        let limits = Limits::new(settings.token_limits, settings.changes_per_user);
        let refusal_rows = RefusalRows::default();
        let inner = Inner {
            settings,
            identity,
            gateway,
            cluster,
            db,
            clock,
            metrics,
            limits,
            refusal_rows,
            changes_in_flight: ChangesInFlight::default(),
            domain: LastRead::default(),
        };
        Self(Arc::new(inner))
    }
}
