//! `spec.nodeSelector` at an API server with and without the admission plugin `PodNodeSelector`.

use integration::acceptance::tenants::Fixture;
use integration::world::World;
use serde_json::{Value, json};

use super::TENANT_BROKER;
use super::reconcile::{condition_message, until};

const NAMESPACE: &str = "solar-a";

/// Starts a broker with the tenant `solar`, whose pods run on nodes of the pool `solar`, and a namespace.
async fn start(has_plugin: bool) -> Fixture {
    let mut builder = World::builder();
    if has_plugin {
        builder = builder
            .apiserver_flag("--enable-admission-plugins=PodNodeSelector")
            .setting("tenants.pod_node_selector", true);
    }
    let fixture = Fixture::start(builder).await.unwrap();
    let owner = json!({"kind": "User", "name": "alice@example.com"});
    let spec = json!({"owners": [owner], "nodeSelector": {"pool": "solar"}});
    fixture.apply("solar", &spec).await.unwrap();
    fixture.create_namespace("solar", NAMESPACE).await.unwrap();
    fixture
}

/// Creates a pod in the namespace, and returns its `spec.nodeSelector`.
async fn selector_of_a_pod(fixture: &Fixture) -> Value {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app"}, "spec": {
        "containers": [{"name": "app", "image": "example.com/app", "securityContext": {
            "allowPrivilegeEscalation": false, "runAsNonRoot": true,
            "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}}],
    }});
    let admin = fixture.world.admin_kubectl().unwrap();
    let account = ["get", "serviceaccount", "default", "-n", NAMESPACE];
    until(&fixture.world, &account[1..], |it| !it.is_null()).await;
    let create = ["create", "-f", "-", "-n", NAMESPACE, "-o", "json"];
    let created = admin.run_with_input(create, pod.to_string()).await.unwrap().success().unwrap();
    let created: Value = serde_json::from_str(&created.stdout).unwrap();
    created["spec"]["nodeSelector"].clone()
}

#[tokio::test]
async fn pods_get_the_node_selector_of_their_tenant() {
    let fixture = start(true).await;
    assert_eq!(selector_of_a_pod(&fixture).await, json!({"pool": "solar"}));
    let tenant = crate::object(&fixture.world, &[TENANT_BROKER.0, "solar"]).await.unwrap().unwrap();
    let conditions = tenant["status"]["conditions"].to_string();
    assert!(!conditions.contains("NotCarriedOut"), "{conditions}");
}

#[tokio::test]
async fn without_the_plugin_a_condition_names_the_node_selector() {
    let fixture = start(false).await;
    until(&fixture.world, &[TENANT_BROKER.0, "solar"], |tenant| {
        let status = &tenant["status"];
        status["state"] == "Active"
            && condition_message(status, "NotCarriedOut").contains("tenants.pod_node_selector")
    })
    .await;
    assert_eq!(selector_of_a_pod(&fixture).await, Value::Null);
}
