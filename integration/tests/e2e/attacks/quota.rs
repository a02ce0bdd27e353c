//! Attacks of a tenant on shared resources.

use std::time::Duration;

use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::World;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::llama_stacks::{POLICY, llama_stack};
use super::{is_refused, until_creation_is_refused};
use crate::model_services::fixture::{builder_with_kinds, install_kinds};

const QUOTA: &str = "exceeded quota: tenant-quota";
const CREATE: [&str; 3] = ["create", "-f", "-"];
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until a changed quota is enforced. A new quota is enforced before anybody has rights.
async fn until_enforced(admin: &Kubectl, namespace: &str) -> Value {
    probe::until("the quota to be counted", WAIT_TIMEOUT, || async {
        let quota = admin.json(["get", "quota", "tenant-quota", "-n", namespace]).await?;
        let is_counted =
            quota["status"]["hard"] == quota["spec"]["hard"] && quota["status"]["used"].is_object();
        Ok(if is_counted { Probe::Ready(quota) } else { Probe::NotYet(quota.to_string()) })
    })
    .await
    .unwrap()
}

fn pod(name: &str, resources: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [
        {"name": "c", "image": "registry.k8s.io/pause", "resources": resources}]}})
}

#[tokio::test]
async fn a_container_that_requests_little_is_limited_by_the_tier() {
    let world = World::builder().start().await.unwrap();
    let mallory = world.person("mallory").await.unwrap();
    mallory.login(&[]).await.unwrap().success().unwrap();
    let kubectl = mallory.kubectl();
    for (what, resources) in [
        ("limits.cpu", json!({"requests": {"cpu": "1m"}, "limits": {"cpu": "64"}})),
        ("limits.ephemeral-storage", json!({"limits": {"ephemeral-storage": "1Ti"}})),
    ] {
        is_refused(kubectl, &CREATE, &pod("greedy", &resources), what).await;
        is_refused(kubectl, &CREATE, &pod("greedy", &resources), QUOTA).await;
    }
    // Without explicit values the defaults apply for every counted resource.
    let modest = pod("modest", &json!({})).to_string();
    kubectl.run_with_input(CREATE, modest).await.unwrap().success().unwrap();
    let made = kubectl.json(["get", "pod", "modest"]).await.unwrap();
    let limits = &made["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(limits["ephemeral-storage"], "1Gi", "{made}");
}

/// Returns an object of each persistent kind that `admin` may create, with the key that counts it.
fn of_each_kind() -> Vec<(&'static str, Value)> {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {
        "containers": [{"name": "c", "image": "registry.k8s.io/pause"}]}});
    let mut job = template.clone();
    job["spec"]["restartPolicy"] = json!("Never");
    let selector = json!({"matchLabels": {"a": "b"}});
    let object = |version: &str, kind: &str, more: Value| {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "one"}});
        for (key, value) in more.as_object().unwrap() {
            object[key] = value.clone();
        }
        object
    };
    let rbac = "rbac.authorization.k8s.io/v1";
    let apps = |kind| {
        let spec = json!({"replicas": 0, "selector": selector, "template": template});
        object("apps/v1", kind, json!({"spec": spec}))
    };
    let mut daemons = apps("DaemonSet");
    daemons["spec"].as_object_mut().unwrap().remove("replicas");
    let claim =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let scaled = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "one"});
    vec![
        ("services", object("v1", "Service", json!({"spec": {"ports": [{"port": 80}]}}))),
        ("persistentvolumeclaims", object("v1", "PersistentVolumeClaim", json!({"spec": claim}))),
        ("count/pods", object("v1", "Pod", json!({"spec": template["spec"]}))),
        ("count/configmaps", object("v1", "ConfigMap", json!({}))),
        ("count/secrets", object("v1", "Secret", json!({}))),
        ("count/serviceaccounts", object("v1", "ServiceAccount", json!({}))),
        (
            "count/replicationcontrollers",
            object(
                "v1",
                "ReplicationController",
                json!({"spec": {"replicas": 0, "selector": {"a": "b"}, "template": template}}),
            ),
        ),
        ("count/deployments.apps", apps("Deployment")),
        ("count/statefulsets.apps", apps("StatefulSet")),
        ("count/daemonsets.apps", daemons),
        ("count/replicasets.apps", apps("ReplicaSet")),
        ("count/jobs.batch", object("batch/v1", "Job", json!({"spec": {"template": job}}))),
        (
            "count/cronjobs.batch",
            object(
                "batch/v1",
                "CronJob",
                json!({"spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": job}}}}),
            ),
        ),
        (
            "count/horizontalpodautoscalers.autoscaling",
            object(
                "autoscaling/v2",
                "HorizontalPodAutoscaler",
                json!({"spec": {"maxReplicas": 1, "scaleTargetRef": scaled}}),
            ),
        ),
        (
            "count/poddisruptionbudgets.policy",
            object("policy/v1", "PodDisruptionBudget", json!({"spec": {"selector": selector}})),
        ),
        ("count/roles.rbac.authorization.k8s.io", object(rbac, "Role", json!({"rules": []}))),
        (
            "count/rolebindings.rbac.authorization.k8s.io",
            object(
                rbac,
                "RoleBinding",
                json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": "view"}}),
            ),
        ),
        (
            "count/networkpolicies.networking.k8s.io",
            object("networking.k8s.io/v1", "NetworkPolicy", json!({"spec": {"podSelector": {}}})),
        ),
        (
            "count/ingresses.networking.k8s.io",
            object(
                "networking.k8s.io/v1",
                "Ingress",
                json!({"spec": {"rules": [{"host": "mine.example.net"}]}}),
            ),
        ),
        (
            "count/leases.coordination.k8s.io",
            object("coordination.k8s.io/v1", "Lease", json!({"spec": {}})),
        ),
    ]
}

