//! The end of Tenants: of their definition, and what is left of them.

use http::StatusCode;
use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};

use super::reconcile::{
    self, ALICE, PRODUCTION, RECONCILE_TIMEOUT, apply, create_namespace, until, until_bound,
    until_status,
};
use super::{TENANT_BROKER, delete, install, run, until_served, with_object};
use crate::{refused, until_logged};

const GHOST: &str = "ghost-a";
/// A namespace that no earlier tenant had.
const AGAIN: &str = "solar-again";
/// RoleBindings of others with the label of the tenant: more than a page of the list has, which is 500.
const LABELLED: usize = 600;

/// The API server deletes the Tenants with their definition, and nobody decided on their end.
#[tokio::test]
async fn the_deletion_of_the_definition_revokes_no_rights() {
    let world = reconcile::world().await;
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    apply(&admin, &[ALICE]).await;
    create_namespace(&admin, PRODUCTION).await;
    until_bound(&world, PRODUCTION, "admin", &["alice"]).await;

    // The finalizer keeps the definition in its deletion after all Tenants are gone.
    let finalizers = |finalizers: Value| {
        let patch = json!({"metadata": {"finalizers": finalizers}}).to_string();
        ["patch", "crd", TENANT_BROKER.0, "--type=merge", "-p", &patch].map(str::to_owned)
    };
    let hold = finalizers(json!(["example.com/hold"]));
    admin.run(hold).await.unwrap().success().unwrap();
    run(&admin, &["delete", "crd", TENANT_BROKER.0, "--wait=false"]).await;
    until(&world, &[TENANT_BROKER.0, "solar"], Value::is_null).await;
    until_logged(
        world.broker(),
        "tenant not closed, because the definition of Tenants was deleted",
    )
    .await;
    until_bound(&world, PRODUCTION, "admin", &["alice"]).await;
    admin.run(finalizers(Value::Null)).await.unwrap().success().unwrap();
    until(&world, &["crd", TENANT_BROKER.0], Value::is_null).await;
    until_bound(&world, PRODUCTION, "admin", &["alice"]).await;
    let log = world.broker().log().unwrap();
    assert!(!log.contains("tenant closed, because its object is gone"), "{log}");

    // Once the definition is served again, the API server says for sure that there is no Tenant.
    install(&world, &["--apply"]).await.success().unwrap();
    until_bound(&world, PRODUCTION, "admin", &[]).await;
    until_bound(&world, "tenant-solar", "tenant-owner", &[]).await;
    tenants_of_the_definition_that_came_back_are_carried_out(&world, &admin).await;
}

/// The broker is the same process: its watch lists the new Tenants, and passes their changes on.
async fn tenants_of_the_definition_that_came_back_are_carried_out(world: &World, admin: &Kubectl) {
    until_served(admin, TENANT_BROKER).await;
    apply(admin, &[ALICE]).await;
    until_bound(world, "tenant-solar", "tenant-owner", &["alice"]).await;
    create_namespace(admin, AGAIN).await;
    until_bound(world, AGAIN, "admin", &["alice"]).await;
    until_bound(world, AGAIN, "tenant-namespace-deleter", &["alice"]).await;

    // A run for another reason would carry a change out as well. What people see of a Tenant comes from
    // its watch alone.
    let carol = world.person("carol").await.unwrap();
    let api = carol.api().await.unwrap();
    assert_eq!(refused(api.tenant("solar").await).status, StatusCode::NOT_FOUND);
    apply(admin, &[ALICE, (carol.email(), &["admin"])]).await;
    probe::until("the tenant of a new owner", RECONCILE_TIMEOUT, || async {
        Ok(match api.tenant("solar").await {
            Ok(_) => Probe::Ready(()),
            Err(error) => Probe::NotYet(error.to_string()),
        })
    })
    .await
    .unwrap();
    until_bound(world, AGAIN, "admin", &["alice", carol.email()]).await;
    // The namespace of the earlier tenant is nobody's.
    let inherited = ["rolebinding", "tenant-solar-admin", "-n", PRODUCTION];
    assert_eq!(crate::object(world, &inherited).await.unwrap(), None);
}

