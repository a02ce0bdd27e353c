//! Tenants that change while the broker does not see it: it cannot reach the API server, the API
//! server no longer has the events that its watches missed (410), or the API server stops during a
//! run. The end is the same as for a tenant that changes while the broker watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::Method;
use integration::api::Api;
use integration::fault_proxy::{Fault, RecordedRequest, Rule};
use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::{World, WorldBuilder};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::cluster::{namespace, user};
use super::reconcile::{
    PRODUCTION, RECONCILE_TIMEOUT, create_namespace, subjects, until, until_bound, until_status,
};
use super::rest::until_active;
use super::{TENANT_BROKER, run, until_served, with_object};
use crate::until_logged;

const ALICE: &str = "alice@example.com";
const BOB: &str = "bob@example.com";
const CAROL: &str = "carol@example.com";
/// The tenant that changes while the broker watches.
const REFERENCE: &str = "solar";
/// The tenant that changes while the broker cannot reach the API server.
const UNREACHABLE: &str = "lunar";
/// The tenant whose changes are in a gap of the watches.
const MISSED: &str = "terra";
/// The collections that the broker watches for tenants.
const WATCHED: [&str; 5] = [
    "/apis/tenant-broker.io/v1alpha1/tenants",
    "/api/v1/namespaces",
    "/api/v1/limitranges",
    "/api/v1/resourcequotas",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
];

/// The broker compares all tenants only after its watches have listed all objects.
fn builder() -> WorldBuilder {
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    builder.fault_proxy().setting("drift_seconds", 3600)
}

fn tenant(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": TENANT_BROKER.1, "kind": "Tenant", "metadata": {"name": name}, "spec": spec,
    })
}

fn owner(name: &str, roles: &[&str]) -> Value {
    json!({"kind": "User", "name": name, "clusterRoles": roles})
}

/// A Tenant without namespaces.
fn empty() -> Value {
    json!({"owners": [owner(ALICE, &["admin"])]})
}

/// A Tenant with these owners besides alice, and one of each part that becomes an object.
fn spec(other: &str, role_of_joe: &str, team: &str, pods: &str) -> Value {
    json!({
        "owners": [owner(ALICE, &["admin", "tenant-namespace-deleter"]), owner(other, &["admin"])],
        "additionalRoleBindings": [{"clusterRoleName": role_of_joe, "subjects": [user("joe")]}],
        "namespaceOptions": {"quota": 9, "additionalMetadata": {"labels": {"team": team}}},
        "resourceQuotas": {"scope": "Namespace", "items": [{"hard": {"pods": pods}}]},
    })
}

fn spec_before() -> Value {
    let limits = json!([{"type": "Container", "default": {"memory": "64Mi"}}]);
    let mut spec = spec(BOB, "view", "sun", "4");
    spec["limitRanges"] = json!({"items": [{"limits": limits}]});
    spec
}

fn spec_after() -> Value {
    spec(CAROL, "edit", "moon", "2")
}

async fn write(admin: &Kubectl, command: &str, objects: &[Value]) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    with_object(admin, &[command], list.to_string()).await.success().unwrap();
}

/// A namespace of a tenant, as an administrator creates it.
fn labelled(tenant: &str, part: &str) -> Value {
    let labels = json!({
        "tenant-broker.io/tenant": tenant,
        "pod-security.kubernetes.io/enforce": "restricted",
    });
    namespace(&format!("{tenant}-{part}"), &labels)
}

