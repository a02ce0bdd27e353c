//! Access reviews of the creation of a namespace of some name, compared with the creation itself.

use http::{Method, StatusCode};
use integration::api::Api;
use integration::world::World;
use serde_json::{Value, json};

use super::{NAMESPACES, send};
use crate::tenants::rest::until_active;
use crate::tenants::{TENANT_BROKER, until_served, with_object};

const ACCESS_REVIEWS: &str = "apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// What the gateway says to a `SelfSubjectAccessReview` with these `resourceAttributes`.
pub(super) async fn is_allowed(api: &Api, attributes: &Value) -> bool {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    });
    let (status, answer) = send(api, Method::POST, ACCESS_REVIEWS, Some(review)).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    answer["status"]["allowed"].as_bool().unwrap()
}

/// Signs a person in, and makes tenants that they own.
async fn owner(world: &World, name: &str, tenants: &[&str], has_prefixes: bool) -> Api {
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let person = world.person(name).await.unwrap();
    let api = person.api().await.unwrap();
    for tenant in tenants {
        let object = json!({
            "apiVersion": TENANT_BROKER.1,
            "kind": "Tenant",
            "metadata": {"name": tenant},
            "spec": {
                "owners": [{"kind": "User", "name": person.email()}],
                "namespaceOptions": {"forceTenantPrefix": has_prefixes},
            },
        });
        with_object(&admin, &["create"], object.to_string()).await.success().unwrap();
        until_active(&api, tenant).await;
    }
    api
}

#[tokio::test]
async fn reviews_with_a_name_say_what_creations_do() {
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    let builder = builder.installed("tenants.free_names", true);
    let world = builder.setting("drift_seconds", 3600).start().await.unwrap();
    let alice = owner(&world, "alice", &["solar"], true).await;
    let bob = owner(&world, "bob", &["cert", "solar-wind"], true).await;
    let carol = owner(&world, "carol", &["mars"], false).await;
    let erin = owner(&world, "erin", &["venus", "saturn"], false).await;
    for (caller, name, expected) in [
        (&alice, "solar-x", 201),
        (&alice, "stellar-x", 422),
        // It belongs to another tenant, also before that has it.
        (&alice, "solar-wind-x", 422),
        (&bob, "solar-wind-x", 201),
        (&bob, "cert-x", 201),
        // The operator protects it.
        (&bob, "cert-manager", 422),
        // Her tenant needs no prefix.
        (&carol, "crater", 201),
        (&carol, "solar-y", 422),
        (&carol, "kube-x", 422),
        (&carol, "tenant-x", 422),
        (&carol, "Crater", 422),
        // Only a label says for which of her tenants it would be.
        (&erin, "ring", 403),
        (&erin, "saturn-x", 201),
    ] {
        let asked = json!({"verb": "create", "resource": "namespaces", "name": name});
        let said = is_allowed(caller, &asked).await;
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let (status, answer) = send(caller, Method::POST, NAMESPACES, Some(object)).await;
        assert_eq!(status.as_u16(), expected, "{name}: {answer}");
        assert_eq!(said, status == StatusCode::CREATED, "{name}");
    }
}
