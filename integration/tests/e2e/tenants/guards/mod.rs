//! The policies for tenants and everybody else, with requests on both sides of each rule.

mod bindings;
mod homes;
mod labels;
mod namespaces;
mod network;

use integration::world::World;
use serde_json::json;

use super::cluster::{
    CREATE, TenantCluster, are_accepted, are_refused, is_refused, send, until_accepted,
    until_allowed, until_refused, user,
};
use crate::attacks::llama_stacks::{POLICY, llama_stack};

/// One cluster for all rules, because each starts a control plane.
#[tokio::test]
async fn the_policies_keep_tenants_to_what_their_owners_may_do() {
    let builder = World::builder()
        .installed("tenants.enabled", true)
        .installed("tenants.protected_labels", "^control-plane$")
        .installed("tiers.basic.ingress_host_suffix", ".{namespace}.apps.example.com");
    let cluster = TenantCluster::start(builder).await;
    cluster.home("solar", &user("alice")).await;
    cluster.namespace("solar", "solar-production", &json!({}), "alice").await;
    let any = json!({"tenant-broker.io/bindings": "any"});
    cluster.namespace("solar", "solar-open", &any, "alice").await;
    homes::nothing_is_written_in_a_home(&cluster).await;
    bindings::owners_bind_their_own_programs(&cluster).await;
    bindings::objects_of_the_broker_stay(&cluster).await;
    labels::only_the_broker_labels_what_it_lists(&cluster).await;
    namespaces::metadata_that_decides_stays(&cluster).await;
    namespaces::a_suspended_namespace_is_not_deleted(&cluster).await;
    network::no_member_writes_a_status_or_binds_a_pod(&cluster).await;
    network::hosts_end_with_the_suffix_also_without_a_tier(&cluster).await;
    policies_for_workspaces_hold_for_tenants(&cluster).await;
}

/// The policies that personal workspaces have, too.
async fn policies_for_workspaces_hold_for_tenants(cluster: &TenantCluster) {
    let alice = cluster.person("alice", None);
    let namespace = "solar-production";
    integration::model_kinds::install(&cluster.world).await.unwrap();
    let may = json!({"namespace": namespace, "group": "llamastack.io", "verb": "create",
        "resource": "llamastackdistributions"});
    until_allowed(&alice, &may).await;
    let stack = |name| llama_stack(&json!({"namespace": namespace, "name": name}));
    send(&alice, CREATE, &stack("lsd-genai-playground")).await.success().unwrap();
    are_accepted(&alice, &[&["create", "serviceaccount", "program", "-n", namespace]]).await;
    let token = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": namespace, "name": "forever",
            "annotations": {"kubernetes.io/service-account.name": "program"}},
        "type": "kubernetes.io/service-account-token"});
    let container = json!([{"name": "c", "image": "registry.k8s.io/pause"}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": namespace, "name": "evictor"},
        "spec": {"serviceAccountName": "program", "priorityClassName": "system-cluster-critical",
            "containers": container}});
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": namespace, "name": "other-site"},
        "spec": {"ports": [{"port": 80}], "externalIPs": ["192.0.2.1"]}});
    for (object, policy) in [
        (token, "tenant-guard-secrets"),
        (stack("second"), POLICY),
        (pod, "tenant-pods"),
        (service, "tenant-network"),
    ] {
        is_refused(&send(&alice, CREATE, &object).await, &object.to_string(), policy);
    }
    are_refused(&alice, &[(&["create", "token", "program", "-n", namespace], "tenant-tokens")])
        .await;
    let write = ["create", "configmap", "c", "-n", namespace, "--dry-run=server"];
    are_accepted(&alice, &[&write]).await;
    let suspend = ["label", "namespace", namespace, "tenant-broker.io/suspended=true"];
    cluster.as_admin(&suspend).await;
    until_refused(&alice, &write, "tenant-suspended").await;
    let resume = ["label", "namespace", namespace, "tenant-broker.io/suspended-"];
    cluster.as_admin(&resume).await;
    until_accepted(&alice, &write).await;
}
