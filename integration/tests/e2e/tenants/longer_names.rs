//! Tenants whose names extend each other, such as `solar` and `solar-wind`, and the namespaces that an
//! administrator makes for them.

use std::collections::BTreeSet;

use integration::kubectl::Kubectl;
use serde_json::{Value, json};

use super::reconcile::{
    condition_message, create_namespace, subjects, until, until_bound, until_status, world,
};
use super::{TENANT_BROKER, tenant, until_served, with_object};

const LONGER: &str = "solar-wind";
/// A namespace of `solar` from the time before there was a tenant `solar-wind`.
const EARLIER: &str = "solar-wind-x";
/// A namespace that was made after that.
const LATER: &str = "solar-wind-y";

/// Applies a Tenant with these owners.
async fn apply(admin: &Kubectl, tenant: &str, owners: &[&str]) {
    let owners: Vec<Value> =
        owners.iter().map(|name| json!({"kind": "User", "name": name})).collect();
    let object = json!({
        "apiVersion": TENANT_BROKER.1,
        "kind": "Tenant",
        "metadata": {"name": tenant},
        "spec": {"owners": owners},
    });
    with_object(admin, &["apply"], object.to_string()).await.success().unwrap();
}

/// Everybody whom a RoleBinding in a namespace names, whatever its name is.
async fn bound(admin: &Kubectl, namespace: &str) -> Vec<String> {
    let list = admin.json(["get", "rolebindings", "-n", namespace]).await.unwrap();
    let bindings = list["items"].as_array().unwrap();
    let names: BTreeSet<&str> = bindings.iter().flat_map(subjects).collect();
    names.into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_namespace_is_that_of_the_longest_name_unless_another_tenant_has_it() {
    let world = world().await;
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    apply(&admin, "solar", &["alice"]).await;
    until_status(&world, |status| status["state"] == "Active").await;
    create_namespace(&admin, EARLIER).await;
    until_bound(&world, EARLIER, "admin", &["alice"]).await;

    // A tenant that is made afterwards takes nothing away, and its owner gets nothing.
    apply(&admin, LONGER, &["carol"]).await;
    until(&world, &[TENANT_BROKER.0, LONGER], |it| it["status"]["state"] == "Active").await;
    apply(&admin, "solar", &["alice", "bob"]).await;
    until_bound(&world, EARLIER, "admin", &["alice", "bob"]).await;
    assert_eq!(bound(&admin, EARLIER).await, ["alice", "bob"]);
    until_status(&world, |status| {
        status["state"] == "Active" && status["namespaces"] == json!([EARLIER])
    })
    .await;
    assert_eq!(tenant(&admin, TENANT_BROKER, LONGER).await["status"]["size"], 0);

    // The label alone gives no namespace whose name is that of the other one.
    create_namespace(&admin, LATER).await;
    until_status(&world, |status| {
        let conflict = condition_message(status, "NamespaceConflict");
        conflict.contains(LATER)
            && !conflict.contains(EARLIER)
            && status["namespaces"] == json!([EARLIER])
    })
    .await;
    assert_eq!(bound(&admin, LATER).await, Vec::<String>::new());
    apply(&admin, "solar", &["alice"]).await;
    until_bound(&world, EARLIER, "admin", &["alice"]).await;
    assert_eq!(bound(&admin, LATER).await, Vec::<String>::new());

    // With the label of its own tenant it is complete, and `solar` has no conflict any more.
    let label = "tenant-broker.io/tenant=solar-wind";
    let relabel = ["label", "namespace", LATER, "--overwrite", label];
    admin.run(relabel).await.unwrap().success().unwrap();
    let binding = ["rolebinding", "tenant-solar-wind-admin", "-n", LATER];
    let made = until(&world, &binding, |it| subjects(it) == ["carol"].into()).await;
    until_status(&world, |status| status["state"] == "Active").await;

    // The names of its RoleBindings begin as those of `solar` do. The second run shows that the first
    // one has ended.
    for owners in [&["alice", "bob"][..], &["alice"]] {
        apply(&admin, "solar", owners).await;
        until_bound(&world, EARLIER, "admin", owners).await;
    }
    let kept = crate::object(&world, &binding).await.unwrap().unwrap();
    assert_eq!(kept["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!(bound(&admin, LATER).await, ["carol"]);
}
