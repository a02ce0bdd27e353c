//! Telemetry: logs and Prometheus metrics.
//!
//! Log levels: `error` needs an operator; `warn` may need one; `info` is one line per request and
//! per change of state; `debug` and `trace` add the messages of libraries. No level may contain a
//! token, a password or a session secret.

use std::{str::FromStr, sync::Arc};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Metric, Registry, Unit},
};
use tenant_shared::WorkspaceStatus;
use tracing_subscriber::{EnvFilter, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::base::buffered_log_writer::BufferedLogWriter;

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("text or json".to_owned()),
        }
    }
}

/// Parses a log filter such as `info` or `tenant_broker=debug,kube=warn`.
///
/// # Errors
/// The text is not a filter.
pub fn log_filter(text: &str) -> Result<EnvFilter, String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    // A single word that is not a level would be taken as the name of a module, and silence
    // everything.
    let single_word = !text.contains(['=', ',', '[']);
    if single_word && !LEVELS.contains(&text.to_lowercase().as_str()) {
        return Err(format!("one of {}, or a filter", LEVELS.join(", ")));
    }
    EnvFilter::try_new(text).map_err(|error| error.to_string())
}

/// Starts logging to stderr, once per process.
pub fn start_logging(filter: EnvFilter, format: LogFormat) {
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(BufferedLogWriter);
    // A second call (in tests) finds logging already started, which is fine.
    let _ = match format {
        LogFormat::Text => registry.with(layer.with_ansi(false)).try_init(),
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init(),
    };
}

/// Labels of a request; the values of each are a closed set.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    area: &'static str,
    status: u16,
}

/// Labels of an audited action.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ActionLabels {
    action: &'static str,
    outcome: &'static str,
}

/// Labels of a workspace's status.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StatusLabels {
    status: &'static str,
}

/// Labels of an attempt of the sweep.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SweepLabels {
    status: &'static str,
    outcome: &'static str,
}

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

/// Labels of a difference (drift) in the cluster.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DriftLabels {
    kind: String,
    what: String,
}

/// Labels of a failed step of a suspension.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StepLabels {
    step: &'static str,
    cause: &'static str,
}

/// Labels of an outcome.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// Labels of a rate limit.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LimitLabels {
    limit: &'static str,
}

/// Labels of the permissions of a tier's ClusterRole.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RoleLabels {
    role: String,
    leads_out: &'static str,
}

/// All metrics. Clones share the counts.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Counts>);

/// One allocation, because every request of the gateway has a clone.
#[derive(Debug)]
struct Counts {
    requests: Family<RequestLabels, Counter>,
    request_seconds: Histogram,
    actions: Family<ActionLabels, Counter>,
    token_request_seconds: Histogram,
    workspaces: Family<StatusLabels, Gauge>,
    oldest_seconds: Family<StatusLabels, Gauge>,
    sweep_attempts: Family<SweepLabels, Counter>,
    suspension_failures: Family<StepLabels, Counter>,
    drift: Family<DriftLabels, Counter>,
    drift_repaired: Family<DriftLabels, Counter>,
    drift_open: Family<DriftLabels, Gauge>,
    drift_rounds: Family<OutcomeLabels, Counter>,
    policies_in_force: Gauge,
    clock_offset_milliseconds: Gauge,
    role_beyond_admin: Family<RoleLabels, Gauge>,
    throttled: Family<LimitLabels, Counter>,
    unauthenticated_refused: Family<LimitLabels, Counter>,
    registry: Registry,
}

/// Registers a new metric with this name, without the prefix, and this help text.
fn register<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("tenant_broker");
        let request_seconds = Histogram::new(exponential_buckets(0.000_5, 2.0, 16));
        let token_request_seconds = Histogram::new(exponential_buckets(0.000_5, 2.0, 14));
        let oldest_seconds = Family::<StatusLabels, Gauge>::default();
        let unauthenticated_refused = register(
            &mut registry,
            "unauthenticated_refused",
            "Unauthenticated requests that were refused before the database",
        );
        let throttled = register(
            &mut registry,
            "gateway_throttled",
            "Requests that the gateway refused because a tenant exceeded a limit",
        );
        let requests = register(&mut registry, "requests", "Answered requests");
        registry.register_with_unit(
            "request_duration",
            "Time from request to response",
            Unit::Seconds,
            request_seconds.clone(),
        );
        let actions = register(&mut registry, "actions", "Audited actions by outcome");
        registry.register_with_unit(
            "token_request_duration",
            "Time of a TokenRequest at the Kubernetes API",
            Unit::Seconds,
            token_request_seconds.clone(),
        );
        let workspaces = register(&mut registry, "workspaces", "Workspaces by status");
        registry.register_with_unit(
            "workspace_oldest",
            "Time that the oldest workspace of a status has been in it",
            Unit::Seconds,
            oldest_seconds.clone(),
        );
        let sweep_attempts = register(
            &mut registry,
            "sweep_attempts",
            "Attempts of the sweep to finish a workspace in a transitional status",
        );
        let suspension_failures = register(
            &mut registry,
            "suspension_step_failures",
            "Failed attempts of a step of a suspension",
        );
        let drift = register(&mut registry, "drift", "Differences found in the cluster");
        let drift_repaired =
            register(&mut registry, "drift_repaired", "Differences that the broker repaired");
        let drift_open =
            register(&mut registry, "drift_open", "Current differences that need an administrator");
        let drift_rounds = register(
            &mut registry,
            "drift_rounds",
            "Rounds of this broker over the objects of all workspaces",
        );
        let policies_in_force = register(
            &mut registry,
            "policies_in_force",
            "1 if the cluster has the admission policies of tenant-broker install, else 0",
        );
        let clock_offset_milliseconds = register(
            &mut registry,
            "clock_offset_milliseconds",
            "How far this broker's clock was ahead of PostgreSQL's when it started",
        );
        let role_beyond_admin = register(
            &mut registry,
            "role_rights_beyond_admin",
            "Resources on which a tier's ClusterRole grants more than the built-in admin",
        );
        Self(Arc::new(Counts {
            requests,
            request_seconds,
            actions,
            token_request_seconds,
            workspaces,
            oldest_seconds,
            sweep_attempts,
            suspension_failures,
            drift,
            drift_repaired,
            drift_open,
            drift_rounds,
            policies_in_force,
            clock_offset_milliseconds,
            role_beyond_admin,
            throttled,
            unauthenticated_refused,
            registry,
        }))
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
