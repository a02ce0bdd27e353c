//! Logs and metrics.
//!
//! What a log level may say: `error` needs an operator; `warn` may; `info` is one line a request
//! and one for each change of state; `debug` and `trace` add what libraries say. No level may carry
//! a token, a password or a session secret.

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

use crate::log_lines::LogLines;

/// How a log line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
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

/// A filter such as `info` or `tenant_broker=debug,kube=warn`.
///
/// # Errors
/// Text that is no filter.
pub fn log_filter(text: &str) -> Result<EnvFilter, String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    // A lone word that is no level would be taken as the name of a module, and all be silent.
    let lone = !text.contains(['=', ',', '[']);
    if lone && !LEVELS.contains(&text.to_lowercase().as_str()) {
        return Err(format!("one of {}, or a filter", LEVELS.join(", ")));
    }
    EnvFilter::try_new(text).map_err(|error| error.to_string())
}

/// Starts logging to stderr, once per process.
pub fn start_logging(filter: EnvFilter, format: LogFormat) {
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(LogLines);
    // A second call (tests) finds logging started already, which is as good.
    let _ = match format {
        LogFormat::Text => registry.with(layer.with_ansi(false)).try_init(),
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init(),
    };
}

/// Labels of a request; every value is from a closed set.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    area: &'static str,
    status: u16,
}

/// Labels of an outcome.
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

/// Labels of a try of the sweep.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SweepLabels {
    status: &'static str,
    outcome: &'static str,
}

/// How the sweep's work on a workspace ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepOutcome {
    /// It is finished.
    Done,
    /// A step failed.
    Failed,
    /// It took too long.
    TimedOut,
}

/// Labels of a difference in the cluster.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DriftLabels {
    kind: String,
    what: String,
}

/// Labels of a step of a suspension that could not be done.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StepLabels {
    step: &'static str,
    cause: &'static str,
}

/// Labels of how something ended.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// Labels of a limit.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LimitLabels {
    limit: &'static str,
}

/// Labels of rights of a tier's ClusterRole.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RoleLabels {
    role: String,
    leads_out: &'static str,
}

/// Everything that is counted. Clones share the counts.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Counts>);

/// One allocation, for every request of the gateway has a clone.
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