/// Creates the tenants alike, with members, namespaces and a further Tenant each, and waits until
/// everything is carried out.
async fn create_tenants(world: &World, admin: &Kubectl, members: &[Api; 2]) {
    const PARTS: [&str; 4] = ["production", "staging", "old", "released"];
    let names = [REFERENCE, UNREACHABLE, MISSED];
    let tenants = names
        .iter()
        .flat_map(|name| [tenant(name, &spec_before()), tenant(&format!("gone-{name}"), &empty())]);
    write(admin, "apply", &tenants.collect::<Vec<_>>()).await;
    for name in names {
        for member in members {
            until_active(member, name).await;
            member.join_tenant(name).await.unwrap();
        }
    }
    let namespaces = names.iter().flat_map(|name| PARTS.map(|part| labelled(name, part)));
    write(admin, "create", &namespaces.collect::<Vec<_>>()).await;
    for name in names {
        for part in PARTS {
            let (binding, place) = (format!("tenant-{name}-admin"), format!("{name}-{part}"));
            let args = ["rolebinding", &binding, "-n", &place];
            // Two owners, and the ServiceAccount of each.
            until(world, &args, |binding| subjects(binding).len() == 4).await;
        }
        until(world, &[TENANT_BROKER.0, name], |tenant| {
            tenant["status"]["state"] == "Active" && tenant["status"]["size"] == PARTS.len()
        })
        .await;
    }
}

/// Changes the Tenant, and creates another one.
async fn change_tenants(admin: &Kubectl, name: &str) {
    let changed = [tenant(name, &spec_after()), tenant(&format!("new-{name}"), &empty())];
    write(admin, "apply", &changed).await;
}

/// Creates, changes and deletes objects of each kind that the broker watches.
async fn change_objects(admin: &Kubectl, name: &str) {
    let [production, staging] = ["production", "staging"].map(|part| format!("{name}-{part}"));
    let old = format!("{name}-old");
    run(admin, &["delete", "namespace", &old, "--wait=false"]).await;
    run(admin, &["delete", TENANT_BROKER.0, &format!("gone-{name}")]).await;
    write(admin, "create", &[labelled(name, "new")]).await;
    let released = format!("{name}-released");
    run(admin, &["label", "namespace", &released, "tenant-broker.io/tenant-"]).await;
    let binding = format!("tenant-{name}-admin");
    run(admin, &["delete", "rolebinding", &binding, "-n", &production]).await;
    let binding = format!("tenant-{name}-tenant-namespace-deleter");
    let intruder = json!([{"op": "add", "path": "/subjects/-", "value": user("mallory")}]);
    let patch = ["patch", "rolebinding", &binding, "-n", &staging, "--type=json", "-p"];
    run(admin, &[&patch[..], &[&*intruder.to_string()]].concat()).await;
    run(admin, &["delete", "resourcequota", "tenant-quota-0", "-n", &staging]).await;
}

/// The objects of a tenant and its further Tenants, without what differs from one tenant to another.
async fn state(world: &World, tenant: &str) -> anyhow::Result<BTreeSet<String>> {
    let kinds = "namespaces,rolebindings,resourcequotas,limitranges,tenants.tenant-broker.io";
    let mut state = BTreeSet::new();
    for object in crate::object_list(world, &[kinds, "--all-namespaces"]).await? {
        let (metadata, status) = (&object["metadata"], &object["status"]);
        let place = format!("{} {}/{}", object["kind"], metadata["namespace"], metadata["name"]);
        // What stays in a released namespace depends on the order of the changes.
        let is_released = place.contains("-released") && object["kind"] != "RoleBinding";
        if !place.contains(tenant) || is_released {
            continue;
        }
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let conditions = conditions
            .map(|it| json!([it["type"], it["status"], it["reason"], it["message"]]))
            .collect::<Vec<Value>>();
        let kept = json!({
            "labels": metadata["labels"],
            "annotations": metadata["annotations"],
            "role": object["roleRef"],
            "subjects": object["subjects"],
            "spec": object["spec"],
            "conditions": conditions,
            "tenant": [status["state"], status["size"], status["namespaces"]],
        });
        state.insert(format!("{place}: {kept}").replace(tenant, "NAME"));
    }
    Ok(state)
}

