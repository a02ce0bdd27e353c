//! Values of labels that are known before anything is counted.

use jiff::Timestamp;
use tenant_shared::WorkspaceStatus;

use super::{
    counts::{CallLabels, RoleLabels},
    metrics::{AREAS, METHODS, Metrics, SweepOutcome},
    registry::{CauseLabels, OutcomeLabels},
    requests::{ActionLabels, AreaLabels, LimitLabels, RequestLabels},
    status_label::StatusLabel,
    workspaces::{DriftLabels, StepLabels, SweepLabels},
};

/// Statuses of workspaces that the sweep works on.
const SWEPT: [WorkspaceStatus; 4] = [
    WorkspaceStatus::Provisioning,
    WorkspaceStatus::Provisioned,
    WorkspaceStatus::Suspending,
    WorkspaceStatus::Resuming,
];

/// The values of labels that other modules define.
#[derive(Clone, Debug)]
pub struct LabelValues {
    /// Names of the audited actions.
    pub actions: Vec<&'static str>,
    /// Outcomes of audited actions.
    pub action_outcomes: Vec<&'static str>,
    /// Outcomes of TokenRequests.
    pub token_outcomes: Vec<&'static str>,
    /// Steps of a suspension.
    pub suspension_steps: Vec<&'static str>,
    /// Causes of a failed step of a suspension.
    pub suspension_causes: Vec<&'static str>,
    /// Kinds of the objects that drift is detected of.
    pub drift_kinds: Vec<&'static str>,
    /// Names of the differences of objects.
    pub drift_differences: Vec<&'static str>,
    /// Statuses of tenants with a decision that is not carried out.
    pub tenant_transitions: Vec<&'static str>,
    /// Outcomes of runs on tenants.
    pub tenant_outcomes: Vec<&'static str>,
    /// Limits of the gateway.
    pub gateway_limits: Vec<&'static str>,
    /// Kinds of gateway requests.
    pub gateway_kinds: Vec<&'static str>,
    /// Kinds of the calls of model services.
    pub model_services_calls: Vec<&'static str>,
    /// Outcomes of these calls.
    pub model_services_outcomes: Vec<&'static str>,
    /// Causes of errors of the gateway's requests to the API server.
    pub upstream_causes: Vec<&'static str>,
    /// Limits on unauthenticated requests.
    pub unauthenticated_limits: Vec<&'static str>,
    /// Causes of failed attempts to seal audit rows.
    pub seal_failure_causes: Vec<&'static str>,
    /// Shares of the database connections.
    pub database_pools: Vec<&'static str>,
    /// Names of the files with a certificate or token that ends.
    pub expiring_files: Vec<&'static str>,
}

impl Metrics {
    /// Exports 0 for the label values that exist from the start, and `started_at` as the time at
    /// which background work succeeded last. Without a sample of 0, Prometheus' `increase()` misses
    /// the first count. Gauges that are read from the database or the cluster have no sample before
    /// they were read, and label values that depend on clients, tiers or drift none before they
    /// occur.
    pub fn export_zeros(&self, values: &LabelValues, started_at: Timestamp) {
        let counts = &self.0;
        for &action in &values.actions {
            for &outcome in &values.action_outcomes {
                drop(counts.requests.actions.get_or_create(&ActionLabels { action, outcome }));
            }
        }
        for &outcome in &values.token_outcomes {
            drop(counts.requests.token_requests.get_or_create(&OutcomeLabels { outcome }));
        }
        for &step in &values.suspension_steps {
            for &cause in &values.suspension_causes {
                drop(
                    counts
                        .workspaces
                        .suspension_failures
                        .get_or_create(&StepLabels { step, cause }),
                );
            }
        }
        for status in SWEPT {
            for outcome in SweepOutcome::ALL {
                let labels = SweepLabels { status: status.as_str(), outcome: outcome.as_str() };
                drop(counts.workspaces.sweep_attempts.get_or_create(&labels));
            }
        }
        for outcome in ["done", "failed"] {
            drop(counts.workspaces.drift_rounds.get_or_create(&OutcomeLabels { outcome }));
        }
        for &status in &values.tenant_transitions {
            self.set_oldest_tenant(status, 0);
        }
        for &outcome in &values.tenant_outcomes {
            drop(counts.tenants.reconciles.get_or_create(&OutcomeLabels { outcome }));
        }
        for &limit in &values.gateway_limits {
            drop(counts.requests.throttled.get_or_create(&LimitLabels { limit }));
        }
        for &limit in &values.unauthenticated_limits {
            drop(counts.requests.unauthenticated_refused.get_or_create(&LimitLabels { limit }));
        }
        for &kind in &values.gateway_kinds {
            self.set_gateway_in_flight(kind, 0);
        }
        for &call in &values.model_services_calls {
            for &outcome in &values.model_services_outcomes {
                let labels = CallLabels { call, outcome };
                drop(counts.model_services_calls.get_or_create(&labels));
            }
        }
        for &cause in &values.upstream_causes {
            drop(counts.gateway.upstream_errors.get_or_create(&CauseLabels { cause }));
        }
        for &cause in &values.seal_failure_causes {
            drop(counts.health.audit_seal_failures.get_or_create(&CauseLabels { cause }));
        }
        counts.started_at.set(started_at.as_second());
        self.sweep_completed(started_at);
        self.audit_sealed(started_at);
    }

    /// Adds a series for each other label value, for the documentation. The text `any` stands for
    /// values that are not known in advance.
    pub(super) fn export_all(&self, values: &LabelValues) {
        let counts = &self.0;
        self.export_zeros(values, Timestamp::UNIX_EPOCH);
        for (area, _) in AREAS {
            drop(counts.requests.seconds.get_or_create(&AreaLabels { area }));
            for method in METHODS {
                let labels = RequestLabels { method, area, status: StatusLabel::new(200) };
                drop(counts.requests.answered.get_or_create(&labels));
            }
        }
        for status in WorkspaceStatus::ALL {
            self.set_workspaces(status, 0, 0);
        }
        for &kind in &values.drift_kinds {
            for &what in &values.drift_differences {
                let labels = DriftLabels { kind: kind.to_owned(), what: what.to_owned() };
                drop(counts.workspaces.drift.get_or_create(&labels));
                drop(counts.workspaces.drift_repaired.get_or_create(&labels));
                drop(counts.workspaces.drift_open.get_or_create(&labels));
            }
        }
        for leads_out in ["yes", "unknown"] {
            let labels = RoleLabels { role: "any".to_owned(), leads_out };
            drop(counts.role_beyond_admin.get_or_create(&labels));
        }
        for &share in &values.database_pools {
            self.set_database_connections(share, [0, 0], 0);
        }
        self.file_loaded("any", Timestamp::UNIX_EPOCH);
        self.file_polled("any", Timestamp::UNIX_EPOCH);
        for &file in &values.expiring_files {
            self.credential_expiry(file, Some(Timestamp::UNIX_EPOCH));
        }
    }
}