/// A new metric of this name, without its prefix, and with this help text.
fn registered<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
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
        let unauthenticated_refused = registered(
            &mut registry,
            "unauthenticated_refused",
            "Unauthenticated requests that were refused before the database",
        );
        let throttled = registered(
            &mut registry,
            "gateway_throttled",
            "Requests that the gateway refused because a tenant sent too many",
        );
        let requests = registered(&mut registry, "requests", "Requests answered");
        registry.register_with_unit(
            "request_duration",
            "Time from request to answer",
            Unit::Seconds,
            request_seconds.clone(),
        );
        let actions = registered(&mut registry, "actions", "Audited actions by outcome");
        registry.register_with_unit(
            "token_request_duration",
            "Time of a TokenRequest at the Kubernetes API",
            Unit::Seconds,
            token_request_seconds.clone(),
        );
        let workspaces = registered(&mut registry, "workspaces", "Workspaces by status");
        registry.register_with_unit(
            "workspace_oldest",
            "How long the workspace that is in a status longest has been in it",
            Unit::Seconds,
            oldest_seconds.clone(),
        );
        let sweep_attempts = registered(
            &mut registry,
            "sweep_attempts",
            "Tries of the sweep to finish a half-done workspace",
        );
        let suspension_failures = registered(
            &mut registry,
            "suspension_step_failures",
            "Tries of a step of a suspension that left it open",
        );
        let drift = registered(&mut registry, "drift", "Differences found in the cluster");
        let drift_repaired =
            registered(&mut registry, "drift_repaired", "Differences that the broker set right");
        let drift_open = registered(
            &mut registry,
            "drift_open",
            "Differences that are there now and need an administrator",
        );
        let drift_rounds = registered(
            &mut registry,
            "drift_rounds",
            "Rounds of this broker over the objects of all workspaces",
        );
        let policies_in_force = registered(
            &mut registry,
            "policies_in_force",
            "1 if the cluster has the admission policies of tenant-broker install, else 0",
        );
        let clock_offset_milliseconds = registered(
            &mut registry,
            "clock_offset_milliseconds",
            "How far this broker's clock was ahead of PostgreSQL's when it started",
        );
        let role_beyond_admin = registered(
            &mut registry,
            "role_rights_beyond_admin",
            "Resources on which a tier's ClusterRole gives more than the built-in admin",
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
    /// A request was answered.
    pub fn request(&self, method: &poem::http::Method, path: &str, status: u16, seconds: f64) {
        let labels = RequestLabels { method: method_label(method), area: area(path), status };
        self.0.requests.get_or_create(&labels).inc();
        self.0.request_seconds.observe(seconds);
    }

    /// An audited action ended.
    pub fn action(&self, action: crate::audit::Action, outcome: &'static str) {
        self.0.actions.get_or_create(&ActionLabels { action: action.as_str(), outcome }).inc();
    }

    /// A TokenRequest was answered.
    pub fn token_request(&self, seconds: f64) {
        self.0.token_request_seconds.observe(seconds);
    }

    /// So many workspaces have a status, the first of them for so many seconds.
    pub fn workspaces(&self, status: WorkspaceStatus, count: i64, oldest_seconds: i64) {
        let labels = StatusLabels { status: status.as_str() };
        self.0.workspaces.get_or_create(&labels).set(count);
        self.0.oldest_seconds.get_or_create(&labels).set(oldest_seconds);
    }

    /// The sweep worked on a workspace in this status.
    pub fn swept(&self, status: WorkspaceStatus, outcome: SweepOutcome) {
        let outcome = match outcome {
            SweepOutcome::Done => "done",
            SweepOutcome::Failed => "failed",
            SweepOutcome::TimedOut => "timed_out",
        };
        let labels = SweepLabels { status: status.as_str(), outcome };
        self.0.sweep_attempts.get_or_create(&labels).inc();
    }

    /// A step of a suspension is open for this cause.
    pub fn suspension_step_failed(&self, step: &'static str, cause: &'static str) {
        self.0.suspension_failures.get_or_create(&StepLabels { step, cause }).inc();
    }

    /// A difference was found that was not known.
    pub fn drift_found(&self, kind: &str, what: &str) {
        let labels = DriftLabels { kind: kind.to_owned(), what: what.to_owned() };
        self.0.drift.get_or_create(&labels).inc();
    }

    /// A difference was set right.
    pub fn drift_repaired(&self, kind: &str, what: &str) {
        let labels = DriftLabels { kind: kind.to_owned(), what: what.to_owned() };
        self.0.drift_repaired.get_or_create(&labels).inc();
    }

    /// What differs now: kind, what, and in how many workspaces.
    pub fn open_drift(&self, counts: &[(String, String, i64)]) {
        self.0.drift_open.clear();
        for (kind, what, count) in counts {
            let labels = DriftLabels { kind: kind.clone(), what: what.clone() };
            self.0.drift_open.get_or_create(&labels).set(*count);
        }
    }

    /// A round over all objects ended.
    pub fn drift_round(&self, done: bool) {
        let outcome = if done { "done" } else { "failed" };
        self.0.drift_rounds.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// The gateway refused a request.
    pub fn throttled(&self, limit: &'static str) {
        self.0.throttled.get_or_create(&LimitLabels { limit }).inc();
    }

    /// A limit on unauthenticated requests refused one.
    pub fn unauthenticated_refused(&self, limit: &'static str) {
        self.0.unauthenticated_refused.get_or_create(&LimitLabels { limit }).inc();
    }

    /// Whether the admission policies were as they have to be when they were last looked at.
    pub fn policies_in_force(&self, they_are: bool) {
        self.0.policies_in_force.set(they_are.into());
    }

    /// How far our clock is ahead of the database's.
    pub fn clock_offset(&self, milliseconds: i64) {
        self.0.clock_offset_milliseconds.set(milliseconds);
    }

    /// On how many resources a tier's ClusterRole gives more than the built-in admin, and how many of
    /// these are known to lead out of the namespace.
    pub fn role_beyond_admin(&self, role: &str, all: usize, leading_out: usize) {
        let inside = all.saturating_sub(leading_out);
        for (leads_out, count) in [("yes", leading_out), ("unknown", inside)] {
            let labels = RoleLabels { role: role.to_owned(), leads_out };
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.0.role_beyond_admin.get_or_create(&labels).set(count);
        }
    }

    /// All of it in the `OpenMetrics` text format.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.0.registry);
        text
    }
}

/// Methods that a label may hold; a stranger can invent others.
fn method_label(method: &poem::http::Method) -> &'static str {
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

/// The part of the service that a path belongs to.
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
