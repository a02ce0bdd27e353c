//! Prometheus metrics.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tenant_shared::WorkspaceStatus;

use super::{
    counts::{CallLabels, Counts, RoleLabels},
    gateway::KindLabels,
    health::{ConnectionLabels, PoolLabels},
    registry::{CauseLabels, OutcomeLabels},
    requests::{ActionLabels, AreaLabels, LimitLabels, RequestLabels},
    status_label::StatusLabel,
    workspaces::{DriftLabels, StatusLabels, StepLabels, SweepLabels},
};

/// Values of the label `method`: the methods of HTTP that the broker serves, and all others.
pub(super) const METHODS: [&str; 8] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"];
/// Values of the label `area`, and the beginnings of their paths. The first that matches counts.
pub(super) const AREAS: [(&str, &[&str]); 6] = [
    ("gateway", &["/clusters/"]),
    ("models", &["/gen-ai/"]),
    ("api", &["/api/"]),
    ("issuer", &["/oauth2/", "/.well-known/"]),
    ("pages", &["/login"]),
    ("other", &[""]),
];
/// Values of the label `state` of database connections.
const CONNECTION_STATES: [&str; 2] = ["idle", "used"];

/// Outcome of an attempt of the sweep on a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepOutcome {
    /// The workspace reached its target status.
    Done,
    /// A step failed.
    Failed,
    /// The attempt timed out.
    TimedOut,
}

impl SweepOutcome {
    pub(super) const ALL: [Self; 3] = [Self::Done, Self::Failed, Self::TimedOut];

    /// Value of the label `outcome`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
        }
    }
}

/// All metrics. Clones share the counts. These are one allocation, because every request of the
/// gateway has a clone.
#[derive(Clone, Debug)]
pub struct Metrics(pub(super) Arc<Counts>);

impl Default for Metrics {
    fn default() -> Self {
        Self(Arc::new(Counts::new()))
    }
}

impl Metrics {
    /// Counts an answered request with its status, 100 to 999, and its duration.
    pub fn request(&self, method: &http::Method, path: &str, status: u16, seconds: f64) {
        let area = area(path);
        let status = StatusLabel::new(status);
        let labels = RequestLabels { method: method_label(method), area, status };
        self.0.requests.answered.get_or_create(&labels).inc();
        self.0.requests.seconds.get_or_create(&AreaLabels { area }).observe(seconds);
    }

    /// Counts an audited action.
    pub fn action(&self, action: &'static str, outcome: &'static str) {
        self.0.requests.actions.get_or_create(&ActionLabels { action, outcome }).inc();
    }

    /// Records the duration of an answered TokenRequest.
    pub fn token_request(&self, seconds: f64) {
        self.0.requests.token_request_seconds.observe(seconds);
    }

