//! The generator of `docs/metrics.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use super::{label_values::LabelValues, metrics::Metrics, registry::Descriptor};

const HEAD: &str = "\
# Metrics of the broker

This page is generated from the code; a test compares the two (`UPDATE_GENERATED=1 cargo test -p \
tenant-broker --test generated` rewrites it). Another test compares it with `/metrics` of a \
running broker.

The broker serves its metrics at the address `operator_listen`, path `/metrics`, in the \
OpenMetrics text format. Each replica counts for itself since its start. `tenant_broker_workspaces`, \
`tenant_broker_workspace_oldest_seconds`, `tenant_broker_tenant_oldest_seconds` and \
`tenant_broker_drift_open` come from the database, so all replicas export the same values; do not \
add them up. A gauge \"at this scrape\" is read when Prometheus asks for it. Counters with known label values start at 0.

A histogram has the samples `_bucket` (label `le`), `_sum` and `_count`. [Dashboard and alerts]\
(operations.md#dashboard-and-alerts) use these metrics. Names and labels are kept as \
[the rules](style.md#names-that-users-rely-on) say.

| metric | type | unit | labels and their values | meaning |
|---|---|---|---|---|
";

/// Values that are not known in advance, or are listed elsewhere: metric, label, description.
const DESCRIBED_VALUES: [(&str, &str, &str); 8] = [
    ("tenant_broker_build_info", "version", "version of the program"),
    ("tenant_broker_requests_total", "status", STATUS),
    ("tenant_broker_actions_total", "action", "[catalogue](audit.md#the-catalogue)"),
    ("tenant_broker_role_rights_beyond_admin", "role", "name of the ClusterRole"),
    ("tenant_broker_file_reloads_total", "file", FILES),
    ("tenant_broker_file_current", "file", FILES),
    ("tenant_broker_file_loaded_timestamp_seconds", "file", FILES),
    ("tenant_broker_file_polled_timestamp_seconds", "file", FILES),
];

/// Values of the label `status` of requests.
const STATUS: &str = "HTTP status, the class of one that IANA has not registered (`2xx`), or 0 if the \
client disconnected before the response";

/// Values of the label `file`: they contain names of connectors and workloads.
const FILES: &str = "[files](operations.md#files-that-are-read-again)";

/// The labels of a metric with their values.
type Labels = BTreeMap<String, BTreeSet<String>>;

/// Renders the page from the registry.
pub fn reference(values: &LabelValues) -> String {
    let metrics = Metrics::default();
    metrics.export_all(values);
    let exposition = metrics.render();
    let mut page = HEAD.to_owned();
    for metric in metrics.0.exposition.descriptors() {
        let name = metric.query_name();
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "| `{name}` | {} | {} | {} | {} |",
            metric.kind.as_str(),
            metric.unit,
            cell(&name, &labels(&exposition, metric)),
            metric.help
        );
    }
    page
}

/// Finds the labels of a metric in the text of `/metrics`.
fn labels(exposition: &str, metric: &Descriptor) -> Labels {
    let sample = metric.sample_name();
    let mut labels = Labels::new();
    let samples = exposition.lines().filter_map(|line| line.strip_prefix(sample.as_str()));
    for pairs in samples.filter_map(|rest| rest.strip_prefix('{')?.split_once("} ")) {
        // No value of a label contains a quote.
        for pair in pairs.0.split_terminator('"').collect::<Vec<_>>().chunks_exact(2) {
            let name = pair[0].trim_start_matches(',').trim_end_matches('=');
            labels.entry(name.to_owned()).or_default().insert(pair[1].to_owned());
        }
    }
    labels
}

fn cell(metric: &str, labels: &Labels) -> String {
    let described = |label: &str| {
        let found = DESCRIBED_VALUES.iter().find(|it| (it.0, it.1) == (metric, label));
        found.map(|(.., text)| (*text).to_owned())
    };
    let cells = labels.iter().map(|(label, values)| {
        let values = described(label).unwrap_or_else(|| {
            values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ")
        });
        format!("`{label}`: {values}")
    });
    cells.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &[&str] = &["one"];

    /// One value of each label.
    fn values() -> LabelValues {
        let one = || ONE.to_vec();
        LabelValues {
            actions: one(),
            action_outcomes: one(),
            token_outcomes: one(),
            suspension_steps: one(),
            suspension_causes: one(),
            drift_kinds: one(),
            drift_differences: one(),
            tenant_transitions: one(),
            tenant_outcomes: one(),
            gateway_limits: one(),
            gateway_kinds: one(),
            model_services_calls: one(),
            model_services_outcomes: one(),
            upstream_causes: one(),
            unauthenticated_limits: one(),
            seal_failure_causes: one(),
            database_pools: one(),
            expiring_files: one(),
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn every_registered_metric_has_a_sample_on_the_page() {
        let metrics = Metrics::default();
        metrics.export_all(&values());
        let text = metrics.render();
        for metric in metrics.0.exposition.descriptors() {
            let sample = metric.sample_name();
            let is_its = |line: &str| {
                line.strip_prefix(&sample).is_some_and(|rest| rest.starts_with(['{', ' ']))
            };
            let is_exported = text.lines().any(is_its) || sample == "process_max_fds";
            assert!(is_exported, "export_all misses {sample}:\n{text}");
        }
    }

    #[test]
    fn each_described_value_is_of_a_label() {
        let page = reference(&values());
        for (metric, label, text) in DESCRIBED_VALUES {
            let row = page.lines().find(|row| row.starts_with(&format!("| `{metric}` |")));
            assert!(row.is_some_and(|row| row.contains(&format!("`{label}`: {text}"))), "{page}");
        }
        assert!(!page.contains("`any`"), "a value that is not known is described: {page}");
    }

    #[test]
    fn labels_are_read_from_all_samples_of_a_metric() {
        let metrics = Metrics::default();
        metrics.request(&http::Method::GET, "/api/v1/me", 200, 0.1);
        metrics.request(&http::Method::GET, "/clusters/c/api", 404, 0.1);
        let text = metrics.render();
        let found = |name: &str| {
            let mut all = metrics.0.exposition.descriptors().iter();
            labels(&text, all.find(|metric| metric.query_name() == name).unwrap())
        };
        let set = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
        assert_eq!(
            found("tenant_broker_requests_total"),
            Labels::from([
                ("area".to_owned(), set(&["api", "gateway"])),
                ("method".to_owned(), set(&["GET"])),
                ("status".to_owned(), set(&["200", "404"])),
            ])
        );
        let areas = Labels::from([("area".to_owned(), set(&["api", "gateway"]))]);
        assert_eq!(found("tenant_broker_request_duration_seconds"), areas);
        assert_eq!(found("tenant_broker_ready"), Labels::new());
    }
}
