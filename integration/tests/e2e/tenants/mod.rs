//! The definitions of the kind `Tenant`: what the API server accepts, fills in, shows and refuses.

mod account;
mod accounts;
mod adoption;
mod api_groups;
mod attacks;
mod attempt;
mod audit_events;
mod bad_input;
mod broker_rights;
mod can_i;
mod cli;
mod cluster;
mod cluster_lists;
mod cluster_roles;
mod cluster_state;
mod creation;
mod deletion;
mod direct_namespaces;
mod doctor;
mod document;
mod drift;
mod exceeded_limits;
mod extremes;
mod fence;
mod gateway;
mod gateway_attacks;
mod gateway_lists;
mod guards;
mod installation;
mod kubectl_versions;
mod lifecycle;
mod longer_names;
mod lost_groups;
mod manifests;
mod membership;
mod node_selector;
mod outages;
mod provider;
mod races;
mod random;
mod reconcile;
mod rest;
mod restored;
mod suspension;
mod user_suspension;
mod weakened_policies;
mod withdrawn_fields;
mod write;

use std::time::Duration;

use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::process::Finished;
use integration::world::World;
use serde_json::{Value, json};

use crate::install::install;
use manifests::MANIFESTS;

/// An API group with Tenants: the name of its resource, and the `apiVersion`.
pub(crate) type Group = (&'static str, &'static str);
pub(crate) const TENANT_BROKER: Group = ("tenants.tenant-broker.io", "tenant-broker.io/v1alpha1");
const CAPSULE: Group = ("tenants.capsule.clastix.io", "capsule.clastix.io/v1beta2");
/// Limit of the time until the API server serves a definition, or no longer has it.
const SERVED_TIMEOUT: Duration = Duration::from_mins(1);

/// Starts a world whose cluster has Tenants in our group.
async fn world() -> World {
    World::builder().installed("tenants.enabled", true).start().await.unwrap()
}

/// Starts a world of its own whose broker is stopped, so that nobody writes a status.
async fn world_without_controller() -> World {
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    let world = builder.start().await.unwrap();
    world.broker().stop().await.unwrap();
    world
}

/// Waits until the API server serves the Tenants of a group.
pub(crate) async fn until_served(admin: &Kubectl, (resource, _): Group) {
    probe::until("the API server to serve Tenants", SERVED_TIMEOUT, || async {
        let listed = admin.run(["get", resource]).await?;
        let is_served = listed.status.success();
        Ok(if is_served { Probe::Ready(()) } else { Probe::NotYet(listed.stderr) })
    })
    .await
    .unwrap();
}

/// Runs `kubectl COMMAND -f -` with an object.
pub(crate) async fn with_object(
    admin: &Kubectl,
    command: &[&str],
    object: impl Into<Vec<u8>>,
) -> Finished {
    let args = command.iter().copied().chain(["-f", "-"]);
    admin.run_with_input(args, object).await.unwrap()
}

/// Runs a kubectl command that has to succeed.
async fn run(admin: &Kubectl, args: &[&str]) {
    admin.run(args).await.unwrap().success().unwrap();
}

/// A Tenant as an administrator reads it.
async fn tenant(admin: &Kubectl, (resource, _): Group, name: &str) -> Value {
    admin.json(["get", resource, name]).await.unwrap()
}

async fn delete(admin: &Kubectl, (resource, _): Group, name: &str) {
    admin.run(["delete", resource, name]).await.unwrap().success().unwrap();
}

/// Cells of a line that kubectl printed; empty ones are left out.
fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[tokio::test]
async fn every_tenant_of_the_document_applies_as_printed() {
    let world = world_without_controller().await;
    let admin = world.admin_kubectl().unwrap();
    install(&world, &["--apply", "--capsule-api"]).await.success().unwrap();
    let server_side = ["apply", "--server-side", "--field-manager=gitops"];
    for group in [CAPSULE, TENANT_BROKER] {
        until_served(&admin, group).await;
        let printed = MANIFESTS.map(|manifest| manifest.replace(CAPSULE.1, group.1));
        for command in [&["apply"][..], &server_side] {
            for manifest in &printed {
                with_object(&admin, command, manifest.as_str()).await.success().unwrap();
            }
            let last = tenant(&admin, group, "solar").await;
            let roles = ["admin", "tenant-namespace-deleter"];
            let alice = json!({"kind": "User", "name": "alice", "clusterRoles": roles});
            let joe = json!({"kind": "User", "name": "joe", "clusterRoles": roles});
            assert_eq!(last["spec"]["owners"], json!([alice, joe]), "{last}");
            assert!(last.get("status").is_none(), "{last}");
            // A tool that applies the same again writes nothing.
            let manifest = printed.last().unwrap().as_str();
            with_object(&admin, command, manifest).await.success().unwrap();
            let again = tenant(&admin, group, "solar").await;
            let version = |tenant: &Value| tenant["metadata"]["resourceVersion"].clone();
            assert_eq!(version(&last), version(&again));
            delete(&admin, group, "solar").await;
        }
    }
}