    /// Counts a TokenRequest with its outcome.
    pub fn token_request_ended(&self, outcome: &'static str) {
        self.0.requests.token_requests.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// Sets the number of workspaces in a status, and how long the oldest has been in it.
    pub fn set_workspaces(&self, status: WorkspaceStatus, count: i64, oldest_seconds: i64) {
        let labels = StatusLabels { status: status.as_str() };
        self.0.workspaces.by_status.get_or_create(&labels).set(count);
        self.0.workspaces.oldest_seconds.get_or_create(&labels).set(oldest_seconds);
    }

    /// Counts an attempt of the sweep on a workspace in this status.
    pub fn sweep_attempt(&self, status: WorkspaceStatus, outcome: SweepOutcome) {
        let labels = SweepLabels { status: status.as_str(), outcome: outcome.as_str() };
        self.0.workspaces.sweep_attempts.get_or_create(&labels).inc();
    }

    /// Counts a failed step of a suspension.
    pub fn suspension_step_failed(&self, step: &'static str, cause: &'static str) {
        self.0.workspaces.suspension_failures.get_or_create(&StepLabels { step, cause }).inc();
    }

    /// Counts a new difference.
    pub fn drift_found(&self, kind: &str, what: &str) {
        let labels = DriftLabels { kind: kind.to_owned(), what: what.to_owned() };
        self.0.workspaces.drift.get_or_create(&labels).inc();
    }

    /// Counts a repaired difference.
    pub fn drift_repaired(&self, kind: &str, what: &str) {
        let labels = DriftLabels { kind: kind.to_owned(), what: what.to_owned() };
        self.0.workspaces.drift_repaired.get_or_create(&labels).inc();
    }

    /// Sets the current differences: kind, difference, and number of workspaces.
    pub fn set_open_drift(&self, counts: &[(String, String, i64)]) {
        self.0.workspaces.drift_open.clear();
        for (kind, what, count) in counts {
            let labels = DriftLabels { kind: kind.clone(), what: what.clone() };
            self.0.workspaces.drift_open.get_or_create(&labels).set(*count);
        }
    }

    /// Counts a round over the objects of all workspaces.
    pub fn drift_round(&self, done: bool) {
        let outcome = if done { "done" } else { "failed" };
        self.0.workspaces.drift_rounds.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// Counts a run on a tenant with the time that it took.
    pub fn tenant_reconciled(&self, outcome: &'static str, took: Duration) {
        self.0.tenants.reconciles.get_or_create(&OutcomeLabels { outcome }).inc();
        self.0.tenants.reconcile_seconds.observe(took.as_secs_f64());
    }

    /// Sets how long the oldest tenant of a status has been in it.
    pub fn set_oldest_tenant(&self, status: &'static str, seconds: i64) {
        self.0.tenants.oldest_seconds.get_or_create(&StatusLabels { status }).set(seconds);
    }

    /// Sets the number of tenants that wait for a run or are in it.
    pub fn set_tenant_queue(&self, length: usize) {
        self.0.tenants.queue_length.set(i64::try_from(length).unwrap_or(i64::MAX));
    }

    /// Counts a call of model services to the API server.
    pub fn model_services_call(&self, call: &'static str, outcome: &'static str) {
        self.0.model_services_calls.get_or_create(&CallLabels { call, outcome }).inc();
    }

    /// Counts a Kubernetes token of a caller that the API server refused.
    pub fn model_services_token_refused(&self) {
        self.0.model_services_tokens_refused.inc();
    }

    /// Counts a request that the gateway refused.
    pub fn throttled(&self, limit: &'static str) {
        self.0.requests.throttled.get_or_create(&LimitLabels { limit }).inc();
    }

    /// Counts a request that a limit on unauthenticated requests refused, or a connection that the
    /// limit of its address refused.
    pub fn unauthenticated_refused(&self, limit: &'static str) {
        self.0.requests.unauthenticated_refused.get_or_create(&LimitLabels { limit }).inc();
    }

    /// Sets whether the admission policies were in force at the last check.
    pub fn policies_in_force(&self, in_force: bool) {
        self.0.policies_in_force.set(in_force.into());
    }

    /// Sets how far our clock is ahead of that of the database.
    pub fn clock_offset(&self, milliseconds: i64) {
        self.0.clock_offset_milliseconds.set(milliseconds);
    }

    /// Sets on how many resources a tier's ClusterRole grants more than the built-in `admin`, and
    /// how many of these are known to lead out of the namespace.
    pub fn role_beyond_admin(&self, role: &str, all: usize, leading_out: usize) {
        let inside = all.saturating_sub(leading_out);
        for (leads_out, count) in [("yes", leading_out), ("unknown", inside)] {
            let labels = RoleLabels { role: role.to_owned(), leads_out };
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.0.role_beyond_admin.get_or_create(&labels).set(count);
        }
    }

    /// Sets the number of public keys that the issuer publishes.
    pub fn signing_keys(&self, count: usize) {
        self.0.signing_keys.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Records that a round of the sweep was completed.
    pub fn sweep_completed(&self, at: Timestamp) {
        self.0.health.sweep_timestamp.set(at.as_second());
    }

    /// Records that all audit rows were found sealed.
    pub fn audit_sealed(&self, at: Timestamp) {
        self.0.health.audit_seal_timestamp.set(at.as_second());
    }

    /// Counts a failed attempt to seal audit rows.
    pub fn audit_seal_failed(&self, cause: &'static str) {
        self.0.health.audit_seal_failures.get_or_create(&CauseLabels { cause }).inc();
    }

    /// Counts bytes that the gateway got from a client.
    pub fn gateway_bytes_up(&self, bytes: u64) {
        self.0.gateway.bytes_up.inc_by(bytes);
    }

    /// Counts bytes that the gateway got from the API server.
    pub fn gateway_bytes_down(&self, bytes: u64) {
        self.0.gateway.bytes_down.inc_by(bytes);
    }

    /// Counts a request of the gateway that the API server did not answer, or not completely.
    pub fn gateway_upstream_error(&self, cause: &'static str) {
        self.0.gateway.upstream_errors.get_or_create(&CauseLabels { cause }).inc();
    }

    /// Sets the number of requests and streams of this kind in flight.
    pub fn set_gateway_in_flight(&self, kind: &'static str, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.0.gateway.in_flight.get_or_create(&KindLabels { kind }).set(count);
    }

    /// Sets whether the broker is ready.
    pub fn set_ready(&self, ready: bool) {
        self.0.health.ready.set(ready.into());
    }

    /// Sets whether the database answered, and after how many seconds.
    pub fn set_database_ping(&self, answered: bool, seconds: f64) {
        self.0.health.database_up.set(answered.into());
        self.0.health.database_ping_seconds.set(seconds);
    }

    /// Sets the idle and used connections of a database pool, and their limit.
    pub fn set_database_connections(&self, share: &'static str, counts: [u32; 2], limit: u32) {
        let health = &self.0.health;
        for (state, count) in CONNECTION_STATES.into_iter().zip(counts) {
            let labels = ConnectionLabels { share, state };
            health.database_connections.get_or_create(&labels).set(count.into());
        }
        health.database_max_connections.get_or_create(&PoolLabels { share }).set(limit.into());
    }

    /// Counts an attempt to use changed files, which have the name of their setting.
    pub fn file_reload(&self, file: &str, is_used: bool) {
        self.0.files.reload(file, is_used);
    }

    /// Records when the contents of these files came into use. With the first contents the counters
    /// start at 0.
    pub fn file_loaded(&self, file: &str, at: Timestamp) {
        self.0.files.loaded(file, at);
    }

    /// Records when a poll of these files ended.
    pub fn file_polled(&self, file: &str, at: Timestamp) {
        self.0.files.polled(file, at);
    }

    /// Sets the end of the certificate or token of these files; `None` if they have no end.
    pub fn credential_expiry(&self, file: &str, at: Option<Timestamp>) {
        self.0.files.expiry(file, at);
    }

    /// Renders all metrics in the `OpenMetrics` text format.
    pub fn render(&self) -> String {
        self.0.exposition.render()
    }
}

/// Maps a method to a label value; clients can invent other methods.
fn method_label(method: &http::Method) -> &'static str {
    METHODS.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}

/// Maps a path to the part of the service that serves it.
fn area(path: &str) -> &'static str {
    AREAS
        .into_iter()
        .find(|(_, prefixes)| prefixes.iter().any(|prefix| path.starts_with(prefix)))
        .map_or("other", |(area, _)| area)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn clients_cannot_invent_label_values() {
        let invented = Method::from_bytes(b"BREW").unwrap();
        assert_eq!(method_label(&invented), "other");
        assert_eq!(method_label(&Method::OPTIONS), "OPTIONS");
        for (path, expected) in [
            ("/clusters/a/api", "gateway"),
            ("/api/v1/me", "api"),
            ("/.well-known/jwks.json", "issuer"),
            ("/oauth2/token", "issuer"),
            ("/login/device", "pages"),
            ("/apis", "other"),
            ("", "other"),
        ] {
            assert_eq!(area(path), expected, "{path}");
        }
    }
}
