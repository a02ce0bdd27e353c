//! A ClusterRole that a Tenant names before the operator allows it, and before it exists. Nobody
//! changes the Tenant.

use integration::kubectl::Kubectl;
use integration::world::World;
use serde_json::{Value, json};

use super::cluster::{until_accepted, until_refused, user};
use super::reconcile::{
    ALICE, PRODUCTION, create_namespace, has_condition, until, until_bound, until_status, world,
};
use super::{TENANT_BROKER, run, tenant, until_served, with_object};
use crate::install::install;

const ROLE: &str = "config-reader";
/// The ClusterRoles of the default settings, and this one.
const ROLES: &str = "admin,edit,view,tenant-namespace-deleter,config-reader";
/// What the role gives.
const READ: [&str; 6] = ["get", "configmaps", "-n", PRODUCTION, "--as", "bob"];
/// End of the refusal by RBAC while a RoleBinding refers to a ClusterRole that does not exist.
const NO_ROLE: &str = "\"config-reader\" not found";

async fn create_role(admin: &Kubectl) {
    run(admin, &["create", "clusterrole", ROLE, "--verb=get,list", "--resource=configmaps"]).await;
}

/// Waits until the broker has carried out the Tenant without a condition.
async fn until_active(world: &World) {
    until_status(world, |status| {
        status["state"] == "Active" && !has_condition(status, "RoleNotAllowed")
    })
    .await;
}

#[tokio::test]
async fn a_role_gives_its_rights_once_it_is_allowed_and_exists() {
    let world = world().await;
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let object = json!({
        "apiVersion": TENANT_BROKER.1,
        "kind": "Tenant",
        "metadata": {"name": "solar"},
        "spec": {
            "owners": [{"kind": "User", "name": ALICE.0, "clusterRoles": ALICE.1}],
            "additionalRoleBindings": [{"clusterRoleName": ROLE, "subjects": [user("bob")]}],
        },
    });
    with_object(&admin, &["create"], object.to_string()).await.success().unwrap();
    create_namespace(&admin, PRODUCTION).await;
    until_bound(&world, PRODUCTION, "admin", &["alice"]).await;
    until_status(&world, |status| {
        let is_named = status["conditions"].to_string().contains(ROLE);
        status["state"] == "Degraded" && has_condition(status, "RoleNotAllowed") && is_named
    })
    .await;
    until_bound(&world, PRODUCTION, ROLE, &[]).await;
    let before = tenant(&admin, TENANT_BROKER, "solar").await;

    the_operator_allows_the_role(&world).await;
    until_bound(&world, PRODUCTION, ROLE, &["bob"]).await;
    until_active(&world).await;
    until_refused(&admin, &READ, NO_ROLE).await;

    let binding = ["rolebinding", "tenant-solar-config-reader", "-n", PRODUCTION];
    let bound = until(&world, &binding, |binding| !binding.is_null()).await;
    for _ in 0..2 {
        create_role(&admin).await;
        until_accepted(&admin, &READ).await;
        // The right ends with the role, and comes back with a later one of the name.
        run(&admin, &["delete", "clusterrole", ROLE]).await;
        until_refused(&admin, &READ, NO_ROLE).await;
    }
    until_active(&world).await;
    let last = until(&world, &binding, |binding| !binding.is_null()).await;
    assert_eq!(last["metadata"], bound["metadata"], "the binding was not written again");
    let after = tenant(&admin, TENANT_BROKER, "solar").await;
    let generation = |tenant: &Value| tenant["metadata"]["generation"].clone();
    assert_eq!(generation(&after), generation(&before));
}

async fn the_operator_allows_the_role(world: &World) {
    let broker = world.broker();
    broker.stop().await.unwrap();
    broker.set("tenants.cluster_roles", ROLES);
    install(world, &["--apply"]).await.success().unwrap();
    broker.start().await.unwrap();
}