/// Waits until a tenant is in the state of the one that changed while the broker watched.
async fn until_as_reference(world: &World, tenant: &str) {
    probe::until("the state of the reference", RECONCILE_TIMEOUT, || async {
        let (expected, found) = (state(world, REFERENCE).await?, state(world, tenant).await?);
        let differing: Vec<&String> = expected.symmetric_difference(&found).collect();
        Ok(if differing.is_empty() {
            Probe::Ready(())
        } else {
            Probe::NotYet(format!("{differing:#?}"))
        })
    })
    .await
    .unwrap();
}

async fn differs_from_reference(world: &World, tenant: &str) {
    let (expected, found) = (state(world, REFERENCE).await, state(world, tenant).await);
    assert_ne!(expected.unwrap(), found.unwrap(), "the broker saw the changes of {tenant}");
}

fn is_watch(request: &RecordedRequest) -> bool {
    request.is_as_broker() && request.query.contains("watch=true")
}

/// Waits until the broker has requested each of its watches since this number of requests, and
/// returns their queries by path.
async fn until_watched(world: &World, since: usize) -> BTreeMap<String, String> {
    let proxy = world.proxy().unwrap();
    probe::until("the watches", RECONCILE_TIMEOUT, || async {
        let watches = proxy.requests().into_iter().skip(since).filter(is_watch);
        let watches: BTreeMap<_, _> = watches.map(|it| (it.path, it.query)).collect();
        let are_all = WATCHED.iter().all(|path| watches.contains_key(*path));
        Ok(if are_all { Probe::Ready(watches) } else { Probe::NotYet(format!("{watches:?}")) })
    })
    .await
    .unwrap()
}

/// Holds requests of the broker until the sender is dropped. The rule counts them.
fn hold(world: &World, when: fn(&RecordedRequest) -> bool) -> (Arc<Rule>, watch::Sender<()>) {
    let (release, released) = watch::channel(());
    let wait = move |_| {
        let mut released = released.clone();
        async move { while released.changed().await.is_ok() {} }
    };
    (world.proxy().unwrap().add(Rule::new(Fault::before(wait)).when(when)), release)
}

