//! All metrics, and the registries that render them.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, info::Info},
};

use super::{
    files::FileMetrics,
    gateway::GatewayCounts,
    health::HealthGauges,
    process,
    registry::{Exposition, Registrar, register},
    requests::RequestCounts,
    tenants::TenantCounts,
    workspaces::WorkspaceCounts,
};

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

/// Label of the program.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// The counts of all metrics, and the registries that render them.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) requests: RequestCounts,
    pub(super) workspaces: WorkspaceCounts,
    pub(super) tenants: TenantCounts,
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
    pub(super) fn new() -> Self {
        let mut process = Registrar::with_prefix("process");
        let mut registry = Registrar::with_prefix("tenant_broker");
        let build = BuildLabels { version: env!("CARGO_PKG_VERSION") };
        registry.add("build", "The version of the broker", None, Info::new(build));
        Self {
            requests: RequestCounts::new(&mut registry),
            workspaces: WorkspaceCounts::new(&mut registry),
            tenants: TenantCounts::new(&mut registry),
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
