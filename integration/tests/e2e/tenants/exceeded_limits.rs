//! Limits of `spec.resourceQuotas` that an administrator sets below what the namespaces use.

use integration::kubectl::Kubectl;
use integration::world::World;
use serde_json::json;

use super::reconcile::{
    ALICE, PRODUCTION, condition_message, create_namespace, has_condition, until, until_status,
    world,
};
use super::{TENANT_BROKER, run, tenant, until_served, with_object};

const CONDITION: &str = "ResourceQuotaExceeded";
const SECOND: &str = "solar-second";

/// Applies the Tenant with a limit of its secrets.
async fn limit(admin: &Kubectl, scope: &str, secrets: usize) {
    let quotas = json!({"scope": scope, "items": [{"hard": {"secrets": secrets.to_string()}}]});
    let object = json!({
        "apiVersion": TENANT_BROKER.1,
        "kind": "Tenant",
        "metadata": {"name": "solar"},
        "spec": {
            "owners": [{"kind": "User", "name": ALICE.0, "clusterRoles": ALICE.1}],
            "resourceQuotas": quotas,
        },
    });
    with_object(admin, &["apply"], object.to_string()).await.success().unwrap();
}

/// Waits until the status of the quota of a namespace has this amount, in `hard` or `used`.
async fn until_amount(world: &World, namespace: &str, field: &str, secrets: &str) {
    until(world, &["resourcequota", "tenant-quota-0", "-n", namespace], |quota| {
        quota["status"][field]["secrets"] == secrets
    })
    .await;
}

/// Waits until the status names an exceeded limit.
async fn until_exceeded(world: &World, limit: &str) {
    until_status(world, |status| {
        status["state"] == "Degraded" && condition_message(status, CONDITION).ends_with(limit)
    })
    .await;
}

async fn until_kept(world: &World) {
    until_status(world, |status| status["state"] == "Active" && !has_condition(status, CONDITION))
        .await;
}

#[tokio::test]
async fn a_limit_below_the_use_is_a_condition_until_it_is_kept() {
    let world = world().await;
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    limit(&admin, "Tenant", 10).await;
    for namespace in [PRODUCTION, SECOND] {
        create_namespace(&admin, namespace).await;
    }
    for namespace in [PRODUCTION, SECOND] {
        until_amount(&world, namespace, "hard", "5").await;
        for name in ["one", "two"] {
            run(&admin, &["create", "secret", "generic", name, "-n", namespace]).await;
        }
        until_amount(&world, namespace, "used", "2").await;
    }
    until_kept(&world).await;

    limit(&admin, "Tenant", 3).await;
    until_exceeded(&world, ": secrets 3 (tenant-quota-0)").await;
    a_limit_that_is_exceeded_admits_nothing(&world, &admin).await;
    // The controller notices less use without a change of the Tenant.
    run(&admin, &["delete", "secret", "one", "-n", PRODUCTION]).await;
    until_kept(&world).await;

    limit(&admin, "Tenant", 2).await;
    until_exceeded(&world, ": secrets 2 (tenant-quota-0)").await;
    limit(&admin, "Tenant", 10).await;
    until_kept(&world).await;

    limit(&admin, "Namespace", 1).await;
    until_exceeded(&world, &format!(": secrets 1 (tenant-quota-0 in {SECOND})")).await;
    run(&admin, &["delete", "secret", "one", "-n", SECOND]).await;
    until_kept(&world).await;
}

async fn a_limit_that_is_exceeded_admits_nothing(world: &World, admin: &Kubectl) {
    let status = async || tenant(admin, TENANT_BROKER, "solar").await["status"].clone();
    let before = status().await;
    for namespace in [PRODUCTION, SECOND] {
        until_amount(world, namespace, "hard", "2").await;
        let create = ["create", "secret", "generic", "more", "-n", namespace];
        let refused = admin.run(create).await.unwrap();
        assert!(refused.stderr.contains("exceeded quota: tenant-quota-0"), "{refused:?}");
    }
    assert_eq!(status().await, before, "use does not change the status");
}
