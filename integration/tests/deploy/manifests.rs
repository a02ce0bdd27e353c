//! The plain manifests in `deploy/kubernetes`: made from the chart and from `tenant-broker
//! install`, and applied to a real API server.

use std::path::Path;
use std::time::Duration;

use integration::binaries::Binaries;
use integration::process::Program;
use integration::scratch::Scratch;

use super::cluster::Cluster;
use super::{admission, chart, deploy, read};

/// The installation that the manifests are.
const INSTALLATION: &str = "minimal";
/// Its namespace, which `1-namespace.yaml` creates.
const NAMESPACE: &str = "tenant-broker";
const UPDATE: &str = "UPDATE_GENERATED=1 cargo test --workspace --test deploy plain_manifests";

fn compare(file: &str, source: &str, expected: &str) {
    let head = format!("# Generated from {source}.\n# {UPDATE}\n");
    let expected = head + expected;
    let path = deploy("kubernetes").join(file);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let actual = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(actual == expected, "{file} differs from its source; run {UPDATE}");
}

/// Removes empty lines, and Helm's comments about its files.
fn without_helm(rendered: &str) -> String {
    let lines = rendered.lines().map(str::trim_end);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("# Source: "));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Prints what `install` would apply for these settings.
async fn installed(binaries: &Binaries, settings: &Path) -> String {
    let install = Program::new(binaries.tenant_broker()).args(["install", "--config"]);
    let install = install.arg(settings).clear_env().run(Duration::from_secs(30));
    install.await.unwrap().success().unwrap().stdout
}

#[tokio::test]
async fn the_plain_manifests_are_those_of_the_chart_and_of_install() {
    let scratch = Scratch::new("manifests").unwrap();
    let helm = chart::helm(scratch.path()).await.unwrap();
    let binaries = Binaries::shared().await.unwrap();
    let rendered = chart::render(&helm, INSTALLATION, NAMESPACE, &[]).await.unwrap();
    let source = format!("helm/tenant-broker/ci/{INSTALLATION}.yaml");
    compare("3-tenant-broker.yaml", &source, &without_helm(&rendered));

    let settings = scratch.path().join("broker.toml");
    let documents = chart::documents(&rendered).unwrap();
    std::fs::write(&settings, chart::settings(&documents)).unwrap();
    let permissions = installed(&binaries, &settings).await;
    let source = "`tenant-broker install` with the broker.toml of 3-tenant-broker.yaml";
    compare("2-permissions.yaml", source, &permissions);
}

/// In the order of their names, as the documentation says.
#[tokio::test]
async fn the_plain_manifests_can_be_applied_in_order() {
    let cluster = Cluster::shared().await.unwrap();
    let _installation = cluster.exclusive().await;
    for file in ["1-namespace.yaml", "2-permissions.yaml", "3-tenant-broker.yaml"] {
        let path = deploy("kubernetes").join(file);
        // Another test may have installed for its own settings, and may do so after this one: the
        // fields then belong to the same manager.
        let apply = ["apply", "--server-side", "--force-conflicts", "--validate=strict"];
        let apply = cluster.admin.command(apply).arg("--field-manager=tenant-broker-install");
        let applied = apply.arg("-f").arg(&path).run(Duration::from_mins(1)).await.unwrap();
        applied.success().unwrap();
    }
    // The namespace enforces the level `restricted`.
    let namespace = cluster.admin.json(["get", "namespace", NAMESPACE]).await.unwrap();
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
    admission::until_a_pod_exists(&cluster.admin, NAMESPACE).await.unwrap();
    // The documentation takes the settings from there.
    let path = "jsonpath={.data.broker\\.toml}";
    let get = ["get", "configmap", "tenant-broker", "-n", NAMESPACE, "-o", path];
    let settings = cluster.admin.run(get).await.unwrap().success().unwrap().stdout;
    assert_eq!(settings.trim_end(), in_file().trim_end());
}

/// The settings in the committed file.
fn in_file() -> String {
    let text = read(&deploy("kubernetes/3-tenant-broker.yaml"));
    chart::settings(&chart::documents(&text).unwrap()).to_owned()
}
