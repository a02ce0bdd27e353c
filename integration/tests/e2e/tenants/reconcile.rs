//! The controller: it brings the objects of Tenants to their desired state.
//!
//! Each world has a cluster of its own, because the brokers of two databases would both act on its
//! Tenants.

use std::collections::BTreeSet;
use std::time::Duration;

use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};

use super::{TENANT_BROKER, cells, install, tenant, until_served, with_object};

/// Limit of the time until the broker has carried out a change.
pub(super) const RECONCILE_TIMEOUT: Duration = Duration::from_mins(1);
pub(super) const PRODUCTION: &str = "solar-production";

pub(super) async fn world() -> World {
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    // Otherwise the interval could hide that an event was missed.
    builder.setting("drift_seconds", 3600).start().await.unwrap()
}

/// A Tenant with these owners and roles, and 4 pods for all of its namespaces.
fn solar(owners: &[(&str, &[&str])]) -> String {
    let owners: Vec<Value> = owners
        .iter()
        .map(|(name, roles)| json!({"kind": "User", "name": name, "clusterRoles": roles}))
        .collect();
    let object = json!({
        "apiVersion": TENANT_BROKER.1,
        "kind": "Tenant",
        "metadata": {"name": "solar"},
        "spec": {
            "owners": owners,
            "namespaceOptions": {"quota": 1},
            "resourceQuotas": {"items": [{"hard": {"pods": "4"}}]},
        },
    });
    object.to_string()
}

pub(super) const ALICE: (&str, &[&str]) = ("alice", &["admin", "tenant-namespace-deleter"]);
const BOB: (&str, &[&str]) = ("bob", &["admin"]);
const JOE: (&str, &[&str]) = ("joe", &["view"]);

pub(super) async fn apply(admin: &Kubectl, owners: &[(&str, &[&str])]) {
    with_object(admin, &["apply"], solar(owners)).await.success().unwrap();
}

/// Creates a namespace with the label of the tenant, as an administrator.
pub(super) async fn create_namespace(admin: &Kubectl, name: &str) {
    let labels = json!({
        "tenant-broker.io/tenant": "solar",
        "pod-security.kubernetes.io/enforce": "restricted",
    });
    let object = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels},
    });
    with_object(admin, &["create"], object.to_string()).await.success().unwrap();
}

/// Waits until an object, `null` if there is none, satisfies a condition, and returns it.
pub(super) async fn until(world: &World, args: &[&str], holds: impl Fn(&Value) -> bool) -> Value {
    probe::until(&args.join(" "), RECONCILE_TIMEOUT, || async {
        let object = crate::object(world, args).await?.unwrap_or_default();
        let is_so = holds(&object);
        Ok(if is_so { Probe::Ready(object) } else { Probe::NotYet(object.to_string()) })
    })
    .await
    .unwrap()
}

pub(super) fn subjects(binding: &Value) -> BTreeSet<&str> {
    let subjects = binding["subjects"].as_array();
    subjects.into_iter().flatten().filter_map(|subject| subject["name"].as_str()).collect()
}

/// Waits until the binding of a role in a namespace has exactly these subjects; none: until it does
/// not exist.
pub(super) async fn until_bound(world: &World, namespace: &str, role: &str, users: &[&str]) {
    let name = format!("tenant-solar-{role}");
    let binding = until(world, &["rolebinding", &name, "-n", namespace], |binding| {
        subjects(binding) == users.iter().copied().collect::<BTreeSet<&str>>()
            && binding.is_null() == users.is_empty()
    })
    .await;
    if !users.is_empty() {
        assert_eq!(binding["roleRef"]["name"], role);
    }
}

/// Waits until the status of the tenant satisfies a condition.
pub(super) async fn until_status(world: &World, holds: impl Fn(&Value) -> bool) {
    until(world, &[TENANT_BROKER.0, "solar"], |tenant| holds(&tenant["status"])).await;
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = status["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == kind)
}

pub(super) fn has_condition(status: &Value, kind: &str) -> bool {
    condition(status, kind).is_some()
}

/// The message of the condition of a type; empty if there is none.
pub(super) fn condition_message<'a>(status: &'a Value, kind: &str) -> &'a str {
    condition(status, kind).and_then(|it| it["message"].as_str()).unwrap_or_default()
}

