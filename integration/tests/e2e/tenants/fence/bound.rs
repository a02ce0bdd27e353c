//! The broker's credential where somebody bound the broker itself in namespaces of a tenant: it has
//! the rights of the role, and the policies for tenants hold for it, too.

use integration::control_plane::BROKER_USER;
use integration::kubectl::Kubectl;
use integration::world::World;
use serde_json::{Value, json};

use super::{Attempt, cluster_of, create, role_binding, try_all, user};
use crate::tenants::cluster::{CREATE, until_allowed};

const NETWORK: &str = "tenant-network";
const PODS: &str = "tenant-pods";
const SECRETS: &str = "tenant-guard-secrets";
const HOMES: &str = "tenant-guard-homes";
const SUSPENDED: &str = "tenant-suspended";

/// Binds the broker to the role `admin`, and to one for what `admin` does not allow.
async fn bind_broker(admin: &Kubectl, broker: &Kubectl) {
    let rights = "--resource=services/status,pods/binding,bindings,resourcequotas/status";
    let role = ["create", "clusterrole", "by-mistake", "--verb=create,update,patch", rights];
    admin.run(role).await.unwrap().success().unwrap();
    for namespace in ["solar-prod", "solar-held", "tenant-solar"] {
        for (name, role) in [("by-hand", "admin"), ("by-mistake", "by-mistake")] {
            let binding = role_binding(namespace, name, role, &json!([user(BROKER_USER)]));
            let made = admin.run_with_input(CREATE, binding.to_string()).await.unwrap();
            made.success().unwrap();
        }
        for (resource, subresource) in [("configmaps", ""), ("pods", "binding")] {
            let may = json!({"namespace": namespace, "verb": "create", "resource": resource,
                "subresource": subresource});
            until_allowed(broker, &may).await;
        }
    }
}

fn object(kind: &str, namespace: &str, more: &Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": kind,
        "metadata": {"namespace": namespace, "name": "site"}});
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

fn service(more: &Value) -> Value {
    let mut service = object("Service", "solar-prod", &json!({"spec": {"ports": [{"port": 80}]}}));
    service["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    service
}

fn ingress(host: &str) -> Value {
    let backend = json!({"service": {"name": "site", "port": {"number": 80}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    let rules = json!({"spec": {"rules": [{"host": host, "http": {"paths": paths}}]}});
    let mut ingress = object("Ingress", "solar-prod", &rules);
    ingress["apiVersion"] = json!("networking.k8s.io/v1");
    ingress
}

/// A request for a subresource, which kubectl has no command for.
fn post(path: &str, object: Value, refusal: Option<&'static str>) -> Attempt {
    let path = format!("{path}?dryRun=All");
    let args = ["create", "--raw", &path, "-f", "-"].map(str::to_owned).into();
    Attempt { args, object: Some(object), refusal }
}

fn network() -> Vec<Attempt> {
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"namespace": "solar-prod", "name": "tenant-deny-ingress"},
        "spec": {"podSelector": {}}});
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    let balanced = ["service", "balanced", "-n", "solar-prod", "--subresource=status"];
    vec![
        create(service(&json!({})), None),
        create(service(&json!({"externalIPs": ["192.0.2.1"]})), Some(NETWORK)),
        create(service(&json!({"loadBalancerIP": "192.0.2.1"})), Some(NETWORK)),
        create(ingress("site.solar-prod.apps.example.com"), None),
        create(ingress("site.example.net"), Some(NETWORK)),
        create(ingress(""), Some(NETWORK)),
        create(policy, Some(NETWORK)),
        super::patch(&balanced, &status, Some(NETWORK)),
    ]
}

fn secrets_and_pods() -> Vec<Attempt> {
    let annotations = json!({"kubernetes.io/service-account.name": "robot"});
    let mut forever =
        object("Secret", "solar-prod", &json!({"type": "kubernetes.io/service-account-token"}));
    forever["metadata"]["annotations"] = annotations;
    let mut credential = object("Secret", "solar-prod", &json!({}));
    credential["metadata"]["name"] = json!("tenant-credential-x");
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "pending"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "some-node"}});
    let core = "/api/v1/namespaces/solar-prod";
    let pod = |more: &Value| {
        let container = json!([{"name": "c", "image": "registry.k8s.io/pause"}]);
        let mut pod = object("Pod", "solar-prod", &json!({"spec": {"containers": container}}));
        let spec = pod["spec"].as_object_mut().unwrap();
        spec.insert("serviceAccountName".to_owned(), json!("robot"));
        spec.extend(more.as_object().unwrap().clone());
        pod
    };
    vec![
        create(object("Secret", "solar-prod", &json!({})), None),
        create(forever, Some(SECRETS)),
        // Its type is one without a token.
        create(credential, None),
        create(pod(&json!({"nodeName": "some-node"})), Some(PODS)),
        post(&format!("{core}/pods/pending/binding"), binding.clone(), Some(PODS)),
        post(&format!("{core}/bindings"), binding, Some(PODS)),
    ]
}

/// What the broker writes, it writes as before, also where it is bound.
fn own_work() -> Vec<Attempt> {
    let hard = json!({"status": {"hard": {"pods": "1000"}}});
    let quota = ["resourcequota", "tenant-quota-0", "-n", "solar-prod", "--subresource=status"];
    let data = json!({"data": {"a": "b"}});
    vec![
        super::delete(&["resourcequota", "tenant-quota-0", "-n", "solar-prod"], None),
        super::patch(&quota, &hard, Some("tenant-guard-tenant-objects")),
        super::delete(&["rolebinding", "made-by-owner", "-n", "solar-held"], None),
        create(object("ConfigMap", "solar-prod", &data), None),
        create(object("ConfigMap", "solar-held", &data), Some(SUSPENDED)),
        create(object("ConfigMap", "tenant-solar", &data), Some(HOMES)),
    ]
}

#[tokio::test]
async fn a_broker_that_is_bound_in_a_namespace_may_do_no_more_than_its_members() {
    let builder = World::builder()
        .own_control_plane()
        .installed("tenants.enabled", true)
        .installed("tiers.basic.ingress_host_suffix", ".{namespace}.apps.example.com");
    let (world, broker) = cluster_of(builder).await;
    let admin = world.admin_kubectl().unwrap();
    bind_broker(&admin, &broker).await;
    let mut balanced = service(&json!({"type": "LoadBalancer",
        "allocateLoadBalancerNodePorts": false}));
    balanced["metadata"]["name"] = json!("balanced");
    let container = json!([{"name": "c", "image": "registry.k8s.io/pause"}]);
    let mut pending = object(
        "Pod",
        "solar-prod",
        &json!({"spec": {"containers": container,
        "serviceAccountName": "robot"}}),
    );
    pending["metadata"]["name"] = json!("pending");
    for object in [balanced, pending] {
        admin.run_with_input(CREATE, object.to_string()).await.unwrap().success().unwrap();
    }
    try_all(&broker, network()).await;
    try_all(&broker, secrets_and_pods()).await;
    try_all(&broker, own_work()).await;
}
