//! Helm through the gateway: the whole life of a tenant's release.

use std::path::{Path, PathBuf};

use integration::helm::Helm;
use integration::world::World;
use serde_json::Value;

use super::through_the_gateway;

const OBJECTS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}"}
data: {text: {{ .Values.text | quote }}, by: {{ .Release.Service }}}
---
apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}"}
spec:
  selector: {app: "{{ .Release.Name }}"}
  ports: [{port: 80}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}"}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: "{{ .Release.Name }}"}}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}"}}
    spec: {containers: [{name: main, image: "registry.example/shop:1"}]}
"#;

/// Writes a small chart and returns its path.
pub(crate) fn chart(folder: &Path) -> PathBuf {
    let chart = folder.join("shop");
    std::fs::create_dir_all(chart.join("templates")).unwrap();
    for (file, text) in [
        ("Chart.yaml", "apiVersion: v2\nname: shop\nversion: 1.0.0\n"),
        ("values.yaml", "text: first\nreplicas: 1\n"),
        ("templates/objects.yaml", OBJECTS),
    ] {
        std::fs::write(chart.join(file), text).unwrap();
    }
    chart
}

#[tokio::test]
async fn a_chart_is_installed_upgraded_rolled_back_and_uninstalled() {
    let world = World::builder().tls().start().await.unwrap();
    let alice = through_the_gateway(&world, "alice").await;
    let helm = Helm::for_kubectl(alice.kubectl()).await.unwrap();
    let chart = chart(alice.home());
    let chart = chart.to_str().unwrap();
    let run = async |args: &[&str]| helm.run(args).await.unwrap().success().unwrap();
    let json =
        async |args: &[&str]| -> Value { serde_json::from_str(&run(args).await.stdout).unwrap() };
    let text = async || {
        let map = alice.kubectl().json(["get", "configmap", "shop"]).await.unwrap();
        map["data"]["text"].as_str().unwrap().to_owned()
    };

    run(&["install", "shop", chart]).await;
    let releases = json(&["list", "-o", "json"]).await;
    assert_eq!(releases[0]["name"], "shop");
    assert_eq!(releases[0]["namespace"], alice.namespace());
    assert_eq!(releases[0]["status"], "deployed");
    assert_eq!(text().await, "first");

    run(&["upgrade", "shop", chart, "--set", "text=second,replicas=2"]).await;
    assert_eq!(text().await, "second");
    let deployment = alice.kubectl().json(["get", "deployment", "shop"]).await.unwrap();
    assert_eq!(deployment["spec"]["replicas"], 2);

    run(&["rollback", "shop", "1"]).await;
    assert_eq!(text().await, "first");
    let history = json(&["history", "shop", "-o", "json"]).await;
    assert_eq!(history.as_array().unwrap().len(), 3, "{history}");

    run(&["uninstall", "shop", "--wait"]).await;
    assert_eq!(json(&["list", "-o", "json"]).await.as_array().unwrap().len(), 0);
    let left = ["get", "configmap,service,deployment", "shop", "--ignore-not-found", "-o", "name"];
    assert_eq!(alice.kubectl().run(left).await.unwrap().success().unwrap().stdout, "");

    // The API server, not the gateway, refuses forbidden requests.
    let denied = helm.run(["list", "-A"]).await.unwrap();
    assert!(denied.stderr.contains("forbidden"), "{denied:?}");
    assert_ne!(denied.code(), 0);
}