#[tokio::test]
async fn a_tenant_gets_its_home_and_its_namespaces_their_objects() {
    let world = world().await;
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    apply(&admin, &[ALICE, BOB, JOE]).await;
    let home = until(&world, &["namespace", "tenant-solar"], |home| !home.is_null()).await;
    let labels = &home["metadata"]["labels"];
    assert_eq!(labels["tenant-broker.io/tenant"], "solar");
    assert_eq!(labels["tenant-broker.io/home"], "true");
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");
    until_bound(&world, "tenant-solar", "tenant-owner", &["alice", "bob", "joe"]).await;
    until_status(&world, |status| status["state"] == "Active" && status["size"] == 0).await;

    create_namespace(&admin, PRODUCTION).await;
    until_bound(&world, PRODUCTION, "admin", &["alice", "bob"]).await;
    until_bound(&world, PRODUCTION, "tenant-namespace-deleter", &["alice"]).await;
    until_bound(&world, PRODUCTION, "view", &["joe"]).await;
    // The only namespace has all of the limit.
    until(&world, &["resourcequota", "tenant-quota-0", "-n", PRODUCTION], |quota| {
        quota["spec"]["hard"]["pods"] == "4"
    })
    .await;
    until_status(&world, |status| {
        status["state"] == "Active" && status["namespaces"] == json!([PRODUCTION])
    })
    .await;
    let table = admin.run(["get", TENANT_BROKER.0, "solar"]).await.unwrap().success().unwrap();
    let row = table.stdout.lines().nth(1).unwrap();
    assert_eq!(cells(row)[..4], ["solar", "Active", "1", "1"], "{}", table.stdout);

    changes_by_others_are_undone(&world, &admin).await;
    an_owner_who_is_removed_loses_the_rights(&world, &admin).await;
    an_owner_who_is_replaced_loses_the_rights_although_nobody_may_get_any(&world, &admin).await;
    a_namespace_beyond_the_quota_gives_no_rights(&world, &admin).await;
    a_tenant_that_is_made_again_does_not_inherit_namespaces(&world, &admin).await;
}

async fn changes_by_others_are_undone(world: &World, admin: &Kubectl) {
    let binding = ["delete", "rolebinding", "tenant-solar-view", "-n", PRODUCTION];
    admin.run(binding).await.unwrap().success().unwrap();
    until_bound(world, PRODUCTION, "view", &["joe"]).await;
    let intruder = r#"[{"op":"add","path":"/subjects/-","value":
        {"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"mallory"}}]"#;
    let patch = [
        "patch",
        "rolebinding",
        "tenant-solar-admin",
        "-n",
        PRODUCTION,
        "--type=json",
        "-p",
        intruder,
    ];
    admin.run(patch).await.unwrap().success().unwrap();
    until_bound(world, PRODUCTION, "admin", &["alice", "bob"]).await;
    // A RoleBinding cannot be changed to another role, so the broker has to make it again.
    let replaced = ["delete", "rolebinding", "tenant-solar-view", "-n", PRODUCTION];
    admin.run(replaced).await.unwrap().success().unwrap();
    let other = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "tenant-solar-view", "namespace": PRODUCTION},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin",
        },
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"},
        ],
    });
    // The broker may be faster; then its binding is there already.
    with_object(admin, &["create"], other.to_string()).await;
    until_bound(world, PRODUCTION, "view", &["joe"]).await;
    bindings_under_names_of_the_broker_are_deleted(world, admin).await;
}

/// They do not have the label of the tenant, so that its lists do not have them.
async fn bindings_under_names_of_the_broker_are_deleted(world: &World, admin: &Kubectl) {
    for (namespace, name, role) in [
        (PRODUCTION, "tenant-solar-edit", "edit"),
        ("tenant-solar", "tenant-solar-view", "view"),
        ("tenant-solar", "others", "tenant-owner"),
    ] {
        let clusterrole = format!("--clusterrole={role}");
        let create = ["create", "rolebinding", name, &clusterrole, "--user=mallory"];
        let create = [&create[..], &["-n", namespace]].concat();
        admin.run(create).await.unwrap().success().unwrap();
        until(world, &["rolebinding", name, "-n", namespace], Value::is_null).await;
    }
}

async fn an_owner_who_is_removed_loses_the_rights(world: &World, admin: &Kubectl) {
    apply(admin, &[ALICE]).await;
    until_bound(world, PRODUCTION, "admin", &["alice"]).await;
    until_bound(world, PRODUCTION, "view", &[]).await;
    until_bound(world, "tenant-solar", "tenant-owner", &["alice"]).await;
    until_bound(world, PRODUCTION, "tenant-namespace-deleter", &["alice"]).await;
}

