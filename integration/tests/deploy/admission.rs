//! The renderings of the chart in a real API server: it accepts every object, and admits the pods
//! where Pod Security is `restricted`.

use std::time::Duration;

use anyhow::Result;
use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use serde_json::{Value, json};

use super::chart;
use super::cluster::Cluster;

const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
const APPLY: [&str; 5] = ["apply", "--server-side", "--validate=strict", "-f", "-"];

/// The definition of a kind of another project, with the fields that the chart sets: the API server
/// refuses any other field. The real ones have more.
fn definition(group: &str, version: &str, kind: &str, plural: &str, spec: &Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "annotations": {
            "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api"}},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": version, "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "required": ["spec"],
                    "properties": {"spec": spec}}}}]}})
}

fn object(properties: &Value) -> Value {
    json!({"type": "object", "properties": properties})
}

fn array(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

/// An `HTTPRoute` of the Gateway API.
fn http_route() -> Value {
    let text = json!({"type": "string"});
    // GEP-2257.
    let duration = json!({"type": "string", "pattern": "^([0-9]{1,5}(h|m|s|ms)){1,4}$"});
    let parent = object(&json!({"name": text, "namespace": text, "sectionName": text}));
    let path = object(&json!({"type": {"type": "string",
        "enum": ["Exact", "PathPrefix", "RegularExpression"]}, "value": text}));
    let port = json!({"type": "integer", "minimum": 1, "maximum": 65535});
    let rule = object(&json!({
        "matches": array(&object(&json!({"path": path}))),
        "timeouts": object(&json!({"request": duration, "backendRequest": duration})),
        "backendRefs": array(&object(&json!({"name": text, "port": port}))),
    }));
    let spec = object(&json!({"parentRefs": array(&parent), "hostnames": array(&text),
        "rules": array(&rule)}));
    definition("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes", &spec)
}

/// A `ServiceMonitor` of the Prometheus operator.
fn service_monitor() -> Value {
    let text = json!({"type": "string"});
    let labels = json!({"type": "object", "additionalProperties": text});
    let endpoint = object(&json!({"port": text, "path": text, "interval": text,
        "scrapeTimeout": text}));
    let spec = object(&json!({"selector": object(&json!({"matchLabels": labels})),
        "endpoints": array(&endpoint)}));
    definition("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors", &spec)
}

/// A `Certificate` of cert-manager.
fn certificate() -> Value {
    let text = json!({"type": "string"});
    let key = object(&json!({"algorithm": {"type": "string", "enum": ["RSA", "ECDSA", "Ed25519"]},
        "size": {"type": "integer"},
        "rotationPolicy": {"type": "string", "enum": ["Never", "Always"]}}));
    let issuer = object(&json!({"name": text, "kind": text, "group": text}));
    let spec = object(&json!({"secretName": text, "dnsNames": array(&text), "duration": text,
        "renewBefore": text, "privateKey": key, "usages": array(&text), "issuerRef": issuer}));
    definition("cert-manager.io", "v1", "Certificate", "certificates", &spec)
}

async fn apply(kubectl: &Kubectl, text: String) -> Result<()> {
    kubectl.run_with_input(APPLY, text).await?.success()?;
    Ok(())
}

/// The pod of a Deployment, as its controller makes it.
fn pod(deployment: &Value) -> Value {
    let mut pod = deployment["spec"]["template"].clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!("admitted");
    pod
}

/// Waits until the controllers of the cluster have created a pod of the Deployment.
pub(crate) async fn until_a_pod_exists(admin: &Kubectl, namespace: &str) -> Result<()> {
    let label = "app.kubernetes.io/name=tenant-broker,pod-template-hash";
    let get = ["get", "pods", "-o", "name", "-n", namespace, "-l", label];
    probe::until("a pod of the Deployment", WAIT_TIMEOUT, || async {
        let pods = admin.run(get).await?.success()?.stdout;
        if !pods.trim().is_empty() {
            return Ok(Probe::Ready(()));
        }
        let sets = ["get", "replicasets", "-o", "jsonpath={.items[*].status.conditions}", "-n"];
        let sets = admin.run(sets.into_iter().chain([namespace])).await?.stdout;
        Ok(Probe::NotYet(format!("no pod; conditions of the ReplicaSets: {sets}")))
    })
    .await
}

#[tokio::test]
async fn the_api_server_accepts_every_installation_and_admits_its_pods_as_restricted() {
    let cluster = Cluster::shared().await.unwrap();
    let admin = &cluster.admin;
    for (plural, definition) in [
        ("httproutes.gateway.networking.k8s.io", http_route()),
        ("servicemonitors.monitoring.coreos.com", service_monitor()),
        ("certificates.cert-manager.io", certificate()),
    ] {
        apply(admin, definition.to_string()).await.unwrap();
        let name = format!("crd/{plural}");
        let wait = ["wait", "--for=condition=Established", "--timeout=30s", &name];
        admin.run(wait).await.unwrap().success().unwrap();
    }
    for installation in chart::installations() {
        let namespace = format!("admission-{installation}");
        cluster.restricted_namespace(&namespace).await.unwrap();
        let rendered = chart::render(&cluster.helm, installation, &namespace, &[]).await.unwrap();
        let documents = chart::documents(&rendered).unwrap();
        let deployment = chart::only(&documents, "Deployment");
        // What `tenant-broker install` creates, unless the chart does.
        if !documents.iter().any(|one| one["kind"] == "ServiceAccount") {
            let name = deployment["spec"]["template"]["spec"]["serviceAccountName"].as_str();
            let create = ["create", "serviceaccount", name.unwrap(), "-n", &namespace];
            admin.run(create).await.unwrap().success().unwrap();
        }
        apply(admin, rendered).await.unwrap();

        let create = ["create", "--validate=strict", "-n", &namespace, "-f", "-"];
        let pod = pod(deployment);
        let made = admin.run_with_input(create, pod.to_string()).await.unwrap().success().unwrap();
        assert!(!made.stderr.contains("Warning"), "{installation}: {}", made.stderr);
        until_a_pod_exists(admin, &namespace).await.unwrap();
    }
}

/// Otherwise the test above could not fail.
#[tokio::test]
async fn a_pod_with_less_security_than_the_charts_is_refused() {
    let cluster = Cluster::shared().await.unwrap();
    let (admin, namespace) = (&cluster.admin, "admission-refused");
    cluster.restricted_namespace(namespace).await.unwrap();
    let account = ["create", "serviceaccount", "tenant-broker", "-n", namespace];
    admin.run(account).await.unwrap().success().unwrap();
    let rendered = chart::render(&cluster.helm, "minimal", namespace, &[]).await.unwrap();
    let documents = chart::documents(&rendered).unwrap();
    let good = pod(chart::only(&documents, "Deployment"));
    let create = ["create", "--dry-run=server", "-n", namespace, "-f", "-"];
    for (pointer, value) in [
        ("/spec/securityContext/seccompProfile", json!(null)),
        ("/spec/securityContext/runAsNonRoot", json!(false)),
        ("/spec/containers/0/securityContext/allowPrivilegeEscalation", json!(true)),
        ("/spec/containers/0/securityContext/capabilities", json!({})),
        ("/spec/volumes/0", json!({"name": "etc", "hostPath": {"path": "/etc"}})),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = value;
        let refused = admin.run_with_input(create, bad.to_string()).await.unwrap();
        assert!(refused.stderr.contains("violates PodSecurity"), "{pointer}: {}", refused.stderr);
    }
    let made = admin.run_with_input(create, good.to_string()).await.unwrap();
    made.success().unwrap();
}
