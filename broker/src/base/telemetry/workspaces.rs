//! Counts of workspaces: statuses, sweep, suspensions and drift.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

use super::registry::{OutcomeLabels, Registrar, register, register_seconds};

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

#[derive(Debug)]
pub(super) struct WorkspaceCounts {
    pub(super) by_status: Family<StatusLabels, Gauge>,
    pub(super) oldest_seconds: Family<StatusLabels, Gauge>,
    pub(super) sweep_attempts: Family<SweepLabels, Counter>,
    pub(super) suspension_failures: Family<StepLabels, Counter>,
    pub(super) drift: Family<DriftLabels, Counter>,
    pub(super) drift_repaired: Family<DriftLabels, Counter>,
    pub(super) drift_open: Family<DriftLabels, Gauge>,
    pub(super) drift_rounds: Family<OutcomeLabels, Counter>,
}

impl WorkspaceCounts {
    /// Registers the metrics.
    pub(super) fn new(registry: &mut Registrar) -> Self {
        Self {
            by_status: register(registry, "workspaces", "Workspaces by status"),
            oldest_seconds: register_seconds(
                registry,
                "workspace_oldest",
                "Time that the oldest workspace of a status has been in it",
                Family::default(),
            ),
            sweep_attempts: register(
                registry,
                "sweep_attempts",
                "Attempts of the sweep to finish a workspace in a transitional status",
            ),
            suspension_failures: register(
                registry,
                "suspension_step_failures",
                "Failed attempts of a step of a suspension",
            ),
            drift: register(registry, "drift", "Differences found in the cluster"),
            drift_repaired: register(
                registry,
                "drift_repaired",
                "Differences that the broker repaired",
            ),
            drift_open: register(
                registry,
                "drift_open",
                "Current differences that need an administrator",
            ),
            drift_rounds: register(
                registry,
                "drift_rounds",
                "Rounds of this broker over the objects of all workspaces",
            ),
        }
    }
}
