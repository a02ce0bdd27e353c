//! `tenant-guard-tenants` and `tenant-guard-capsule-tenants`: the deletion of a Tenant with
//! namespaces.

use integration::world::World;
use serde_json::json;

use super::cluster::{TenantCluster, is_refused, until_refused};
use super::{CAPSULE, Group, TENANT_BROKER, until_served, with_object};
use crate::install::install;

#[tokio::test]
async fn a_tenant_with_namespaces_is_deleted_only_if_they_may_stay() {
    let cluster = TenantCluster::start(World::builder().installed("tenants.enabled", true)).await;
    let policies = ["get", "validatingadmissionpolicies", "-o", "name"];
    let before = cluster.admin.run(policies).await.unwrap().success().unwrap().stdout;
    assert!(before.contains("tenant-guard-tenants"), "{before}");
    assert!(!before.contains("tenant-guard-capsule-tenants"), "{before}");
    install(&cluster.world, &["--apply", "--capsule-api"]).await.success().unwrap();
    for group in [TENANT_BROKER, CAPSULE] {
        namespaces_protect_a_tenant(&cluster, group).await;
    }
    // Without the flag the policy goes, like the definition.
    let without = install(&cluster.world, &["--apply"]).await.success().unwrap().stdout;
    let gone = "ValidatingAdmissionPolicy tenant-guard-capsule-tenants deleted";
    assert!(without.contains(gone), "{without}");
}

async fn namespaces_protect_a_tenant(cluster: &TenantCluster, group: Group) {
    let admin = &cluster.admin;
    until_served(admin, group).await;
    let (resource, api_version) = group;
    let tenant = |name: &str| {
        let owner = json!({"kind": "User", "name": "alice"});
        let object = json!({"apiVersion": api_version, "kind": "Tenant",
            "metadata": {"name": name}, "spec": {"owners": [owner]}});
        object.to_string()
    };
    for name in ["solar", "empty", "new"] {
        with_object(admin, &["create"], tenant(name)).await.success().unwrap();
    }
    for (name, status) in [
        ("solar", r#"{"status":{"size":20}}"#),
        ("empty", r#"{"status":{"size":0,"state":"Active"}}"#),
    ] {
        let patch = ["patch", resource, name, "--subresource=status", "--type=merge", "-p", status];
        cluster.as_admin(&patch).await;
    }
    // Also for an administrator, because the mistake is theirs.
    let dry = ["delete", resource, "solar", "--dry-run=server", "--wait=false"];
    until_refused(admin, &dry, "ValidatingAdmissionPolicy 'tenant-guard-").await;
    let text = "tenant solar still has 20 namespaces: delete them first, or let them stay with the \
                annotation tenant-broker.io/on-delete=keep-namespaces";
    let delete = ["delete", resource, "solar"];
    is_refused(&admin.run(delete).await.unwrap(), resource, text);
    let all = admin.run(["delete", resource, "--all", "--dry-run=server"]).await.unwrap();
    is_refused(&all, "all of them", text);
    let other = "tenant-broker.io/on-delete=delete-namespaces";
    cluster.as_admin(&["annotate", resource, "solar", other]).await;
    is_refused(&admin.run(delete).await.unwrap(), "another annotation", text);

    // A Tenant that the broker did not act on has no status.
    for name in ["empty", "new"] {
        cluster.as_admin(&["delete", resource, name]).await;
    }
    let keep = "tenant-broker.io/on-delete=keep-namespaces";
    cluster.as_admin(&["annotate", resource, "solar", keep, "--overwrite"]).await;
    cluster.as_admin(&delete).await;
}
