//! A watch of namespaces through the gateway has an event for each namespace that a member begins or
//! ceases to see.

use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::process::Captured;
use integration::world::World;
use serde_json::{Value, json};

use crate::tenants::cluster::{RIGHTS_TIMEOUT, until_accepted, user};
use crate::tenants::{TENANT_BROKER, with_object};

/// A watch of namespaces with the types of its events.
struct NamespaceWatch(Captured);

impl NamespaceWatch {
    fn open(kubectl: &Kubectl) -> Self {
        let args = ["get", "namespaces", "--watch", "--output-watch-events"];
        Self(kubectl.spawn(args).unwrap())
    }

    /// Waits until there were this many events of a type about a namespace.
    async fn until_event(&self, count: usize, kind: &str, namespace: &str) -> String {
        let is_event = |line: &str| line.split_whitespace().take(2).eq([kind, namespace]);
        let what = format!("{count} times {kind} {namespace}");
        let has_all = |said: &str| said.lines().filter(|&line| is_event(line)).count() >= count;
        self.0.until_stdout(&what, RIGHTS_TIMEOUT, has_all).await.unwrap()
    }

    /// Waits until the gateway has ended the watch with an error, after which clients list again.
    async fn until_ended(self) -> String {
        let ended = self.0.finish(RIGHTS_TIMEOUT).await.unwrap();
        assert!(ended.stdout.lines().any(|line| line.starts_with("ERROR")), "{ended:?}");
        ended.stdout
    }
}

async fn run(kubectl: &Kubectl, args: &[&str]) -> String {
    kubectl.run(args).await.unwrap().success().unwrap().stdout
}

/// The owner of `solar`, which has the namespace `solar-a` and room for another one.
pub(super) async fn has_an_event_for_each_namespace(
    world: &World,
    admin: &Kubectl,
    owner: &Kubectl,
) {
    let label = |change: &'static str| ["label", "namespace", "solar-w", change];
    let watch = NamespaceWatch::open(owner);
    watch.until_event(1, "ADDED", "solar-a").await;
    run(owner, &["create", "namespace", "solar-w"]).await;
    watch.until_event(1, "ADDED", "solar-w").await;
    // It leaves the tenant, and nobody deletes it.
    run(admin, &label("tenant-broker.io/tenant-")).await;
    watch.until_event(1, "DELETED", "solar-w").await;
    assert!(crate::object(world, &["namespace", "solar-w"]).await.unwrap().is_some());
    run(admin, &label("tenant-broker.io/tenant=solar")).await;
    watch.until_event(2, "ADDED", "solar-w").await;
    until_accepted(owner, &["get", "configmaps", "-n", "solar-w"]).await;
    run(owner, &["delete", "namespace", "solar-w"]).await;
    watch.until_event(2, "DELETED", "solar-w").await;
    run(owner, &["create", "namespace", "solar-x"]).await;
    let said = watch.until_event(1, "ADDED", "solar-x").await;
    assert!(!said.contains("lunar") && !said.contains("tenant-solar"), "{said}");
}

/// Makes somebody a viewer of `lunar`, or nobody.
async fn set_viewer(admin: &Kubectl, owner: &str, viewer: Option<&str>) {
    let binding = |name| json!({"clusterRoleName": "view", "subjects": [user(name)]});
    let bindings: Vec<Value> = viewer.into_iter().map(binding).collect();
    let object = json!({
        "apiVersion": TENANT_BROKER.1,
        "kind": "Tenant",
        "metadata": {"name": "lunar"},
        "spec": {
            "owners": [{"kind": "User", "name": owner}],
            "additionalRoleBindings": bindings,
            "namespaceOptions": {"quota": 2},
        },
    });
    with_object(admin, &["apply"], object.to_string()).await.success().unwrap();
}

/// Waits until a list has the namespace `lunar-a`, or does not have it.
async fn until_listed(kubectl: &Kubectl, expected: bool) {
    probe::until("the list of namespaces", RIGHTS_TIMEOUT, || async {
        let listed = kubectl.run(["get", "namespaces", "-o", "name"]).await?.success()?.stdout;
        let is_so = listed.contains("namespace/lunar-a") == expected;
        Ok(if is_so { Probe::Ready(()) } else { Probe::NotYet(listed) })
    })
    .await
    .unwrap();
}

/// A person gains the right to see the namespace `lunar-a`, and loses it, while the namespace lives. An
/// event would need a version of the API server, so the watch ends instead.
pub(super) async fn ends_with_a_tenant_that_is_gained_or_lost(
    world: &World,
    admin: &Kubectl,
    owner: &str,
    (viewer, name): (&Kubectl, &str),
) {
    let watch = NamespaceWatch::open(viewer);
    watch.until_event(1, "ADDED", "solar-a").await;
    set_viewer(admin, owner, Some(name)).await;
    until_accepted(viewer, &["get", "configmaps", "-n", "lunar-a"]).await;
    assert!(!watch.until_ended().await.contains("lunar-a"));
    until_listed(viewer, true).await;
    let watch = NamespaceWatch::open(viewer);
    watch.until_event(1, "ADDED", "lunar-a").await;
    set_viewer(admin, owner, None).await;
    watch.until_ended().await;
    until_listed(viewer, false).await;
    let watch = NamespaceWatch::open(viewer);
    let said = watch.until_event(1, "ADDED", "solar-a").await;
    assert!(!said.contains("lunar-a"), "{said}");
    assert!(crate::object(world, &["namespace", "lunar-a"]).await.unwrap().is_some());
}
