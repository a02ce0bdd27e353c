//! Attacks through the node on pods of other tenants: a system priority, a node name, a self-made
//! binding to a node. Controllers create most pods, so each is tried through a template too.

use std::time::Duration;

use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};

use super::is_refused;

const PODS: &str = "tenant-pods";
const CREATE: [&str; 3] = ["create", "-f", "-"];
const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// Returns a pod's `spec` with these additional fields.
fn spec(more: &Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "registry.k8s.io/pause",
        "securityContext": {"allowPrivilegeEscalation": false, "runAsNonRoot": true,
            "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}}]});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

fn pod(name: &str, more: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec(more)})
}

/// Returns fields that no pod of a tenant may have.
fn bad() -> [(&'static str, Value); 4] {
    [
        ("node-critical", json!({"priorityClassName": "system-node-critical"})),
        ("cluster-critical", json!({"priorityClassName": "system-cluster-critical"})),
        ("by-hand", json!({"nodeName": "some-node"})),
        ("session", json!({"serviceAccountName": "sa-tenant-admin"})),
    ]
}

#[tokio::test]
async fn no_pod_takes_a_system_priority_or_a_node() {
    let world = World::builder().start().await.unwrap();
    let mallory = world.person("mallory").await.unwrap();
    mallory.login(&[]).await.unwrap().success().unwrap();
    let kubectl = mallory.kubectl();
    for (name, more) in bad() {
        is_refused(kubectl, &CREATE, &pod(name, &more), PODS).await;
    }
    // The API server itself refuses the number alone, because it derives it from the class.
    let numbered = pod("numbered", &json!({"priority": 2_000_001_000}));
    is_refused(kubectl, &CREATE, &numbered, "priority").await;
    // A tenant may use a class of the operator.
    let admin = world.admin_kubectl().unwrap();
    let class = format!("batch-{}", mallory.namespace());
    let create = ["create", "priorityclass", &class, "--value=1000000000"];
    admin.run(create).await.unwrap().success().unwrap();
    let good = pod("good", &json!({"priorityClassName": class})).to_string();
    // The admission plugin `Priority` knows a new class a moment later.
    probe::until("the class to be known", WAIT_TIMEOUT, || async {
        let made = kubectl.run_with_input(CREATE, good.clone()).await?;
        Ok(if made.status.success() { Probe::Ready(()) } else { Probe::NotYet(made.stderr) })
    })
    .await
    .unwrap();

    // An administrator uses a named node for debugging.
    let named = pod("debugger", &json!({"nodeName": "some-node"})).to_string();
    let as_admin = ["create", "-f", "-", "-n", &mallory.namespace()];
    admin.run_with_input(as_admin, named).await.unwrap().success().unwrap();
    admin.run(["delete", "priorityclass", &class]).await.unwrap().success().unwrap();
}

/// `admin` cannot bind pods; a tier's role might by mistake.
#[tokio::test]
async fn no_pod_is_bound_to_a_node_by_hand() {
    let world = World::builder().start().await.unwrap();
    let mallory = world.person("mallory").await.unwrap();
    mallory.login(&[]).await.unwrap().success().unwrap();
    let (kubectl, namespace) = (mallory.kubectl(), mallory.namespace());
    let admin = world.admin_kubectl().unwrap();
    let pending = pod("p", &json!({})).to_string();
    kubectl.run_with_input(CREATE, pending).await.unwrap().success().unwrap();
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "some-node"}});
    let pods = format!("/api/v1/namespaces/{namespace}/pods/p/binding");
    let bindings = format!("/api/v1/namespaces/{namespace}/bindings");
    for path in [&pods, &bindings] {
        is_refused(kubectl, &["create", "--raw", path, "-f", "-"], &binding, "cannot").await;
    }
    let role = format!("binder-{namespace}");
    let account = format!("--serviceaccount={namespace}:sa-tenant-admin");
    let rights = "--resource=pods/binding,bindings";
    for args in [
        &["create", "clusterrole", &role, "--verb=create", rights][..],
        &["create", "clusterrolebinding", &role, &format!("--clusterrole={role}"), &account],
    ] {
        admin.run(args).await.unwrap().success().unwrap();
    }
    kubectl.until_allowed(&["create", "pods", "--subresource=binding"]).await.unwrap();
    for path in [&pods, &bindings] {
        is_refused(kubectl, &["create", "--raw", path, "-f", "-"], &binding, PODS).await;
    }
    // The scheduler may do the same.
    let made =
        world.cluster().kubeconfig_for("system:kube-scheduler", None, world.folder()).unwrap();
    // KUBECONFIG is a list that colons separate.
    let scheduler = world.folder().join("scheduler.kubeconfig");
    std::fs::rename(made, &scheduler).unwrap();
    let scheduler = world.kubectl_with(&scheduler).unwrap();
    scheduler
        .run_with_input(["create", "--raw", &pods, "-f", "-"], binding.to_string())
        .await
        .unwrap()
        .success()
        .unwrap();
    for kind in ["clusterrolebinding", "clusterrole"] {
        admin.run(["delete", kind, &role]).await.unwrap().success().unwrap();
    }
}