/// Returns an object of each kind that no quota counts and a policy limits, with the key of a quota that
/// would count it.
fn of_each_kind_of_policies() -> Vec<(&'static str, Value, &'static str)> {
    let stack = llama_stack(&json!({"name": "one"}));
    vec![("count/llamastackdistributions.llamastack.io", stack, POLICY)]
}

/// The kinds that people may create with the ClusterRoles of `install --model-services`, each as the key
/// of a quota that would count it.
async fn kinds_of_model_roles(world: &World) -> Vec<String> {
    let manifest = world.broker().run(&["install", "--model-services"]).await.unwrap();
    let manifest = manifest.success().unwrap().stdout;
    let mut kinds = Vec::new();
    for document in serde_norway::Deserializer::from_str(&manifest) {
        let object = Value::deserialize(document).unwrap();
        let label = "rbac.authorization.k8s.io/aggregate-to-admin";
        if object["kind"] != "ClusterRole" || object["metadata"]["labels"][label] != "true" {
            continue;
        }
        for rule in object["rules"].as_array().unwrap() {
            let texts = |field: &str| {
                let items = rule[field].as_array().cloned().unwrap_or_default();
                items.into_iter().map(|item| item.as_str().unwrap().to_owned()).collect::<Vec<_>>()
            };
            let creating = ["create", "update", "patch", "*"];
            if texts("verbs").iter().any(|verb| creating.contains(&verb.as_str())) {
                let resources = texts("resources").into_iter();
                let keys = resources.flat_map(|resource| {
                    texts("apiGroups")
                        .into_iter()
                        .map(move |group| format!("count/{resource}.{group}"))
                });
                kinds.extend(keys);
            }
        }
    }
    assert!(!kinds.is_empty(), "{manifest}");
    kinds
}

/// The workspaces have the tier's counts: each is set so that no further object fits.
#[tokio::test]
async fn every_kind_of_object_is_limited_by_the_quota() {
    let world = builder_with_kinds().start().await.unwrap();
    install_kinds(&world).await;
    let mallory = world.person("mallory").await.unwrap();
    mallory.login(&[]).await.unwrap().success().unwrap();
    let (kubectl, admin) = (mallory.kubectl(), world.admin_kubectl().unwrap());
    let namespace = mallory.namespace();
    let quota = admin.json(["get", "quota", "tenant-quota", "-n", &namespace]).await.unwrap();
    let hard = quota["spec"]["hard"].as_object().unwrap().clone();
    let kinds = of_each_kind();
    let none: serde_json::Map<String, Value> =
        kinds.iter().map(|(key, _)| ((*key).to_owned(), json!("0"))).collect();
    for key in none.keys() {
        let most: u32 = hard[key].as_str().unwrap().parse().unwrap();
        assert!((1..=1000).contains(&most), "{key}: {most}");
    }
    let patch = json!({"spec": {"hard": none}}).to_string();
    let shrink = ["patch", "quota", "tenant-quota", "-n", &namespace, "-p", &patch];
    admin.run(shrink).await.unwrap().success().unwrap();
    until_enforced(&admin, &namespace).await;
    // The API server admits by a copy of the quota.
    until_creation_is_refused(kubectl, &kinds[0].1, QUOTA).await;
    for (key, object) in kinds {
        is_refused(kubectl, &CREATE, &object, QUOTA).await;
        is_refused(kubectl, &CREATE, &object, key).await;
    }
    let of_policies = of_each_kind_of_policies();
    for kind in kinds_of_model_roles(&world).await {
        let is_limited =
            none.contains_key(&kind) || of_policies.iter().any(|(key, ..)| *key == kind);
        assert!(is_limited, "no quota and no policy limits {kind}");
    }
    for (_, object, policy) in of_policies {
        is_refused(kubectl, &CREATE, &object, policy).await;
    }
}

#[tokio::test]
async fn a_tier_has_the_counts_of_its_table() {
    let world = World::builder()
        .setting("tiers.basic.cpu_limit", "3")
        .setting("tiers.basic.quota.count/jobs.batch", "7")
        .setting("tiers.basic.quota.services.loadbalancers", "1")
        .setting("tiers.basic.quota.requests.nvidia.com/gpu", "2")
        .start()
        .await
        .unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    let admin = world.admin_kubectl().unwrap();
    let quota =
        admin.json(["get", "quota", "tenant-quota", "-n", &alice.namespace()]).await.unwrap();
    for (key, amount) in [
        ("limits.cpu", "3"),
        ("count/jobs.batch", "7"),
        ("services.loadbalancers", "1"),
        ("requests.nvidia.com/gpu", "2"),
        ("count/leases.coordination.k8s.io", "50"),
    ] {
        assert_eq!(quota["spec"]["hard"][key], amount, "{key}: {quota}");
    }
}
