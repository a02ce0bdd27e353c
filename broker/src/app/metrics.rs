//! The metrics of all modules: the values of their labels, and the generated page.

use crate::{
    audit::{Action, chain::SealError},
    base::{
        db::ConnectionPools,
        rate_limit,
        telemetry::{self, LabelValues},
    },
    cluster::{CREDENTIAL_FILES, DRIFT_KINDS, Difference, TOKEN_OUTCOMES},
    gateway, model_services,
    server::TlsFiles,
    tenant::TenantStatus,
    tenant_controller, workspace,
};

/// The values of labels that the modules define.
pub(super) fn label_values() -> LabelValues {
    LabelValues {
        actions: Action::ALL.iter().map(|(action, _)| action.as_str()).collect(),
        action_outcomes: vec!["success", "refused"],
        token_outcomes: TOKEN_OUTCOMES.to_vec(),
        suspension_steps: workspace::REVOCATION_STEPS.to_vec(),
        suspension_causes: workspace::REVOCATION_FAILURE_CAUSES.to_vec(),
        drift_kinds: DRIFT_KINDS.to_vec(),
        drift_differences: Difference::ALL.map(Difference::as_str).to_vec(),
        tenant_transitions: TenantStatus::TRANSITIONS.map(TenantStatus::as_str).to_vec(),
        tenant_outcomes: tenant_controller::RECONCILE_OUTCOMES.to_vec(),
        gateway_limits: gateway::LIMITS.to_vec(),
        gateway_kinds: gateway::request_kinds().to_vec(),
        model_services_calls: model_services::CALLS.to_vec(),
        model_services_outcomes: model_services::CALL_OUTCOMES.to_vec(),
        upstream_causes: gateway::UPSTREAM_ERROR_CAUSES.to_vec(),
        unauthenticated_limits: rate_limit::LIMITS.to_vec(),
        seal_failure_causes: SealError::CAUSES.to_vec(),
        database_pools: ConnectionPools::NAMES.to_vec(),
        expiring_files: std::iter::once(TlsFiles::NAME).chain(CREDENTIAL_FILES).collect(),
    }
}

/// Renders the page `docs/metrics.md`.
pub fn metrics_reference() -> String {
    telemetry::reference(&label_values())
}
