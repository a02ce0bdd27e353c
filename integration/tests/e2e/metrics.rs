//! The metrics of a running broker: those of `docs/metrics.md`, no more and no fewer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::{Method, StatusCode};
use integration::exposition::{DocumentedMetric, Sample, documented_metrics, samples};
use integration::probe::{self, Probe};
use integration::world::World;

use crate::drift::checking_every_second;

/// How long the metrics may take that appear with the first drift.
const DRIFT_TIMEOUT: Duration = Duration::from_mins(1);

/// Does the work without which a metric has no sample: requests of all kinds, a difference that the
/// broker repairs, and one that it reports.
async fn work(world: &World) {
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    let (workspace, _) = api.init("basic").await.unwrap();
    api.credential(workspace.id).await.unwrap();
    let path = "../../clusters/internal-cluster/version";
    let version = api.request(Method::GET, path).unwrap().send().await.unwrap();
    assert_eq!(version.status(), StatusCode::OK);
    version.bytes().await.unwrap();

    let (kubectl, namespace) = (world.admin_kubectl().unwrap(), alice.namespace());
    let label = "pod-security.kubernetes.io/enforce=privileged";
    for args in [
        ["delete", "rolebinding", "rb-tenant-admin", "-n", &namespace],
        ["label", "--overwrite", "namespace", &namespace, label],
    ] {
        kubectl.run(args).await.unwrap().success().unwrap();
    }
}

/// The documented metric of a sample.
fn metric_of<'a>(documented: &'a [DocumentedMetric], sample: &Sample) -> &'a DocumentedMetric {
    documented
        .iter()
        .find(|metric| metric.sample_names().contains(&sample.name))
        .unwrap_or_else(|| panic!("docs/metrics.md lacks {}", sample.name))
}

/// Lines of this kind, `HELP`, `TYPE` or `UNIT`, by the name of the metric family.
fn metadata<'a>(text: &'a str, kind: &str) -> BTreeMap<&'a str, &'a str> {
    let prefix = format!("# {kind} ");
    text.lines().filter_map(|line| line.strip_prefix(&prefix)?.split_once(' ')).collect()
}

#[tokio::test]
async fn the_metrics_of_a_running_broker_are_those_of_the_documentation() {
    let world = checking_every_second().tls().start().await.unwrap();
    work(&world).await;
    let documented = documented_metrics().unwrap();
    let all: BTreeSet<String> =
        documented.iter().flat_map(DocumentedMetric::sample_names).collect();
    let text = probe::until("all documented metrics", DRIFT_TIMEOUT, || async {
        let text = world.broker().metrics().await?;
        let there: BTreeSet<String> = samples(&text)?.into_iter().map(|it| it.name).collect();
        let missing: Vec<_> = all.difference(&there).collect();
        Ok(if missing.is_empty() {
            Probe::Ready(text.clone())
        } else {
            Probe::NotYet(format!("{missing:?} are missing"))
        })
    })
    .await
    .unwrap();

    let [helps, types, units] = ["HELP", "TYPE", "UNIT"].map(|kind| metadata(&text, kind));
    for sample in samples(&text).unwrap() {
        let metric = metric_of(&documented, &sample);
        let labels: BTreeSet<&str> =
            sample.labels.keys().map(String::as_str).filter(|label| *label != "le").collect();
        let expected: BTreeSet<&str> = metric.labels.keys().map(String::as_str).collect();
        assert_eq!(labels, expected, "{sample:?}");
        for (label, value) in &sample.labels {
            if let Some(Some(values)) = metric.labels.get(label) {
                assert!(values.contains(value), "{value} of {label} is not documented: {sample:?}");
            }
        }
        // The name of the family has no suffix of the type.
        let family = match metric.kind.as_str() {
            "counter" => metric.name.strip_suffix("_total").unwrap(),
            "info" => metric.name.strip_suffix("_info").unwrap(),
            _ => metric.name.as_str(),
        };
        assert_eq!(types.get(family), Some(&metric.kind.as_str()), "{family}");
        assert_eq!(units.get(family).copied().unwrap_or_default(), metric.unit, "{family}");
        assert_eq!(helps.get(family).copied(), Some(&*format!("{}.", metric.help)), "{family}");
    }
    for (series, expected) in [
        ("tenant_broker_ready", 1.0..=1.0),
        ("tenant_broker_database_up", 1.0..=1.0),
        ("tenant_broker_token_requests_total{outcome=\"success\"}", 1.0..=9.0),
        ("tenant_broker_workspaces{status=\"provisioned\"}", 1.0..=1.0),
        ("tenant_broker_gateway_transferred_bytes_total{direction=\"down\"}", 10.0..=1e6),
        ("tenant_broker_database_max_connections{share=\"writer\"}", 1.0..=1.0),
        ("tenant_broker_signing_keys", 1.0..=1.0),
        ("tenant_broker_file_current{file=\"tls\"}", 1.0..=1.0),
        ("tenant_broker_credential_expiry_timestamp_seconds{file=\"tls\"}", 1.7e9..=1e11),
        ("process_resident_memory_bytes", 1e6..=1e9),
    ] {
        let value = world.broker().metric(series).await.unwrap();
        assert!(expected.contains(&value), "{series} is {value}\n{text}");
    }
}
