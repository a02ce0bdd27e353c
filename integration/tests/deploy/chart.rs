//! The Helm chart: its renderings for the value files in `ci/`, each of which is a whole
//! installation.

use std::path::Path;

use anyhow::{Context as _, Result};
use integration::helm::Helm;
use integration::kubectl::Kubectl;
use integration::process::Finished;
use integration::scratch::Scratch;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{VERSION, deploy, read};

/// The kinds that each installation has in addition to those that all have.
const INSTALLATIONS: [(&str, &[&str]); 10] = [
    ("autoscaling", &["HorizontalPodAutoscaler", "PodDisruptionBudget"]),
    ("cert-manager", &["Certificate", "PodDisruptionBudget"]),
    ("gateway-api", &["HTTPRoute", "PodDisruptionBudget"]),
    ("ingress", &["Ingress", "PodDisruptionBudget"]),
    ("minimal", &["PodDisruptionBudget"]),
    ("monitoring", &["PodDisruptionBudget", "ServiceMonitor"]),
    ("network-policy", &["PodDisruptionBudget"]),
    ("other-cluster", &["PodDisruptionBudget", "ServiceAccount"]),
    ("postgres-ha", &["PodDisruptionBudget"]),
    ("sqlite", &["PersistentVolumeClaim"]),
];
const EVERYWHERE: [&str; 5] = ["ConfigMap", "Deployment", "NetworkPolicy", "Service", "Service"];

/// The names of the installations.
pub(crate) fn installations() -> impl Iterator<Item = &'static str> {
    INSTALLATIONS.into_iter().map(|(name, _)| name)
}

/// Returns the path of a value file.
pub(crate) fn value_file(installation: &str) -> String {
    deploy(&format!("helm/tenant-broker/ci/{installation}.yaml")).display().to_string()
}

fn chart() -> String {
    deploy("helm/tenant-broker").display().to_string()
}

/// Returns Helm without a cluster; its home is the folder.
pub(crate) async fn helm(home: &Path) -> Result<Helm> {
    Helm::for_kubectl(&Kubectl::new(home, &home.join("kubeconfig"), None)?).await
}

/// Runs `helm COMMAND tenant-broker CHART` for an installation.
pub(crate) async fn run(
    helm: &Helm,
    command: &str,
    installation: &str,
    more: &[&str],
) -> Result<Finished> {
    let (chart, values) = (chart(), value_file(installation));
    let args = [command, "tenant-broker", chart.as_str(), "--values", &values];
    helm.run(args.iter().chain(more)).await
}

/// Renders an installation for a namespace.
pub(crate) async fn render(
    helm: &Helm,
    installation: &str,
    namespace: &str,
    more: &[&str],
) -> Result<String> {
    let more: Vec<&str> = ["--namespace", namespace].iter().chain(more).copied().collect();
    Ok(run(helm, "template", installation, &more).await?.success()?.stdout)
}

/// Parses the documents of a YAML text, without empty ones.
pub(crate) fn documents(yaml: &str) -> Result<Vec<Value>> {
    let mut documents = Vec::new();
    for document in serde_norway::Deserializer::from_str(yaml) {
        let document = Value::deserialize(document).context("read a manifest")?;
        if !document.is_null() {
            documents.push(document);
        }
    }
    Ok(documents)
}

/// Returns the one object of a kind.
pub(crate) fn only<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    let found: Vec<&Value> = documents.iter().filter(|one| one["kind"] == kind).collect();
    let &[object] = found.as_slice() else { panic!("{} objects of the kind {kind}", found.len()) };
    object
}

/// Returns the settings in the ConfigMap.
pub(crate) fn settings(documents: &[Value]) -> &str {
    only(documents, "ConfigMap")["data"]["broker.toml"].as_str().unwrap()
}

async fn with_values(values: &Value) -> Result<String> {
    let scratch = Scratch::new("chart")?;
    let file = scratch.path().join("values.yaml");
    std::fs::write(&file, values.to_string())?;
    let (helm, file) = (helm(scratch.path()).await?, file.display().to_string());
    render(&helm, "minimal", "brokers", &["--values", &file]).await
}

#[tokio::test]
async fn every_value_file_passes_lint_and_gives_its_objects() {
    let scratch = Scratch::new("chart").unwrap();
    let helm = helm(scratch.path()).await.unwrap();
    let folder = deploy("helm/tenant-broker/ci");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let known: Vec<String> = installations().map(|name| format!("{name}.yaml")).collect();
    assert_eq!(files, known);
    for (name, kinds) in INSTALLATIONS {
        let (chart, values) = (chart(), value_file(name));
        let lint = ["lint", "--strict", chart.as_str(), "--values", &values];
        helm.run(lint).await.unwrap().success().unwrap();
        let documents = documents(&render(&helm, name, "brokers", &[]).await.unwrap()).unwrap();
        let mut rendered: Vec<&str> =
            documents.iter().map(|one| one["kind"].as_str().unwrap()).collect();
        rendered.sort_unstable();
        let mut expected: Vec<&str> = EVERYWHERE.iter().chain(kinds).copied().collect();
        expected.sort_unstable();
        assert_eq!(rendered, expected, "{name}");
        for object in &documents {
            assert_eq!(object["metadata"]["namespace"], "brokers", "{name}: {object}");
        }
    }
}

