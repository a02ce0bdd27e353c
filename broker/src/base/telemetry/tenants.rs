//! Counts of the controller of Tenants.

use prometheus_client::metrics::{
    counter::Counter,
    family::Family,
    gauge::Gauge,
    histogram::{Histogram, exponential_buckets},
};

use super::{
    registry::{OutcomeLabels, Registrar, register, register_seconds},
    workspaces::StatusLabels,
};

#[derive(Debug)]
pub(super) struct TenantCounts {
    pub(super) reconciles: Family<OutcomeLabels, Counter>,
    pub(super) reconcile_seconds: Histogram,
    pub(super) queue_length: Gauge,
    pub(super) oldest_seconds: Family<StatusLabels, Gauge>,
}

impl TenantCounts {
    /// Registers the metrics.
    pub(super) fn new(registry: &mut Registrar) -> Self {
        Self {
            reconciles: register(
                registry,
                "tenant_reconciles",
                "Runs of this broker that compared a tenant with its desired state",
            ),
            reconcile_seconds: register_seconds(
                registry,
                "tenant_reconcile_duration",
                "Duration of a reconciliation",
                Histogram::new(exponential_buckets(0.002, 2.0, 16)),
            ),
            queue_length: register(
                registry,
                "tenant_queue_length",
                "Tenants that wait for a reconciliation, also for a later one",
            ),
            oldest_seconds: register_seconds(
                registry,
                "tenant_oldest",
                "Time that the oldest tenant of a status has been in it; 0 without one",
                Family::default(),
            ),
        }
    }
}
