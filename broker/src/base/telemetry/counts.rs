//! Counts of the metrics with their labels, and their registration.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        TypedMetric,
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
        info::Info,
    },
    registry::{Metric, Unit},
};

use super::{
    files::FileMetrics,
    gateway::GatewayCounts,
    health::HealthGauges,
    process,
    registry::{Exposition, Registrar},
    status_label::StatusLabel,
};

/// Labels of a request; the values of each are a closed set.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct RequestLabels {
    pub(super) method: &'static str,
    pub(super) area: &'static str,
    pub(super) status: StatusLabel,
}

/// Label of the part of the service that serves a request.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct AreaLabels {
    pub(super) area: &'static str,
}

/// Labels of an audited action.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct ActionLabels {
    pub(super) action: &'static str,
    pub(super) outcome: &'static str,
}

/// Labels of a workspace's status.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct StatusLabels {
    pub(super) status: &'static str,
}

/// Labels of an attempt of the sweep.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct SweepLabels {
    pub(super) status: &'static str,
    pub(super) outcome: &'static str,
}

/// Labels of a difference (drift) in the cluster.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct DriftLabels {
    pub(super) kind: String,
    pub(super) what: String,
}

/// Labels of a failed step of a suspension.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct StepLabels {
    pub(super) step: &'static str,
    pub(super) cause: &'static str,
}

/// Labels of an outcome.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct OutcomeLabels {
    pub(super) outcome: &'static str,
}

/// Labels of a rate limit.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct LimitLabels {
    pub(super) limit: &'static str,
}

/// Labels of the permissions of a tier's ClusterRole.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct RoleLabels {
    pub(super) role: String,
    pub(super) leads_out: &'static str,
}

/// Labels of a call of model services to the API server.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct CallLabels {
    pub(super) call: &'static str,
    pub(super) outcome: &'static str,
}

/// Label of the cause of a failure.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct CauseLabels {
    pub(super) cause: &'static str,
}

/// Label of the program.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// The counts of all metrics, and the registries that render them.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) unauthenticated_refused: Family<LimitLabels, Counter>,
    pub(super) throttled: Family<LimitLabels, Counter>,
    pub(super) requests: Family<RequestLabels, Counter>,
    pub(super) request_seconds: Family<AreaLabels, Histogram>,
    pub(super) actions: Family<ActionLabels, Counter>,
    pub(super) token_requests: Family<OutcomeLabels, Counter>,
    pub(super) token_request_seconds: Histogram,
    pub(super) workspaces: Family<StatusLabels, Gauge>,
    pub(super) oldest_seconds: Family<StatusLabels, Gauge>,
    pub(super) sweep_attempts: Family<SweepLabels, Counter>,
    pub(super) suspension_failures: Family<StepLabels, Counter>,
    pub(super) drift: Family<DriftLabels, Counter>,
    pub(super) drift_repaired: Family<DriftLabels, Counter>,
    pub(super) drift_open: Family<DriftLabels, Gauge>,
    pub(super) drift_rounds: Family<OutcomeLabels, Counter>,
    pub(super) tenant_reconciles: Family<OutcomeLabels, Counter>,
    pub(super) tenant_reconcile_seconds: Histogram,
    pub(super) tenant_queue_length: Gauge,
    pub(super) policies_in_force: Gauge,
    pub(super) clock_offset_milliseconds: Gauge,
    pub(super) role_beyond_admin: Family<RoleLabels, Gauge>,
    pub(super) signing_keys: Gauge,
    pub(super) files: FileMetrics,
    pub(super) gateway: GatewayCounts,
    pub(super) model_services_calls: Family<CallLabels, Counter>,
    pub(super) model_services_tokens_refused: Counter,
    pub(super) health: HealthGauges,
    pub(super) started_at: Gauge,
    pub(super) exposition: Exposition,
}

