//! The `can-i` lines of the specification (document 002): each through the gateway, and directly at
//! the API server with a client certificate.

use std::time::Duration;

use http::{Method, StatusCode};
use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};

use super::reconcile::until;
use super::{TENANT_BROKER, until_served, with_object};
use crate::gateway::through_the_gateway;

/// Limit of the time until a change is in force everywhere.
const TIMEOUT: Duration = Duration::from_secs(30);
const NAMESPACE: &str = "solar-production";
/// The group of everybody who may be considered for tenancy.
const GROUP: &str = "projectcapsule.dev";

/// A person with both ways to the cluster.
struct BothRoutes {
    gateway: Kubectl,
    certificate: Kubectl,
}

impl BothRoutes {
    /// A person with an account, and a certificate of the same user name and this group.
    async fn of(world: &World, name: &str, group: &str) -> (Self, uuid::Uuid) {
        let person = through_the_gateway(world, name).await;
        let gateway = person.kubectl().clone();
        // As in the specification, whose people have no namespace of their own.
        let default = ["config", "set-context", "--current", "--namespace=default"];
        gateway.run(default).await.unwrap().success().unwrap();
        let file = world.cluster().kubeconfig_for(person.email(), Some(group), world.folder());
        let certificate = world.kubectl_with(&file.unwrap()).unwrap();
        (Self { gateway, certificate }, person.id())
    }

    /// The first request for a namespace of a tenant makes the membership, and a review is none.
    async fn becomes_a_member(&self) {
        let args = ["get", "pods", "-n", NAMESPACE];
        probe::until("the first request", TIMEOUT, || async {
            let done = self.gateway.run(args).await?;
            let is_done = done.status.success();
            Ok(if is_done { Probe::Ready(()) } else { Probe::NotYet(done.stderr) })
        })
        .await
        .unwrap();
    }

    /// Waits until both ways have this answer.
    async fn answer(&self, args: &[&str], expected: &str) {
        for (way, kubectl) in [("gateway", &self.gateway), ("certificate", &self.certificate)] {
            answers(way, kubectl, args, expected).await;
        }
    }
}

async fn answers(way: &str, kubectl: &Kubectl, args: &[&str], expected: &str) {
    let args = [&["auth", "can-i"][..], args].concat();
    probe::until(&format!("{way} {args:?}: {expected}"), TIMEOUT, || async {
        let said = kubectl.run(&args).await?;
        let is_so = said.stdout.split_whitespace().next() == Some(expected);
        Ok(if is_so { Probe::Ready(()) } else { Probe::NotYet(format!("{said:?}")) })
    })
    .await
    .unwrap();
}

/// Applies the Tenant of the specification with these owners, and waits until it is carried out.
async fn apply(world: &World, owners: &Value) {
    let object = json!({
        "apiVersion": TENANT_BROKER.1, "kind": "Tenant", "metadata": {"name": "solar"},
        "spec": {"owners": owners},
    });
    let admin = world.admin_kubectl().unwrap();
    with_object(&admin, &["apply"], object.to_string()).await.success().unwrap();
    until(world, &[TENANT_BROKER.0, "solar"], |it| {
        it["status"]["observedGeneration"] == it["metadata"]["generation"]
            && it["status"]["state"] == "Active"
    })
    .await;
}

fn user(email: &str) -> Value {
    json!({"kind": "User", "name": email})
}

#[tokio::test]
async fn reviews_answer_as_the_specification_says() {
    let builder = World::builder().own_control_plane().tls();
    let builder = builder.installed("tenants.enabled", true);
    let builder = builder.installed("tenants.direct_namespaces", true);
    let builder = builder.installed("tenants.groups", format!("{GROUP},solar-users"));
    let builder = builder.installed("tenants.cluster_lists", "nodes,storageclasses");
    let world = builder.setting("drift_seconds", 3600).start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let (alice, _) = BothRoutes::of(&world, "alice", GROUP).await;
    let (bob, id_of_bob) = BothRoutes::of(&world, "bob", "solar-users").await;
    let (joe, _) = BothRoutes::of(&world, "joe", GROUP).await;
    let [email_of_alice, email_of_joe] = ["alice@example.com", "joe@example.com"];

    // "Assigning Ownership to Users"
    apply(&world, &json!([user(email_of_alice)])).await;
    alice.answer(&["create", "namespaces"], "yes").await;
    let created = ["create", "namespace", NAMESPACE];
    alice.gateway.run(created).await.unwrap().success().unwrap();
    alice.answer(&["delete", "ns", "-n", NAMESPACE], "yes").await;
    for resource in ["namespaces", "nodes", "persistentvolumes", "tenants"] {
        alice.answer(&["get", resource], "no").await;
    }
    alice.answer(&["list", "nodes"], "no").await;

    // "Group of subjects as tenant owner": first the user, then the group.
    apply(&world, &json!([user(email_of_alice), user("bob@example.com")])).await;
    bob.answer(&["create", "namespaces"], "yes").await;
    let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
    let path = format!("users/{id_of_bob}/groups");
    let request = operator.request(Method::POST, &path).unwrap();
    let answer = request.json(&json!({"groups": ["solar-users"]})).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    apply(&world, &json!([{"kind": "Group", "name": "solar-users"}])).await;
    bob.answer(&["create", "namespaces"], "yes").await;
    bob.becomes_a_member().await;
    bob.answer(&["delete", "pods", "-n", NAMESPACE], "yes").await;
    alice.answer(&["delete", "pods", "-n", NAMESPACE], "no").await;
    answers("gateway", &alice.gateway, &["create", "namespaces"], "no").await;

    // "ServiceAccounts": such a program has no account at the broker.
    let robot = "system:serviceaccount:tenant-system:robot";
    apply(&world, &json!([{"kind": "ServiceAccount", "name": robot}])).await;
    let group = format!("--as-group={GROUP}");
    let as_robot = format!("--as={robot}");
    let robot = ["create", "namespaces", as_robot.as_str(), group.as_str()];
    answers("certificate", &admin, &robot, "yes").await;

    // "Owner Roles": joe can only view resources, and still creates namespaces.
    let view = json!({"kind": "User", "name": email_of_joe, "clusterRoles": ["view"]});
    apply(&world, &json!([user(email_of_alice), view])).await;
    joe.becomes_a_member().await;
    joe.answer(&["delete", "pods", "-n", NAMESPACE], "no").await;
    joe.answer(&["get", "pods", "-n", NAMESPACE], "yes").await;
    joe.answer(&["create", "namespaces"], "yes").await;

    // "Proxy Owner Authorization": the list of the kind that is granted, through the gateway only.
    let mut listing = user(email_of_joe);
    listing["proxySettings"] = json!([{"kind": "StorageClasses", "operations": ["List"]}]);
    apply(&world, &json!([user(email_of_alice), listing])).await;
    for verb in ["list", "watch"] {
        answers("gateway", &joe.gateway, &[verb, "storageclasses"], "yes").await;
        answers("certificate", &joe.certificate, &[verb, "storageclasses"], "no").await;
    }
    joe.answer(&["get", "storageclasses"], "no").await;
    joe.answer(&["list", "nodes"], "no").await;
    alice.answer(&["list", "storageclasses"], "no").await;
}