#[tokio::test]
async fn what_is_left_of_tenants_is_cleaned_up() {
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    let world = builder.setting("drift_seconds", 1).start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    apply(&admin, &[ALICE]).await;
    create_namespace(&admin, PRODUCTION).await;
    until_bound(&world, PRODUCTION, "admin", &["alice"]).await;
    // The binding of the owner is found among them.
    let others: Vec<Value> = (0..LABELLED)
        .map(|number| binding(PRODUCTION, &format!("own-{number}"), "solar"))
        .collect();
    let others = json!({"apiVersion": "v1", "kind": "List", "items": others});
    with_object(&admin, &["create"], others.to_string()).await.success().unwrap();
    let keep = "tenant-broker.io/on-delete=keep-namespaces";
    run(&admin, &["annotate", TENANT_BROKER.0, "solar", keep]).await;
    delete(&admin, TENANT_BROKER, "solar").await;
    until_bound(&world, PRODUCTION, "admin", &[]).await;
    until_logged(world.broker(), "its own are read by name").await;
    run(&admin, &["delete", "namespace", PRODUCTION]).await;

    bindings_of_a_tenant_that_does_not_exist_are_deleted(&world, &admin).await;
    the_doctor_names_namespaces_of_a_tenant_that_does_not_exist(&world).await;

    // A later tenant of the name may have a namespace that was deleted meanwhile.
    until_logged(world.broker(), "namespace of a closed tenant is gone, so its name is free").await;
    apply(&admin, &[ALICE]).await;
    until_status(&world, |status| status["state"] == "Active").await;
    create_namespace(&admin, PRODUCTION).await;
    until_bound(&world, PRODUCTION, "admin", &["alice"]).await;
}

/// A RoleBinding with the label of a tenant.
fn binding(namespace: &str, name: &str, tenant: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{group}/v1"),
        "kind": "RoleBinding",
        "metadata": {
            "name": name, "namespace": namespace, "labels": {"tenant-broker.io/tenant": tenant},
        },
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "mallory"}],
    })
}

/// A thief of the broker's credential could have left them.
async fn bindings_of_a_tenant_that_does_not_exist_are_deleted(world: &World, admin: &Kubectl) {
    run(admin, &["create", "namespace", GHOST]).await;
    for name in ["tenant-ghost-admin", "own"] {
        with_object(admin, &["create"], binding(GHOST, name, "ghost").to_string())
            .await
            .success()
            .unwrap();
    }
    run(admin, &["label", "namespace", GHOST, "tenant-broker.io/tenant=ghost"]).await;
    until(world, &["rolebinding", "tenant-ghost-admin", "-n", GHOST], Value::is_null).await;
    let own = crate::object(world, &["rolebinding", "own", "-n", GHOST]).await.unwrap();
    assert!(own.is_some(), "the broker does not name bindings so");
}

async fn the_doctor_names_namespaces_of_a_tenant_that_does_not_exist(world: &World) {
    let finished = world.broker().run(&["doctor", "-o", "json"]).await.unwrap();
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    let check = |title: &str| -> Value {
        let checks = report["checks"].as_array().unwrap();
        checks.iter().find(|check| check["check"] == title).unwrap().clone()
    };
    let labels = check("the Tenant of every namespace with the label of one exists");
    assert_eq!(labels["outcome"], "warn", "{labels}");
    assert!(labels["detail"].as_str().unwrap().contains(GHOST), "{labels}");
    let bindings = check("only the broker's RoleBindings have the label of a tenant");
    assert_eq!(bindings["outcome"], "warn", "{bindings}");
    assert!(bindings["detail"].as_str().unwrap().contains(GHOST), "{bindings}");
    let definition = check("the API server serves the definition of Tenants");
    assert_eq!(definition["outcome"], "pass", "{definition}");
    let permission = check("may get customresourcedefinitions tenants.capsule.clastix.io");
    assert_eq!(permission["outcome"], "pass", "{permission}");
}