async fn until_fired(rule: &Rule) {
    probe::until("a request", RECONCILE_TIMEOUT, || async {
        let has_fired = rule.fired() > 0;
        Ok(if has_fired { Probe::Ready(()) } else { Probe::NotYet(format!("{rule:?}")) })
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn tenants_that_change_unseen_end_in_the_same_state() {
    // Otherwise the API server would have the events that etcd no longer has.
    let world = builder().apiserver_flag("--watch-cache=false").start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let alice = world.person("alice").await.unwrap();
    let bob = world.person("bob").await.unwrap();
    let members = [alice.api().await.unwrap(), bob.api().await.unwrap()];
    create_tenants(&world, &admin, &members).await;
    change_tenants(&admin, REFERENCE).await;
    change_objects(&admin, REFERENCE).await;
    everything_is_carried_out(&world, &format!("member-{}", alice.id())).await;
    changes_while_the_api_server_is_unreachable(&world, &admin).await;
    changes_in_a_gap_of_the_watches(&world, &admin).await;
}

/// What the other tenants are compared with.
async fn everything_is_carried_out(world: &World, account: &str) {
    for part in ["production", "staging", "new"] {
        let namespace = format!("solar-{part}");
        until_bound(world, &namespace, "admin", &[ALICE, CAROL, account]).await;
        until_bound(world, &namespace, "tenant-namespace-deleter", &[ALICE, account]).await;
        until_bound(world, &namespace, "edit", &["joe"]).await;
        until_bound(world, &namespace, "view", &[]).await;
        let quota = ["resourcequota", "tenant-quota-0", "-n", &namespace];
        until(world, &quota, |quota| quota["spec"]["hard"]["pods"] == "2").await;
        until(world, &["limitrange", "tenant-limits-0", "-n", &namespace], Value::is_null).await;
    }
    until_bound(world, "solar-released", "admin", &[]).await;
    until(world, &["namespace", "solar-old"], Value::is_null).await;
    for (tenant, is_bound) in [("gone-solar", false), ("new-solar", true)] {
        let (binding, home) = (format!("tenant-{tenant}-tenant-owner"), format!("tenant-{tenant}"));
        let args = ["rolebinding", &binding, "-n", &home];
        until(world, &args, |binding| binding.is_null() != is_bound).await;
    }
    until_status(world, |status| {
        status["state"] == "Active"
            && status["namespaces"] == json!(["solar-new", "solar-production", "solar-staging"])
    })
    .await;
}

/// The connection is lost between two writes of a run. Everything else changes meanwhile.
async fn changes_while_the_api_server_is_unreachable(world: &World, admin: &Kubectl) {
    let proxy = world.proxy().unwrap();
    let is_write = |request: &RecordedRequest| {
        request.is_as_broker()
            && request.method != Method::GET
            && request.path.contains("/rolebindings")
    };
    let cut = proxy.add(Rule::new(Fault::CutBefore).when(is_write).within(2..=usize::MAX));
    change_tenants(admin, UNREACHABLE).await;
    until_fired(&cut).await;
    proxy.down().await;
    proxy.clear();
    change_objects(admin, UNREACHABLE).await;
    until_logged(world.broker(), "watch for tenants failed").await;
    differs_from_reference(world, UNREACHABLE).await;
    let since = proxy.requests().len();
    proxy.up().await.unwrap();
    until_as_reference(world, UNREACHABLE).await;
    until_watched(world, since).await;
}

/// The broker continues its watches from a version of which etcd has no history any more.
async fn changes_in_a_gap_of_the_watches(world: &World, admin: &Kubectl) {
    let proxy = world.proxy().unwrap();
    let since = proxy.requests().len();
    let (_, release) = hold(world, is_watch);
    proxy.cut();
    let held = until_watched(world, since).await;
    change_tenants(admin, MISSED).await;
    change_objects(admin, MISSED).await;
    let old = format!("{MISSED}-old");
    until(world, &["namespace", &old], Value::is_null).await;
    world.cluster().compact_etcd().await.unwrap();
    for (path, query) in &held {
        let watch = format!("{path}?{}", query.trim_start_matches('&'));
        let answer = admin.run(["get", "--raw", &watch]).await.unwrap().success().unwrap();
        assert!(answer.stdout.contains("\"code\":410"), "{watch}: {answer:?}");
    }
    differs_from_reference(world, MISSED).await;
    drop(release);
    until_as_reference(world, MISSED).await;
}

#[tokio::test]
async fn a_run_during_which_the_api_server_stops_is_repeated() {
    let world = builder().start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let of = |name: &str| tenant(REFERENCE, &json!({"owners": [owner(name, &["admin"])]}));
    write(&admin, "apply", &[of(ALICE)]).await;
    create_namespace(&admin, PRODUCTION).await;
    until_bound(&world, PRODUCTION, "admin", &[ALICE]).await;
    until_status(&world, |it| it["state"] == "Active" && it["size"] == 1).await;

    // A run reads the Tenant first.
    let (reads, release) = hold(&world, |request| {
        request.is_as_broker()
            && request.method == Method::GET
            && request.path.ends_with("/tenants/solar")
    });
    write(&admin, "apply", &[of(CAROL)]).await;
    until_fired(&reads).await;
    let [api_server, _, etcd] = world.cluster().processes();
    for process in [api_server, etcd] {
        process.signal(Signal::STOP).unwrap();
    }
    drop(release);
    until_logged(world.broker(), "reconciling a tenant failed").await;
    for process in [etcd, api_server] {
        process.signal(Signal::CONT).unwrap();
    }
    for (namespace, role) in [(PRODUCTION, "admin"), ("tenant-solar", "tenant-owner")] {
        until_bound(&world, namespace, role, &[CAROL]).await;
    }
    until_status(&world, |it| it["state"] == "Active" && it["size"] == 1).await;
}