/// The API server checks what Pod Security covers; this is the rest.
#[tokio::test]
async fn every_pod_is_read_only_has_probes_and_enough_time_to_drain() {
    let scratch = Scratch::new("chart").unwrap();
    let helm = helm(scratch.path()).await.unwrap();
    for name in installations() {
        let documents = documents(&render(&helm, name, "brokers", &[]).await.unwrap()).unwrap();
        let deployment = only(&documents, "Deployment");
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["enableServiceLinks"], false, "{name}");
        assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
        let user = &pod["securityContext"];
        for key in ["runAsUser", "runAsGroup", "fsGroup"] {
            assert_eq!(user[key], super::place::USER.uid, "{name}: {key}");
        }
        let container = &pod["containers"][0];
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true, "{name}");
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert_eq!(container[probe]["httpGet"]["port"], "operator", "{name}: {probe}");
        }
        let settings: toml::Table = settings(&documents).parse().unwrap();
        let drain = settings["drain_seconds"].as_integer().unwrap();
        let sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_i64().unwrap();
        let grace = pod["terminationGracePeriodSeconds"].as_i64().unwrap();
        assert!(grace > drain + sleep, "{name}: {grace} > {drain} + {sleep}");
        // Without a preStop action the broker would close its listener while proxies still send.
        assert!(sleep > 0, "{name}");
        let one_at_a_time = deployment["spec"]["strategy"]["type"] == "Recreate";
        assert_eq!(one_at_a_time, name == "sqlite", "{name}");
    }
}

#[tokio::test]
async fn charts_and_images_have_the_version_of_the_programs() {
    let chart: Value =
        serde_norway::from_str(&read(&deploy("helm/tenant-broker/Chart.yaml"))).unwrap();
    assert_eq!((&chart["version"], &chart["appVersion"]), (&json!(VERSION), &json!(VERSION)));
    let scratch = Scratch::new("chart").unwrap();
    let helm = helm(scratch.path()).await.unwrap();
    let rendered = render(&helm, "minimal", "brokers", &[]).await.unwrap();
    let documents = documents(&rendered).unwrap();
    let image =
        &only(&documents, "Deployment")["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, &format!("registry.example.com/kubectl-tenant/tenant-broker:{VERSION}"));
}

#[tokio::test]
async fn new_settings_start_new_pods() {
    let checksum = |rendered: String| {
        let documents = documents(&rendered).unwrap();
        let template = &only(&documents, "Deployment")["spec"]["template"];
        template["metadata"]["annotations"]["checksum/config"].as_str().unwrap().to_owned()
    };
    let before = checksum(with_values(&json!({})).await.unwrap());
    let same = checksum(with_values(&json!({"replicas": 3})).await.unwrap());
    let level = json!({"settings": {"log": {"level": "debug"}}});
    let after = checksum(with_values(&level).await.unwrap());
    assert_eq!(before, same);
    assert_ne!(before, after);
}

#[tokio::test]
async fn settings_are_the_same_in_toml_as_in_the_values() {
    let odd = "\"quotes\" and \\ and\nlines, <b>&amp;</b>, ünï\u{2028}code, '''";
    let values = json!({"settings": {
        "cluster": {"server": null, "name": odd},
        "tiers": {"a": {"quota": {"count/jobs.batch": 2_592_000, "x.y": "1"}}, "odd \" name": {}},
        "frontends": {"origins": [odd, "https://app.example.com"]},
        "flag": false,
        "large": 1_000_000_000_000_i64,
    }});
    let documents = documents(&with_values(&values).await.unwrap()).unwrap();
    let table: toml::Table = settings(&documents).parse().unwrap();
    let table = serde_json::to_value(table).unwrap();
    assert_eq!(table["cluster"]["name"], odd);
    assert_eq!(table["cluster"].get("server"), None);
    assert_eq!(table["tiers"], values["settings"]["tiers"]);
    assert_eq!(table["frontends"], values["settings"]["frontends"]);
    assert_eq!((&table["flag"], &table["large"]), (&json!(false), &json!(1_000_000_000_000_i64)));
    // The chart's own settings and those of the other value file are still there.
    assert_eq!(table["public_url"], "https://tenants.example.com");
    assert_eq!(table["cluster"]["identity"], "system:serviceaccount:brokers:tenant-broker");
}

#[tokio::test]
async fn the_notes_name_the_next_steps() {
    let scratch = Scratch::new("chart").unwrap();
    let helm = helm(scratch.path()).await.unwrap();
    let notes = async |installation: &str| {
        let dry = ["--namespace", "brokers", "--dry-run=client"];
        let installed = run(&helm, "install", installation, &dry).await.unwrap();
        let text = installed.success().unwrap().stdout;
        text.split_once("NOTES:").unwrap().1.to_owned()
    };
    let minimal = notes("minimal").await;
    for step in [
        "kubectl -n brokers get configmap tenant-broker -o jsonpath='{.data.broker\\.toml}'",
        "tenant-broker install --config broker.toml --apply\n",
        "/usr/bin/tenant-broker user create --email you@example.com --admin --password-stdin",
        "kubectl tenant login --broker https://tenants.example.com\n",
    ] {
        assert!(minimal.contains(step), "{step} is not in: {minimal}");
    }
    let hints = ["a proxy before", "settings.trusted_proxies", "settings.cluster.server"];
    for (installation, expected) in [
        ("minimal", [false, false, false]),
        ("ingress", [true, false, false]),
        ("gateway-api", [true, false, true]),
        ("other-cluster", [false, false, false]),
    ] {
        let notes = notes(installation).await;
        assert_eq!(hints.map(|hint| notes.contains(hint)), expected, "{installation}: {notes}");
    }
}
