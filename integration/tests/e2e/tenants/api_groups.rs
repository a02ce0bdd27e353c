//! Two Tenants of one name, one in each API group: the older one counts, and the other one takes its
//! place once it is gone.

use http::StatusCode;
use integration::api::Api;
use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};
use tenant_shared::Code;

use super::cluster::user;
use super::reconcile::{
    PRODUCTION, RECONCILE_TIMEOUT, condition_message, create_namespace, has_condition, subjects,
    until, until_bound, world,
};
use super::rest::SOLAR;
use super::{CAPSULE, Group, TENANT_BROKER, delete, tenant, until_served, with_object};
use crate::install::install;
use crate::refused;

const ALICE: &str = "alice@example.com";
const BOB: &str = "bob@example.com";
const HOME: &str = "tenant-solar";

/// The Tenant `solar` in a group, with an owner, and a viewer if there is one.
fn solar((_, api_version): Group, owner: &str, viewer: Option<&str>) -> String {
    let view = |name: &str| json!({"clusterRoleName": "view", "subjects": [user(name)]});
    let bindings: Vec<Value> = viewer.into_iter().map(view).collect();
    let object = json!({
        "apiVersion": api_version,
        "kind": "Tenant",
        "metadata": {"name": SOLAR},
        "spec": {
            "owners": [{"kind": "User", "name": owner, "clusterRoles": ["admin"]}],
            "additionalRoleBindings": bindings,
        },
    });
    object.to_string()
}

/// Waits until the status of a Tenant is about its specification and satisfies a condition.
async fn until_status(world: &World, (resource, _): Group, holds: impl Fn(&Value) -> bool) {
    until(world, &[resource, SOLAR], |tenant| {
        let status = &tenant["status"];
        status["observedGeneration"] == tenant["metadata"]["generation"] && holds(status)
    })
    .await;
}

/// Waits until a Tenant says that one of the other group has its name.
async fn until_name_taken(world: &World, group: Group, other: &str) {
    until_status(world, group, |status| {
        status["state"] == "Degraded"
            && status["size"] == 0
            && condition_message(status, "NameTaken").contains(other)
    })
    .await;
}

