//! `tenant-guard-namespaces` with tenants: labels, owners, finalizers and annotations.

use serde_json::{Value, json};

use crate::tenants::cluster::{
    CREATE, TenantCluster, are_accepted, are_refused, is_refused, namespace, send, until_allowed,
};

const POLICY: &str = "tenant-guard-namespaces";
const MANAGED: &str = "solar-production";
const PLAIN: &str = "plain";
const NODES: &str = "scheduler.alpha.kubernetes.io/node-selector=pool=gpu";

/// Dave may write every namespace and its subresources, so that the policy alone decides.
pub(super) async fn metadata_that_decides_stays(cluster: &TenantCluster) {
    let dave = cluster.person("dave", None);
    let resources = "namespaces,namespaces/status,namespaces/finalize";
    cluster.give("dave", "all-namespaces", "get,create,update,patch,delete", resources).await;
    until_allowed(&dave, &json!({"verb": "delete", "resource": "namespaces"})).await;
    cluster.make(&namespace(PLAIN, &json!({}))).await;

    let label = |name: &'static str, label: &'static str| {
        ["label", "namespace", name, label, "--overwrite"]
    };
    let annotate =
        |name: &'static str, it: &'static str| ["annotate", "namespace", name, it, "--overwrite"];
    are_refused(
        &dave,
        &[
            (&label(PLAIN, "tenant-broker.io/tenant=solar"), POLICY),
            (&label(PLAIN, "tenant-broker.io/home=true"), POLICY),
            (&label(PLAIN, "tenant-broker.io/other=x"), POLICY),
            (&label(MANAGED, "tenant-broker.io/tenant=lunar"), POLICY),
            (&label(MANAGED, "tenant-broker.io/tenant-"), POLICY),
            (&label(MANAGED, "tenant-broker.io/bindings=any"), POLICY),
            (&label(MANAGED, "pod-security.kubernetes.io/enforce=privileged"), POLICY),
            (&label(MANAGED, "pod-security.kubernetes.io/enforce-version=v1.0"), POLICY),
            (&label(MANAGED, "pod-security.kubernetes.io/enforce-"), POLICY),
            (&label("tenant-solar", "tenant-broker.io/home-"), POLICY),
            (&annotate(MANAGED, NODES), POLICY),
            (&annotate(MANAGED, "net.beta.kubernetes.io/network-policy=x"), POLICY),
        ],
    )
    .await;
    are_accepted(
        &dave,
        &[
            &label(PLAIN, "team=x"),
            &label(PLAIN, "pod-security.kubernetes.io/enforce=baseline"),
            &annotate(PLAIN, NODES),
            &label(MANAGED, "team=x"),
            &annotate(MANAGED, "example.com/owner=x"),
            &annotate(MANAGED, "kubectl.kubernetes.io/last-applied-configuration={}"),
        ],
    )
    .await;
    owners_and_finalizers_stay(cluster).await;
    subresources_are_checked(cluster).await;

    // Without tenants.direct_namespaces nobody creates namespaces of tenants.
    let mine = namespace("solar-mine", &json!({"tenant-broker.io/tenant": "solar"}));
    is_refused(&send(&dave, CREATE, &mine).await, "a namespace", POLICY);
    // Nor homes of tenants to come, although nothing else keeps dave from creating namespaces.
    for name in ["tenant-stellar", "tenant-stellar-x"] {
        let text = "namespaces tenant-* are made by the broker";
        is_refused(&send(&dave, CREATE, &namespace(name, &json!({}))).await, name, text);
    }
    are_accepted(
        &dave,
        &[
            &["create", "namespace", "of-nobody"],
            &["delete", "namespace", "of-nobody", "--wait=false"],
            // Owners delete namespaces of their tenants.
            &["delete", "namespace", MANAGED, "--dry-run=server", "--wait=false"],
        ],
    )
    .await;
}

async fn owners_and_finalizers_stay(cluster: &TenantCluster) {
    let dave = cluster.person("dave", None);
    let finalizers = json!({"metadata": {"finalizers": ["example.com/hold"]}}).to_string();
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "c",
        "uid": "00000000-0000-4000-8000-000000000000"});
    let owners = json!({"metadata": {"ownerReferences": [owner]}}).to_string();
    for patch in [&finalizers, &owners] {
        let args = |name| ["patch", "namespace", name, "--dry-run=server", "-p", patch.as_str()];
        are_refused(&dave, &[(&args(MANAGED), POLICY)]).await;
        are_accepted(&dave, &[&args(PLAIN)]).await;
    }
}

/// `status` and `finalize` write the namespace, too, labels included.
async fn subresources_are_checked(cluster: &TenantCluster) {
    let dave = cluster.person("dave", None);
    let there: Value = cluster.admin.json(["get", "namespace", MANAGED]).await.unwrap();
    for subresource in ["status", "finalize"] {
        let path = format!("/api/v1/namespaces/{MANAGED}/{subresource}");
        let replace = ["replace", "--raw", &path, "-f", "-"];
        let mut weaker = there.clone();
        weaker["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = json!("privileged");
        let mut held = there.clone();
        held["spec"]["finalizers"] = json!(["kubernetes", "example.com/hold"]);
        let mut attempts = vec![weaker];
        if subresource == "finalize" {
            attempts.push(held);
        }
        for object in attempts {
            is_refused(&send(&dave, &replace, &object).await, subresource, POLICY);
        }
    }
}