impl Counts {
    /// Registers all metrics. Rust evaluates the fields in the order in which they are written
    /// here, so this is also their order in `/metrics`.
    #[expect(clippy::too_many_lines, reason = "one entry for each metric")]
    pub(super) fn new() -> Self {
        let mut process = Registrar::with_prefix("process");
        let mut registry = Registrar::with_prefix("tenant_broker");
        let build = BuildLabels { version: env!("CARGO_PKG_VERSION") };
        registry.add("build", "The version of the broker", None, Info::new(build));
        Self {
            unauthenticated_refused: register(
                &mut registry,
                "unauthenticated_refused",
                "Unauthenticated requests that were refused before the database",
            ),
            throttled: register(
                &mut registry,
                "gateway_throttled",
                "Requests that the gateway refused because a tenant exceeded a limit",
            ),
            requests: register(&mut registry, "requests", "Answered requests"),
            request_seconds: register_seconds(
                &mut registry,
                "request_duration",
                "Time from a request to the beginning of its response",
                Family::new_with_constructor(request_histogram as fn() -> Histogram),
            ),
            actions: register(&mut registry, "actions", "Audited actions by outcome"),
            token_requests: register(
                &mut registry,
                "token_requests",
                "TokenRequests at the Kubernetes API by outcome",
            ),
            token_request_seconds: register_seconds(
                &mut registry,
                "token_request_duration",
                "Time of an answered TokenRequest at the Kubernetes API",
                Histogram::new(exponential_buckets(0.000_5, 2.0, 14)),
            ),
            workspaces: register(&mut registry, "workspaces", "Workspaces by status"),
            oldest_seconds: register_seconds(
                &mut registry,
                "workspace_oldest",
                "Time that the oldest workspace of a status has been in it",
                Family::default(),
            ),
            sweep_attempts: register(
                &mut registry,
                "sweep_attempts",
                "Attempts of the sweep to finish a workspace in a transitional status",
            ),
            suspension_failures: register(
                &mut registry,
                "suspension_step_failures",
                "Failed attempts of a step of a suspension",
            ),
            drift: register(&mut registry, "drift", "Differences found in the cluster"),
            drift_repaired: register(
                &mut registry,
                "drift_repaired",
                "Differences that the broker repaired",
            ),
            drift_open: register(
                &mut registry,
                "drift_open",
                "Current differences that need an administrator",
            ),
            drift_rounds: register(
                &mut registry,
                "drift_rounds",
                "Rounds of this broker over the objects of all workspaces",
            ),
            tenant_reconciles: register(
                &mut registry,
                "tenant_reconciles",
                "Runs of this broker that compared a tenant with its desired state",
            ),
            tenant_reconcile_seconds: register_seconds(
                &mut registry,
                "tenant_reconcile_duration",
                "Time of such a run",
                Histogram::new(exponential_buckets(0.002, 2.0, 16)),
            ),
            tenant_queue_length: register(
                &mut registry,
                "tenant_queue_length",
                "Tenants that wait for such a run, or for another one after a failure",
            ),
            policies_in_force: register(
                &mut registry,
                "policies_in_force",
                "1 if the cluster has the admission policies of tenant-broker install, else 0",
            ),
            clock_offset_milliseconds: register(
                &mut registry,
                "clock_offset_milliseconds",
                "How far this broker's clock was ahead of PostgreSQL's when it started",
            ),
            role_beyond_admin: register(
                &mut registry,
                "role_rights_beyond_admin",
                "Resources on which a tier's ClusterRole grants more than the built-in admin",
            ),
            signing_keys: register(
                &mut registry,
                "signing_keys",
                "Public keys that the issuer publishes; the first one signs",
            ),
            files: FileMetrics::new(&mut registry),
            gateway: GatewayCounts::new(&mut registry),
            model_services_calls: register(
                &mut registry,
                "model_services_calls",
                "Calls of model services to the API server, as their callers",
            ),
            model_services_tokens_refused: register(
                &mut registry,
                "model_services_tokens_refused",
                "Kubernetes tokens of callers of model services that the API server refused",
            ),
            health: HealthGauges::new(&mut registry),
            started_at: process::register(&mut process),
            exposition: Exposition::new([process, registry]),
        }
    }
}

/// Buckets from 0.5 ms to 16 s.
fn request_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_5, 2.0, 16))
}

/// Registers a new metric with this name, without the prefix, and this help text.
pub(super) fn register<M: Metric + TypedMetric + Clone + Default>(
    registry: &mut Registrar,
    name: &str,
    help: &str,
) -> M {
    let metric = M::default();
    registry.add(name, help, None, metric.clone());
    metric
}

/// Registers this metric like [`register`], with the unit seconds.
pub(super) fn register_seconds<M: Metric + TypedMetric + Clone>(
    registry: &mut Registrar,
    name: &str,
    help: &str,
    metric: M,
) -> M {
    registry.add(name, help, Some(Unit::Seconds), metric.clone());
    metric
}