/// Waits until the controllers failed to create the pods of all `refused`, and created those of
/// `made`.
async fn until_tried(kubectl: &Kubectl, refused: &[&str], made: &[&str]) {
    probe::until("the controllers to try", WAIT_TIMEOUT, || async {
        let failed = ["get", "events", "--field-selector=reason=FailedCreate"];
        let events = kubectl.json(failed).await?["items"].clone();
        let events: Vec<String> =
            events.as_array().into_iter().flatten().map(ToString::to_string).collect();
        let was_refused =
            |name: &&str| events.iter().any(|event| event.contains(PODS) && event.contains(*name));
        let pods = kubectl.json(["get", "pods"]).await?["items"].to_string();
        let open: Vec<&str> = refused
            .iter()
            .filter(|name| !was_refused(name))
            .chain(made.iter().filter(|name| !pods.contains(&format!("\"app\":\"{name}\""))))
            .copied()
            .collect();
        Ok(if open.is_empty() {
            Probe::Ready(())
        } else {
            Probe::NotYet(format!("{open:?} of {events:?}\n{pods}"))
        })
    })
    .await
    .unwrap();
}

/// Real controllers: a Deployment, a Job, a StatefulSet and a DaemonSet, in a tier that enforces
/// `restricted`. The DaemonSet controller chooses the node by affinity, so that its pods pass.
#[tokio::test]
async fn controllers_make_the_pods_that_a_tenant_may_have_and_no_others() {
    let world = World::builder().every_controller().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    let (kubectl, admin) = (alice.kubectl(), world.admin_kubectl().unwrap());
    let level = "pod-security.kubernetes.io/enforce=restricted";
    let restrict = ["label", "--overwrite", "namespace", &alice.namespace(), level];
    admin.run(restrict).await.unwrap().success().unwrap();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "some-node"}});
    admin.run_with_input(CREATE, node.to_string()).await.unwrap().success().unwrap();

    let template = |name: &str, more: &Value| json!({"metadata": {"labels": {"app": name}}, "spec": spec(more)});
    let controller = |kind: &str, name: &str, more: &Value| {
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": {
            "selector": {"matchLabels": {"app": name}}, "template": template(name, more)}})
    };
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"},
        "spec": {"template": template("job", &json!({"restartPolicy": "Never"}))}});
    let mut objects = vec![
        controller("Deployment", "deployment", &json!({})),
        controller("StatefulSet", "statefulset", &json!({})),
        controller("DaemonSet", "daemonset", &json!({})),
        job,
    ];
    for (name, more) in bad() {
        objects.push(controller("Deployment", name, &more));
    }
    let daemon = json!({"priorityClassName": "system-node-critical"});
    objects.push(controller("DaemonSet", "critical-daemon", &daemon));
    for object in &objects {
        kubectl.run_with_input(CREATE, object.to_string()).await.unwrap().success().unwrap();
    }
    let refused = ["node-critical", "cluster-critical", "by-hand", "session", "critical-daemon"];
    until_tried(kubectl, &refused, &["deployment", "statefulset", "daemonset", "job"]).await;
    let pods = kubectl.json(["get", "pods"]).await.unwrap()["items"].clone();
    for pod in pods.as_array().unwrap() {
        let app = pod["metadata"]["labels"]["app"].as_str().unwrap();
        assert!(!refused.contains(&app), "{pod}");
    }
}
