//! Attacks on namespaces themselves: to take one over, to move it, to leave a tenant with it, metadata
//! that decides something, and names that belong to others.

use http::Method;
use serde_json::{Value, json};
use tenant_shared::{BINDINGS_LABEL, HOME_LABEL, POD_SECURITY, TENANT_LABEL, WORKSPACE_LABEL};

use super::attack::{Attack, Right};
use super::{OTHER, OWN, PLAIN};
use crate::tenants::attempt::{
    Attempt, apply, attempt, labels, namespace, patch, patch_as, post, put,
};

const NODE_SELECTOR: &str = "scheduler.alpha.kubernetes.io/node-selector";
const POLICY: &[&str] = &["tenant-guard-namespaces"];
const CREATION: &[&str] = &["tenant-guard-"];
/// The policy lets owners pass, and then the API server refuses the name.
const EXISTS: &[&str] = &["already exists", "tenant-guard-creation"];
/// The gateway takes server-side apply of a namespace that is not the caller's for its creation.
pub(super) const NO_CREATION: &[&str] = &["is forbidden", "is invalid"];

fn path_of(name: &str) -> String {
    format!("api/v1/namespaces/{name}")
}

fn write(attempt: Attempt) -> Attack {
    Attack::new(attempt, Right::WriteEverywhere, POLICY)
}

/// References to an owner that does not exist.
fn owners() -> Value {
    json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "c",
        "uid": "00000000-0000-4000-8000-000000000000"}])
}

/// Every way to write the metadata of a managed namespace, which the API server has like this.
pub(super) fn changes(live: &Value) -> Vec<Attack> {
    let name = live["metadata"]["name"].as_str().unwrap();
    let is_home = name.starts_with("tenant-");
    let is_solars = live["metadata"]["labels"][TENANT_LABEL] == "solar";
    let other = if is_solars { "lunar" } else { "solar" };
    let mut attacks = patches(name, other);
    let mut moved = live.clone();
    moved["metadata"]["labels"][TENANT_LABEL] = json!(other);
    let mut weakened = live.clone();
    weakened["metadata"]["labels"][POD_SECURITY] = json!("privileged");
    let mut held = live.clone();
    held["spec"]["finalizers"] = json!(["kubernetes", "example.com/hold"]);
    let path = path_of(name);
    attacks.extend([
        write(put(&path, moved)),
        write(put(format!("{path}/status"), weakened.clone())),
        write(put(format!("{path}/finalize"), weakened)),
        write(put(format!("{path}/finalize"), held)),
    ]);
    // The broker sets both for a Tenant, but not of a home.
    for annotation in [NODE_SELECTOR, "tenant-broker.io/added-keys"] {
        let annotated = json!({"metadata": {"annotations": {annotation: "pool=a"}}});
        let attack = write(patch(&path, annotated));
        attacks.push(if is_home { attack } else { attack.of_broker() });
    }
    if !is_home {
        let open = patch(&path, labels(&json!({BINDINGS_LABEL: "any"})));
        attacks.push(write(open).of_broker());
    }
    attacks
}

/// Changes with every kind of patch.
fn patches(name: &str, other: &str) -> Vec<Attack> {
    let path = path_of(name);
    let moved = json!({TENANT_LABEL: other});
    let at = format!("/metadata/labels/{}", TENANT_LABEL.replace('/', "~1"));
    let replaced = json!([{"op": "replace", "path": at, "value": other}]);
    let applied = namespace(name, &json!({"labels": moved}));
    let force = format!("{path}?fieldManager=attacker&force=true");
    let metadata = |metadata: Value| patch(&path, json!({"metadata": metadata}));
    vec![
        write(patch(&path, labels(&moved))),
        write(patch_as("application/json-patch+json", &path, replaced)),
        write(patch_as("application/strategic-merge-patch+json", &path, labels(&moved))),
        write(apply(force, applied)).at_gateway(NO_CREATION),
        write(metadata(json!({"labels": {TENANT_LABEL: null}}))),
        write(metadata(json!({"labels": {HOME_LABEL: "false"}}))),
        write(metadata(json!({"labels": {WORKSPACE_LABEL: "x"}}))),
        write(metadata(json!({"labels": {POD_SECURITY: "privileged"}}))),
        write(metadata(json!({"labels": {"pod-security.kubernetes.io/enforce-version": "v1.0"}}))),
        write(metadata(json!({"finalizers": ["example.com/hold"]}))),
        write(metadata(json!({"ownerReferences": owners()}))),
        write(patch(format!("{path}/status"), labels(&moved))),
    ]
}

