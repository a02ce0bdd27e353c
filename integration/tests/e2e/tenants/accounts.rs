//! ServiceAccounts that a Tenant names, in namespaces that do not exist yet.

use http::StatusCode;
use integration::api::ApiError;
use integration::kubectl::Kubectl;
use integration::world::World;
use serde_json::{Value, json};

use super::reconcile::{condition_message, until, until_status};
use super::rest::{SOLAR, until_active};
use super::{TENANT_BROKER, until_served, with_object};

/// Applies a Tenant whose namespaces may have any name.
async fn apply(admin: &Kubectl, name: &str, owners: &[Value]) {
    let options = json!({"forceTenantPrefix": false});
    let object = json!({
        "apiVersion": TENANT_BROKER.1, "kind": "Tenant", "metadata": {"name": name},
        "spec": {"owners": owners, "namespaceOptions": options},
    });
    with_object(admin, &["apply"], object.to_string()).await.success().unwrap();
}

/// Otherwise an owner of `solar` would make the namespace `ci`, start a pod with the account `robot`, and
/// own `lunar` by it.
#[tokio::test]
async fn nobody_takes_over_accounts_that_another_tenant_names() {
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    let builder = builder.installed("tenants.free_names", true).setting("drift_seconds", 2);
    let world = builder.start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let alice = world.person("alice").await.unwrap();
    let user = |name: &str| json!({"kind": "User", "name": name});
    let robot = json!({"kind": "ServiceAccount", "name": "system:serviceaccount:ci:robot"});
    apply(&admin, SOLAR, &[user(alice.email())]).await;
    apply(&admin, "lunar", &[user(alice.email()), robot.clone()]).await;
    let api = alice.api().await.unwrap();
    until_active(&api, SOLAR).await;
    until_active(&api, "lunar").await;

    match api.create_tenant_namespace(SOLAR, "ci").await {
        Err(ApiError::Refused(refused)) => {
            assert_eq!(refused.status, StatusCode::BAD_REQUEST);
            let detail = &refused.body;
            assert!(detail.contains("ServiceAccounts of a namespace ci"), "{detail}");
            assert!(!detail.contains("lunar"), "owners of others learn nothing: {detail}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(crate::object(&world, &["namespace", "ci"]).await.unwrap(), None);
    // One that was made with the label of the tenant is no different.
    let labels = json!({
        "tenant-broker.io/tenant": SOLAR, "pod-security.kubernetes.io/enforce": "restricted",
    });
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ci", "labels": labels},
    });
    with_object(&admin, &["create"], namespace.to_string()).await.success().unwrap();
    until_status(&world, |status| {
        condition_message(status, "NamespaceConflict").contains("ServiceAccounts")
    })
    .await;
    let binding = ["rolebinding", "tenant-solar-admin", "-n", "ci"];
    assert_eq!(crate::object(&world, &binding).await.unwrap(), None);

    apply(&admin, "lunar", &[user(alice.email())]).await;
    until(&world, &binding, |binding| !binding.is_null()).await;
    // A Tenant may name accounts of its own namespaces before they exist.
    let own = json!({"kind": "ServiceAccount", "name": "system:serviceaccount:build:robot"});
    apply(&admin, SOLAR, &[user(alice.email()), own]).await;
    until_active(&api, SOLAR).await;
    api.create_tenant_namespace(SOLAR, "build").await.unwrap();
}