#[tokio::test]
async fn defaults_and_columns_are_those_of_the_document() {
    let world = world_without_controller().await;
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let object = json!({
        "apiVersion": TENANT_BROKER.1,
        "kind": "Tenant",
        "metadata": {"name": "lunar"},
        "spec": {"owners": [{"kind": "User", "name": "alice"}]},
        // The broker alone writes it, in a subresource.
        "status": {"state": "Active", "size": 7},
    });
    with_object(&admin, &["create"], object.to_string()).await.success().unwrap();
    let created = tenant(&admin, TENANT_BROKER, "lunar").await;
    assert_eq!(
        created["spec"],
        json!({
            "owners": [{
                "kind": "User",
                "name": "alice",
                "clusterRoles": ["admin", "tenant-namespace-deleter"],
            }],
            "bindings": "Own",
            "ingressOptions": {"hostnameCollisionScope": "Disabled"},
            "limitRanges": {},
            "networkPolicies": {},
            "resourceQuotas": {"scope": "Tenant"},
        })
    );
    assert!(created.get("status").is_none(), "{created}");

    let options = json!({"spec": {
        "namespaceOptions": {"quota": 5},
        "nodeSelector": {"pool": "gpu"},
        "networkPolicies": {"items": [{"policyTypes": ["Ingress"]}]},
    }});
    let patch = ["patch", TENANT_BROKER.0, "lunar", "--type=merge", "-p"];
    let options = options.to_string();
    admin.run(patch.iter().copied().chain([&*options])).await.unwrap().success().unwrap();
    let status = r#"{"status":{"state":"Active","size":2,"namespaces":["lunar-a","lunar-b"]}}"#;
    let status = ["--subresource=status", "--type=merge", "-p", status];
    let patch = ["patch", TENANT_BROKER.0, "lunar"];
    admin.run(patch.iter().chain(&status)).await.unwrap().success().unwrap();
    let table = admin.run(["get", TENANT_BROKER.0, "lunar"]).await.unwrap().success().unwrap();
    let lines: Vec<Vec<&str>> = table.stdout.lines().map(cells).collect();
    let columns = ["NAME", "STATE", "NAMESPACE QUOTA", "NAMESPACE COUNT", "NODE SELECTOR", "AGE"];
    assert_eq!(lines[0], columns);
    assert_eq!(lines[1][..5], ["lunar", "Active", "5", "2", r#"{"pool":"gpu"}"#]);
    // A group of fields that is not carried out is kept as it is.
    let kept = tenant(&admin, TENANT_BROKER, "lunar").await;
    let policies = json!({"items": [{"policyTypes": ["Ingress"]}]});
    assert_eq!(kept["spec"]["networkPolicies"], policies);
    assert_eq!(kept["spec"]["namespaceOptions"], json!({"quota": 5, "forceTenantPrefix": true}));
    // A Tenant with namespaces is not deleted.
    let none = ["--subresource=status", "--type=merge", "-p", r#"{"status":{"size":0}}"#];
    admin.run(patch.iter().chain(&none)).await.unwrap().success().unwrap();
    delete(&admin, TENANT_BROKER, "lunar").await;
}

#[tokio::test]
async fn two_managers_have_owners_of_their_own() {
    let world = world_without_controller().await;
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    for (manager, owner) in [("gitops", "alice"), ("portal", "bob"), ("portal", "carol")] {
        let object = json!({
            "apiVersion": TENANT_BROKER.1,
            "kind": "Tenant",
            "metadata": {"name": "shared"},
            "spec": {"owners": [{"kind": "User", "name": owner}]},
        });
        let manager = format!("--field-manager={manager}");
        let command = ["apply", "--server-side", &manager];
        with_object(&admin, &command, object.to_string()).await.success().unwrap();
    }
    let shared = tenant(&admin, TENANT_BROKER, "shared").await;
    let owners = shared["spec"]["owners"].as_array().unwrap();
    let mut names: Vec<&str> = owners.iter().map(|owner| owner["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["alice", "carol"]);
    delete(&admin, TENANT_BROKER, "shared").await;
}