/// Creates our Tenant in a later second than another one: creation times have no parts of seconds.
async fn create_younger(admin: &Kubectl, older: &Value) {
    let created_at = |tenant: &Value| tenant["metadata"]["creationTimestamp"].clone();
    probe::until("a later second", RECONCILE_TIMEOUT, || async {
        with_object(admin, &["create"], solar(TENANT_BROKER, BOB, None)).await.success()?;
        let younger = tenant(admin, TENANT_BROKER, SOLAR).await;
        if created_at(&younger) != created_at(older) {
            return Ok(Probe::Ready(()));
        }
        delete(admin, TENANT_BROKER, SOLAR).await;
        Ok(Probe::NotYet(younger.to_string()))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn of_two_tenants_of_one_name_the_older_one_counts() {
    let world = world().await;
    let admin = world.admin_kubectl().unwrap();
    let alice = world.person("alice").await.unwrap().api().await.unwrap();
    let bob = world.person("bob").await.unwrap().api().await.unwrap();
    world.broker().stop().await.unwrap();
    install(&world, &["--apply", "--capsule-api"]).await.success().unwrap();
    for group in [TENANT_BROKER, CAPSULE] {
        until_served(&admin, group).await;
    }
    with_object(&admin, &["create"], solar(CAPSULE, ALICE, None)).await.success().unwrap();
    let older = tenant(&admin, CAPSULE, SOLAR).await;
    create_younger(&admin, &older).await;
    world.broker().start().await.unwrap();

    only_the_older_one_is_carried_out(&world, &admin, (&alice, &bob)).await;
    a_change_of_the_other_one_has_no_effect(&world, &admin).await;
    the_other_one_takes_its_place(&world, &admin, (&alice, &bob)).await;
    a_later_one_of_the_first_group_is_the_younger_one(&world, &admin).await;
}

async fn only_the_older_one_is_carried_out(
    world: &World,
    admin: &Kubectl,
    (alice, bob): (&Api, &Api),
) {
    until_status(world, CAPSULE, |status| status["state"] == "Active").await;
    until_name_taken(world, TENANT_BROKER, "capsule.clastix.io").await;
    create_namespace(admin, PRODUCTION).await;
    until_bound(world, PRODUCTION, "admin", &[ALICE]).await;
    until_bound(world, HOME, "tenant-owner", &[ALICE]).await;
    until_status(world, CAPSULE, |status| status["size"] == 1).await;
    let shown = alice.tenant(SOLAR).await.unwrap();
    assert_eq!((shown.api_group.as_str(), shown.is_owner), ("capsule.clastix.io", true));
    // The owner of the other one owns nothing, and does not see the tenant.
    assert!(bob.tenants().await.unwrap().items.is_empty());
    for refusal in [
        refused(bob.join_tenant(SOLAR).await),
        refused(bob.create_tenant_namespace(SOLAR, "solar-bob").await),
    ] {
        assert_eq!((refusal.status, refusal.code()), (StatusCode::NOT_FOUND, Code::NotFound));
    }
}

async fn a_change_of_the_other_one_has_no_effect(world: &World, admin: &Kubectl) {
    let changed = solar(TENANT_BROKER, BOB, Some("joe"));
    with_object(admin, &["apply", "--server-side", "--force-conflicts"], changed)
        .await
        .success()
        .unwrap();
    until_name_taken(world, TENANT_BROKER, "capsule.clastix.io").await;
    until_bound(world, PRODUCTION, "view", &[]).await;
    until_bound(world, PRODUCTION, "admin", &[ALICE]).await;
}

/// It does not inherit the namespaces, as no Tenant that is made again does.
async fn the_other_one_takes_its_place(world: &World, admin: &Kubectl, (alice, bob): (&Api, &Api)) {
    let keep = "tenant-broker.io/on-delete=keep-namespaces";
    admin.run(["annotate", CAPSULE.0, SOLAR, keep]).await.unwrap().success().unwrap();
    delete(admin, CAPSULE, SOLAR).await;
    until_status(world, TENANT_BROKER, |status| {
        !has_condition(status, "NameTaken") && has_condition(status, "NamespaceConflict")
    })
    .await;
    until_bound(world, HOME, "tenant-owner", &[BOB]).await;
    until_bound(world, PRODUCTION, "admin", &[]).await;
    admin.run(["delete", "namespace", PRODUCTION]).await.unwrap().success().unwrap();
    until_status(world, TENANT_BROKER, |status| status["state"] == "Active").await;

    let shown = bob.tenant(SOLAR).await.unwrap();
    assert_eq!((shown.api_group.as_str(), shown.is_owner), ("tenant-broker.io", true));
    assert!(alice.tenants().await.unwrap().items.is_empty());
    bob.create_tenant_namespace(SOLAR, "solar-bob").await.unwrap();
    for (role, expected) in [("admin", BOB), ("view", "joe")] {
        let name = format!("tenant-solar-{role}");
        until(world, &["rolebinding", &name, "-n", "solar-bob"], |binding| {
            subjects(binding).contains(expected)
        })
        .await;
    }
}

async fn a_later_one_of_the_first_group_is_the_younger_one(world: &World, admin: &Kubectl) {
    with_object(admin, &["create"], solar(CAPSULE, ALICE, None)).await.success().unwrap();
    until_name_taken(world, CAPSULE, "tenant-broker.io").await;
    delete(admin, CAPSULE, SOLAR).await;
    // Its deletion closes nothing: the tenant is carried out as before.
    let changed = solar(TENANT_BROKER, BOB, Some("carol"));
    with_object(admin, &["apply", "--server-side", "--force-conflicts"], changed)
        .await
        .success()
        .unwrap();
    until_bound(world, "solar-bob", "view", &["carol"]).await;
    until_status(world, TENANT_BROKER, |status| {
        status["state"] == "Active" && status["namespaces"] == json!(["solar-bob"])
    })
    .await;
    let log = world.broker().log().unwrap();
    assert_eq!(log.matches("tenant closed, because its object is gone").count(), 1);
}
