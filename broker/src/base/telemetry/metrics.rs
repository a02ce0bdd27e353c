//! Prometheus metrics.

use std::sync::Arc;

use prometheus_client::encoding::text::encode;
use tenant_shared::WorkspaceStatus;

use super::counts::{
    ActionLabels, Counts, DriftLabels, LimitLabels, OutcomeLabels, RequestLabels, RoleLabels,
    StatusLabels, StepLabels, SweepLabels,
};

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

/// All metrics. Clones share the counts. These are one allocation, because every request of the
/// gateway has a clone.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Counts>);

impl Default for Metrics {
    fn default() -> Self {
        Self(Arc::new(Counts::new()))
    }
}

impl Metrics {
    /// Counts an answered request and its duration.
    pub fn request(&self, method: &http::Method, path: &str, status: u16, seconds: f64) {
        let labels = RequestLabels { method: method_label(method), area: area(path), status };
        self.0.requests.get_or_create(&labels).inc();
        self.0.request_seconds.observe(seconds);
    }

    /// Counts an audited action.
    pub fn action(&self, action: &'static str, outcome: &'static str) {
        self.0.actions.get_or_create(&ActionLabels { action, outcome }).inc();
    }

    /// Records the duration of a TokenRequest.
    pub fn token_request(&self, seconds: f64) {
        self.0.token_request_seconds.observe(seconds);
    }

    /// Sets the number of workspaces in a status, and how long the oldest has been in it.
    pub fn set_workspaces(&self, status: WorkspaceStatus, count: i64, oldest_seconds: i64) {
        let labels = StatusLabels { status: status.as_str() };
        self.0.workspaces.get_or_create(&labels).set(count);
        self.0.oldest_seconds.get_or_create(&labels).set(oldest_seconds);
    }

    /// Counts an attempt of the sweep on a workspace in this status.
    pub fn sweep_attempt(&self, status: WorkspaceStatus, outcome: SweepOutcome) {
        let outcome = match outcome {
            SweepOutcome::Done => "done",
            SweepOutcome::Failed => "failed",
            SweepOutcome::TimedOut => "timed_out",
        };
        let labels = SweepLabels { status: status.as_str(), outcome };
        self.0.sweep_attempts.get_or_create(&labels).inc();
    }

    /// Counts a failed step of a suspension.
    pub fn suspension_step_failed(&self, step: &'static str, cause: &'static str) {
        self.0.suspension_failures.get_or_create(&StepLabels { step, cause }).inc();
    }

    /// Counts a new difference.
    pub fn drift_found(&self, kind: &str, what: &str) {
        let labels = DriftLabels { kind: kind.to_owned(), what: what.to_owned() };
        self.0.drift.get_or_create(&labels).inc();
    }

    /// Counts a repaired difference.
    pub fn drift_repaired(&self, kind: &str, what: &str) {
        let labels = DriftLabels { kind: kind.to_owned(), what: what.to_owned() };
        self.0.drift_repaired.get_or_create(&labels).inc();
    }

    /// Sets the current differences: kind, difference, and number of workspaces.
    pub fn set_open_drift(&self, counts: &[(String, String, i64)]) {
        self.0.drift_open.clear();
        for (kind, what, count) in counts {
            let labels = DriftLabels { kind: kind.clone(), what: what.clone() };
            self.0.drift_open.get_or_create(&labels).set(*count);
        }
    }

    /// Counts a round over the objects of all workspaces.
    pub fn drift_round(&self, done: bool) {
        let outcome = if done { "done" } else { "failed" };
        self.0.drift_rounds.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// Counts a request that the gateway refused.
    pub fn throttled(&self, limit: &'static str) {
        self.0.throttled.get_or_create(&LimitLabels { limit }).inc();
    }

    /// Counts a request that a limit on unauthenticated requests refused.
    pub fn unauthenticated_refused(&self, limit: &'static str) {
        self.0.unauthenticated_refused.get_or_create(&LimitLabels { limit }).inc();
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

    /// Renders all metrics in the `OpenMetrics` text format.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.0.registry);
        text
    }
}

/// Maps a method to a label value; clients can invent other methods.
fn method_label(method: &http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

/// Maps a path to the part of the service that serves it.
fn area(path: &str) -> &'static str {
    [
        ("/clusters/", "gateway"),
        ("/api/", "api"),
        ("/oauth2/", "issuer"),
        ("/.well-known/", "issuer"),
        ("/login", "pages"),
    ]
    .into_iter()
    .find(|(prefix, _)| path.starts_with(prefix))
    .map_or("other", |(_, area)| area)
}
