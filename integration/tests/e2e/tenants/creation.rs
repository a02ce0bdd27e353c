//! A creation of a namespace that is repeated after a failure.

use http::{Method, StatusCode};
use integration::api::Api;
use integration::fault_proxy::{Fault, Rule};
use integration::world::World;
use serde_json::json;

use super::rest::{SOLAR, until_active};
use super::{TENANT_BROKER, until_served, with_object};

const FIRST: &str = "solar-a";
/// The requests of a creation in their order: ends of their paths, and how many there are.
const REQUESTS: [(&str, usize); 4] =
    [("/namespaces", 1), ("/resourcequotas", 1), ("/limitranges", 1), ("/rolebindings", 2)];

/// A world with a fault proxy in which alice owns a tenant, whose namespaces have a quota, limits and
/// two RoleBindings.
async fn world() -> (World, Api) {
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    let world = builder.fault_proxy().setting("drift_seconds", 3600).start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let alice = world.person("alice").await.unwrap();
    let limits = json!({"type": "Container", "default": {"cpu": "100m"}});
    let object = json!({
        "apiVersion": TENANT_BROKER.1,
        "kind": "Tenant",
        "metadata": {"name": SOLAR},
        "spec": {
            "owners": [{"kind": "User", "name": alice.email(), "clusterRoles": ["admin", "view"]}],
            "resourceQuotas": {"scope": "Namespace", "items": [{"hard": {"pods": "4"}}]},
            "limitRanges": {"items": [{"limits": [limits]}]},
        },
    });
    with_object(&admin, &["apply"], object.to_string()).await.success().unwrap();
    let api = alice.api().await.unwrap();
    until_active(&api, SOLAR).await;
    api.join_tenant(SOLAR).await.unwrap();
    (world, api)
}

/// Number of the objects of each kind in a namespace that the broker made.
async fn made(world: &World, namespace: &str) -> Vec<usize> {
    let mut counts = Vec::new();
    for kind in ["resourcequotas", "limitranges", "rolebindings"] {
        let selector = ["-n", namespace, "-l", "tenant-broker.io/tenant=solar"];
        let args = [&[kind][..], &selector].concat();
        counts.push(crate::object_list(world, &args).await.unwrap().len());
    }
    counts
}

/// The answer must not say that the owner has rights before they have them.
#[tokio::test]
async fn a_repeated_creation_waits_until_the_namespace_is_complete() {
    let (world, api) = world().await;
    let (path_end, count) = REQUESTS[3];
    let rule = Rule::new(Fault::respond(StatusCode::INTERNAL_SERVER_ERROR))
        .when(move |seen| seen.is(&Method::POST, &format!("/{FIRST}{path_end}")))
        .within(1..=count);
    let rule = world.proxy().unwrap().add(rule);
    api.create_tenant_namespace(SOLAR, FIRST).await.expect_err("no RoleBinding was made");
    assert_eq!(rule.fired(), count);
    let again = api.create_tenant_namespace(SOLAR, FIRST).await.unwrap();
    assert_eq!((again.name.as_str(), again.status.as_str()), (FIRST, "active"));
    assert_eq!(made(&world, FIRST).await, [1, 1, 2]);
}