/// Nobody gets rights in a namespace of a weaker Pod Security level. That lasts, and must not keep
/// the rights of people who are no owners any more.
async fn an_owner_who_is_replaced_loses_the_rights_although_nobody_may_get_any(
    world: &World,
    admin: &Kubectl,
) {
    let enforce = |level: &str| {
        let label = format!("pod-security.kubernetes.io/enforce={level}");
        ["label", "namespace", PRODUCTION, "--overwrite", &label].map(str::to_owned)
    };
    apply(admin, &[ALICE, BOB]).await;
    until_bound(world, PRODUCTION, "admin", &["alice", "bob"]).await;
    admin.run(enforce("privileged")).await.unwrap().success().unwrap();
    until_status(world, |status| has_condition(status, "ApplyFailed")).await;
    apply(admin, &[BOB, ("carol", &["admin"])]).await;
    until_bound(world, PRODUCTION, "admin", &["bob"]).await;
    admin.run(enforce("restricted")).await.unwrap().success().unwrap();
    until_bound(world, PRODUCTION, "admin", &["bob", "carol"]).await;
    apply(admin, &[ALICE]).await;
    until_bound(world, PRODUCTION, "admin", &["alice"]).await;
}

async fn a_namespace_beyond_the_quota_gives_no_rights(world: &World, admin: &Kubectl) {
    create_namespace(admin, "solar-second").await;
    until_status(world, |status| {
        status["state"] == "Degraded"
            && status["size"] == 2
            && has_condition(status, "QuotaExceeded")
    })
    .await;
    until_bound(world, "solar-second", "admin", &[]).await;
    // A namespace with the label of the tenant and another name is not its own.
    create_namespace(admin, "lunar-x").await;
    until_status(world, |status| has_condition(status, "NamespaceConflict")).await;
    until_bound(world, "lunar-x", "admin", &[]).await;
    for name in ["solar-second", "lunar-x"] {
        admin.run(["delete", "namespace", name]).await.unwrap().success().unwrap();
    }
    until_status(world, |status| status["state"] == "Active" && status["size"] == 1).await;
}

async fn a_tenant_that_is_made_again_does_not_inherit_namespaces(world: &World, admin: &Kubectl) {
    let before = tenant(admin, TENANT_BROKER, "solar").await;
    let keep = "tenant-broker.io/on-delete=keep-namespaces";
    let keep = ["annotate", TENANT_BROKER.0, "solar", keep];
    admin.run(keep).await.unwrap().success().unwrap();
    super::delete(admin, TENANT_BROKER, "solar").await;
    until_bound(world, PRODUCTION, "admin", &[]).await;
    until_bound(world, "tenant-solar", "tenant-owner", &[]).await;
    let kept = crate::object(world, &["namespace", PRODUCTION]).await.unwrap();
    assert!(kept.is_some(), "the namespace stays");

    apply(admin, &[ALICE]).await;
    until_status(world, |status| status["size"] == 0 && has_condition(status, "NamespaceConflict"))
        .await;
    let again = tenant(admin, TENANT_BROKER, "solar").await;
    assert_ne!(before["metadata"]["uid"], again["metadata"]["uid"]);
    until_bound(world, "tenant-solar", "tenant-owner", &["alice"]).await;
    let inherited = ["rolebinding", "tenant-solar-admin", "-n", PRODUCTION];
    assert_eq!(crate::object(world, &inherited).await.unwrap(), None);
}

#[tokio::test]
async fn the_broker_goes_on_when_the_definition_appears() {
    let world = world().await;
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    world.broker().stop().await.unwrap();
    admin.run(["delete", "crd", TENANT_BROKER.0]).await.unwrap().success().unwrap();
    world.broker().start().await.unwrap();
    probe::until("the line about the definition", RECONCILE_TIMEOUT, || async {
        let log = world.broker().log()?;
        let is_logged = log.contains("the API server does not serve this kind to the broker");
        Ok(if is_logged { Probe::Ready(()) } else { Probe::NotYet(log) })
    })
    .await
    .unwrap();

    install(&world, &["--apply"]).await.success().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    apply(&admin, &[ALICE]).await;
    until_bound(&world, "tenant-solar", "tenant-owner", &["alice"]).await;
    until_status(&world, |status| status["state"] == "Active").await;
}