/// A namespace of nobody becomes that of a tenant or of a person, or the home of a tenant.
pub(super) fn adoptions() -> Vec<Attack> {
    let mut attacks = Vec::new();
    for name in [PLAIN, "kube-system"] {
        for (label, value) in
            [(TENANT_LABEL, "solar"), (HOME_LABEL, "true"), (WORKSPACE_LABEL, "x")]
        {
            attacks.push(write(patch(path_of(name), labels(&json!({label: value})))));
        }
    }
    attacks
}

pub(super) fn deletions() -> Vec<Attack> {
    let delete = |name: &str| attempt(Method::DELETE, path_of(name));
    let all = attempt(Method::DELETE, "api/v1/namespaces");
    vec![
        write(delete("tenant-solar")),
        write(delete("tenant-lunar")),
        // Those who may delete every namespace may delete these.
        Attack::new(delete(OTHER), Right::WriteEverywhere, &[]),
        Attack::new(delete(PLAIN), Right::WriteEverywhere, &[]),
        Attack::new(delete(OWN), Right::DeleteNamespace, &[]),
        Attack::new(all, Right::ClusterAdmin, &[]),
    ]
}

/// New namespaces that belong to others, squat on their names, or have metadata that decides
/// something. What the gateway refuses is tested in `gateway_attacks`.
pub(super) fn creations() -> Vec<Attack> {
    let create = |name: &str, metadata: Value| {
        let attempt = post("api/v1/namespaces", namespace(name, &metadata));
        Attack::new(attempt, Right::CreateNamespace, CREATION).direct_only()
    };
    let labelled = |label: &str, value: &str| json!({"labels": {label: value}});
    let of_tenant =
        |tenant: &str| json!({"labels": {TENANT_LABEL: tenant, POD_SECURITY: "baseline"}});
    let exists = post("api/v1/namespaces", namespace(OWN, &of_tenant("solar")));
    vec![
        Attack::new(exists, Right::CreateNamespace, EXISTS).direct_only(),
        create(OTHER, of_tenant("lunar")),
        create("lunar-x", json!({})),
        create("lunar-x", of_tenant("lunar")),
        create("lunar-x", of_tenant("solar")),
        create("solarium-x", json!({})),
        create("x", json!({})),
        create("kube-x", json!({})),
        create("tenant-stellar", json!({})),
        create("tenant-stellar", of_tenant("stellar")),
        create("solar-x", labelled(HOME_LABEL, "true")),
        create("solar-x", labelled(BINDINGS_LABEL, "any")),
        create("solar-x", labelled(WORKSPACE_LABEL, "x")),
        create("solar-x", labelled(POD_SECURITY, "privileged")),
        create("solar-x", json!({"annotations": {NODE_SELECTOR: "pool=a"}})),
        create("solar-x", json!({"finalizers": ["example.com/hold"]})),
        create("solar-x", json!({"ownerReferences": owners()})),
    ]
}

/// Reads of all namespaces, and of one of others. The gateway answers lists with those of the caller.
pub(super) fn reads() -> Vec<Attack> {
    let read = |path: String| {
        Attack::new(attempt(Method::GET, path), Right::ClusterAdmin, &[]).of_broker()
    };
    vec![
        read("api/v1/namespaces".to_owned()).direct_only(),
        read("api/v1/namespaces?watch=1".to_owned()).direct_only(),
        read(format!("api/v1/namespaces?labelSelector={TENANT_LABEL}%3Dsolar")).direct_only(),
        read("api/v1/watch/namespaces".to_owned()),
        read(path_of(OTHER)),
        read(path_of("tenant-lunar")),
    ]
}
