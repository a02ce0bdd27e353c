//! `tenant-guard-namespaces` with tenants: labels, owners, finalizers, annotations and deletions.

use integration::process::Finished;
use serde_json::{Value, json};

use crate::tenants::cluster::{
    CREATE, TenantCluster, are_accepted, are_refused, is_refused, namespace, role_binding, send,
    until_allowed, user,
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
            (&label(MANAGED, "control-plane=x"), "tenants.protected_labels"),
            (&annotate(MANAGED, NODES), POLICY),
            (&annotate(MANAGED, "net.beta.kubernetes.io/network-policy=x"), POLICY),
        ],
    )
    .await;
    are_accepted(
        &dave,
        &[
            &label(PLAIN, "team=x"),
            &label(PLAIN, "control-plane=x"),
            &label(PLAIN, "pod-security.kubernetes.io/enforce=baseline"),
            &annotate(PLAIN, NODES),
            &label(MANAGED, "team=x"),
            &annotate(MANAGED, "example.com/owner=x"),
            &annotate(MANAGED, "kubectl.kubernetes.io/last-applied-configuration={}"),
        ],
    )
    .await;
    owners_and_finalizers_stay(cluster).await;
    metadata_stays_small(cluster).await;
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

/// Dave may delete every namespace, and alice this one, as the owners of its tenant.
pub(super) async fn a_suspended_namespace_is_not_deleted(cluster: &TenantCluster) {
    const HELD: &str = "solar-held";
    let (alice, dave) = (cluster.person("alice", None), cluster.person("dave", None));
    cluster.namespace("solar", HELD, &json!({}), "alice").await;
    let role = "tenant-namespace-deleter";
    let deleter = role_binding(HELD, "tenant-solar-deleter", role, &json!([user("alice")]));
    cluster.make(&deleter).await;
    for person in [&alice, &dave] {
        let delete = json!({"namespace": HELD, "verb": "delete", "resource": "namespaces",
            "name": HELD});
        until_allowed(person, &delete).await;
    }
    let delete = ["delete", "namespace", HELD, "--dry-run=server", "--wait=false"];
    let raw = format!("/api/v1/namespaces/{HELD}?dryRun=All");
    let raw = ["delete", "--raw", &raw];
    for person in [&alice, &dave] {
        are_accepted(person, &[&delete, &raw]).await;
    }

    // The value of the label does not matter.
    for value in ["true", "false"] {
        let label = format!("tenant-broker.io/suspended={value}");
        cluster.as_admin(&["label", "namespace", HELD, "--overwrite", &label]).await;
        let text = "administrators alone delete the home of a tenant, and namespaces that are \
                    suspended";
        for person in [&alice, &dave] {
            are_refused(person, &[(&delete, text), (&raw, text)]).await;
        }
        let remove = ["label", "namespace", HELD, "tenant-broker.io/suspended-"];
        are_refused(&dave, &[(&remove, "labels tenant-broker.io/*")]).await;
    }
    cluster.as_admin(&["label", "namespace", HELD, "tenant-broker.io/suspended-"]).await;
    for person in [&alice, &dave] {
        are_accepted(person, &[&delete, &raw]).await;
    }
}

/// Replaces a namespace, after a change of what is there, as a dry run.
async fn try_with(cluster: &TenantCluster, name: &str, change: impl Fn(&mut Value)) -> Finished {
    let dave = cluster.person("dave", None);
    let mut object: Value = cluster.admin.json(["get", "namespace", name]).await.unwrap();
    object["metadata"].as_object_mut().unwrap().remove("managedFields");
    change(&mut object["metadata"]);
    let path = format!("/api/v1/namespaces/{name}?dryRun=All");
    send(&dave, &["replace", "--raw", &path, "-f", "-"], &object).await
}

/// Fills a map of the metadata up to so many entries.
fn fill(map: &mut Value, count: usize) {
    if map.is_null() {
        *map = json!({});
    }
    let entries = map.as_object_mut().unwrap();
    for number in 0..count {
        if entries.len() < count {
            entries.insert(format!("example.com/{number}"), json!("x"));
        }
    }
    assert_eq!(entries.len(), count);
}

/// Each label and annotation costs the API server time when the broker suspends the namespace, and a
/// patch that costs too much is refused.
async fn metadata_stays_small(cluster: &TenantCluster) {
    const TEXT: &str = "a managed namespace has at most 64 labels and 64 annotations";
    for (field, count, is_accepted) in [
        ("labels", 64, true),
        ("labels", 65, false),
        ("labels", 30_000, false),
        ("annotations", 64, true),
        ("annotations", 65, false),
        ("annotations", 9_000, false),
    ] {
        let tried = try_with(cluster, MANAGED, |it| fill(&mut it[field], count)).await;
        let what = format!("{count} {field}");
        if is_accepted {
            assert!(tried.status.success(), "{what}: {}", tried.stderr);
        } else {
            is_refused(&tried, &what, TEXT);
        }
        // Other namespaces are no concern of the broker's.
        if count < 100 {
            let plain = try_with(cluster, PLAIN, |it| fill(&mut it[field], count)).await;
            assert!(plain.status.success(), "{what}: {}", plain.stderr);
        }
    }
    let long = |length: usize| json!({"note": "x".repeat(length)});
    let tried = try_with(cluster, MANAGED, |it| it["annotations"] = long(70_000)).await;
    is_refused(&tried, "a long annotation", TEXT);
    what_an_administrator_made_large_may_change(cluster, TEXT).await;
}

async fn what_an_administrator_made_large_may_change(cluster: &TenantCluster, text: &str) {
    const LARGE: &str = "solar-large";
    let mut object = namespace(
        LARGE,
        &json!({"tenant-broker.io/tenant": "solar", "tenant-broker.io/tier": "basic",
            "pod-security.kubernetes.io/enforce": "baseline"}),
    );
    fill(&mut object["metadata"]["labels"], 200);
    object["metadata"]["annotations"] = json!({"note": "x".repeat(70_000), "other": "x"});
    cluster.make(&object).await;
    let change = async |change: &dyn Fn(&mut Value)| try_with(cluster, LARGE, change).await;
    let accepted: [&dyn Fn(&mut Value); 4] = [
        &|it| it["labels"]["example.com/0"] = json!("y"),
        &|it| drop(it["labels"].as_object_mut().unwrap().remove("example.com/0")),
        &|it| it["annotations"]["other"] = json!("y"),
        &|it| it["annotations"] = json!({"note": "x".repeat(66_000), "new": "x"}),
    ];
    for accepted in accepted {
        change(accepted).await.success().unwrap();
    }
    let refused: [&dyn Fn(&mut Value); 3] = [
        &|it| it["labels"]["more"] = json!("y"),
        &|it| it["annotations"]["other"] = json!("xx"),
        &|it| it["annotations"]["more"] = json!("y"),
    ];
    for refused in refused {
        is_refused(&change(refused).await, "growth", text);
    }
    // The other rules hold for large metadata, too.
    let level = "pod-security.kubernetes.io/enforce";
    let weaker = change(&|it| it["labels"][level] = json!("privileged")).await;
    is_refused(&weaker, "weaker Pod Security", "the Pod Security of a managed namespace");
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
