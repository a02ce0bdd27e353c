//! A session that is restricted to one membership, as that of a machine. Its user owns two tenants, and
//! through the gateway the session uses the tenant of its membership only.

use http::{Method, StatusCode};
use integration::api::Api;
use integration::probe::{self, Probe};
use integration::world::World;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::reviews::is_allowed;
use super::{KUBECTL_TIMEOUT, NAMESPACES, send};
use crate::gateway::GATEWAY;
use crate::machines::{AUDIENCE, accept_builder, account_token, exchange};
use crate::tenants::reconcile::RECONCILE_TIMEOUT;
use crate::tenants::rest::until_active;
use crate::tenants::{TENANT_BROKER, until_served, with_object};

const SOLAR: &str = "solar";
const LUNAR: &str = "lunar";
const ALICE: &str = "alice@example.com";
const CAROL: &str = "carol@example.com";
const STORAGE_CLASSES: &str = "apis/storage.k8s.io/v1/storageclasses";

/// Alice owns both tenants and is a member of `solar`, of which the machine has a session. Carol owns
/// `lunar`, too, and is its only member.
struct Fixture {
    world: World,
    alice: Api,
    carol: Api,
    machine: Api,
    operator: Api,
}

impl Fixture {
    async fn start() -> Self {
        let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
        let builder = builder.installed("tenants.cluster_lists", "storageclasses");
        let world = builder.setting("drift_seconds", 3600).start().await.unwrap();
        let signed_in = async |name: &str| world.person(name).await.unwrap().api().await.unwrap();
        let (alice, carol) = (signed_in("alice").await, signed_in("carol").await);
        let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
        let lists = json!([{"kind": "StorageClasses", "operations": ["List"]}]);
        let lister = json!({"kind": "User", "name": ALICE, "proxySettings": lists});
        make_tenant(&world, SOLAR, &[json!({"kind": "User", "name": ALICE})]).await;
        make_tenant(&world, LUNAR, &[lister, json!({"kind": "User", "name": CAROL})]).await;
        for (owner, tenant, namespace) in [(&alice, SOLAR, "solar-a"), (&carol, LUNAR, "lunar-a")] {
            until_active(owner, tenant).await;
            owner.create_tenant_namespace(tenant, namespace).await.unwrap();
        }
        let machine = sign_in_machine(&world, &alice).await;
        Self { world, alice, carol, machine, operator }
    }

    /// The e-mail addresses of the members of `lunar`.
    async fn members_of_lunar(&self) -> Vec<String> {
        let members = self.operator.tenant_members(LUNAR).await.unwrap().items;
        members.into_iter().map(|member| member.email).collect()
    }
}

async fn make_tenant(world: &World, name: &str, owners: &[Value]) {
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let object = json!({
        "apiVersion": TENANT_BROKER.1,
        "kind": "Tenant",
        "metadata": {"name": name},
        "spec": {"owners": owners},
    });
    with_object(&admin, &["create"], object.to_string()).await.success().unwrap();
}

/// A session of a machine for the membership of this owner in `solar`.
async fn sign_in_machine(world: &World, owner: &Api) -> Api {
    let membership = owner.tenant(SOLAR).await.unwrap().workspace.unwrap().to_string();
    accept_builder(world, "default", &membership).await;
    let token = account_token(world, "default", "builder", AUDIENCE).await;
    let (status, answer) = exchange(world, &membership, &token).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let token = SecretString::from(answer["access_token"].as_str().unwrap().to_owned());
    let machine = world.anonymous_api().unwrap().with_token(token);
    // The broker was restarted, and reads the Tenants again.
    until_active(&machine, SOLAR).await;
    machine
}

#[tokio::test]
async fn a_session_for_one_membership_uses_its_tenant_only() {
    let fixture = Fixture::start().await;
    creations_are_refused(&fixture).await;
    requests_are_for_its_tenant(&fixture, &["solar-a"]).await;
    a_watch_shows_its_tenant(&fixture).await;
    assert_eq!(fixture.members_of_lunar().await, [CAROL]);

    the_person_uses_both_tenants(&fixture).await;
    // A membership that its user has meanwhile is not used either.
    creations_are_refused(&fixture).await;
    requests_are_for_its_tenant(&fixture, &["solar-a", "solar-b"]).await;
}

/// Checks that the gateway creates no namespace for the session, also none of its own tenant. Afterwards
/// the gateway reads again what the session may use.
async fn creations_are_refused(fixture: &Fixture) {
    let Fixture { world, machine, .. } = fixture;
    for (name, labels, text) in [
        ("solar-x", json!({}), "you own no tenant"),
        ("lunar-x", json!({}), "you own no tenant"),
        ("solar-x", json!({"tenant-broker.io/tenant": SOLAR}), "there is no such tenant"),
        ("lunar-x", json!({"tenant-broker.io/tenant": LUNAR}), "there is no such tenant"),
    ] {
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels},
        });
        let (status, refused) = send(machine, Method::POST, NAMESPACES, Some(object.clone())).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{refused}");
        assert!(refused["message"].as_str().unwrap().contains(text), "{refused}");
        let path = format!("{GATEWAY}/{NAMESPACES}/{name}?fieldManager=ci");
        let apply = machine.request(Method::PATCH, &path).unwrap();
        let apply = apply.header("content-type", "application/apply-patch+yaml");
        let applied = apply.body(object.to_string()).send().await.unwrap();
        assert_eq!(applied.status(), StatusCode::FORBIDDEN, "{object}");
        assert_eq!(crate::object(world, &["namespace", name]).await.unwrap(), None);
    }
}

/// The names of the namespaces in a list through the gateway.
async fn listed(api: &Api, query: &str) -> Vec<String> {
    let (status, list) = send(api, Method::GET, &format!("{NAMESPACES}{query}"), None).await;
    assert_eq!(status, StatusCode::OK, "{list}");
    let names = list["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]);
    names.map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// Checks what the session may read and write, with these namespaces of `solar`.
async fn requests_are_for_its_tenant(fixture: &Fixture, namespaces: &[&str]) {
    let machine = &fixture.machine;
    assert_eq!(listed(machine, "").await, namespaces);
    let of_lunar = "?labelSelector=tenant-broker.io/tenant%3Dlunar";
    assert_eq!(listed(machine, of_lunar).await, Vec::<String>::new());
    for (path, expected) in [
        ("api/v1/namespaces/solar-a", 200),
        ("api/v1/namespaces/solar-a/configmaps", 200),
        // As for a namespace of others.
        ("api/v1/namespaces/lunar-a", 404),
        ("api/v1/namespaces/tenant-lunar", 404),
        ("api/v1/namespaces/lunar-a/configmaps", 403),
        ("api/v1/namespaces/lunar-a/configmaps?watch=1", 403),
        ("api/v1/namespaces/lunar-a/configmaps/notes", 403),
        (STORAGE_CLASSES, 403),
    ] {
        let (status, answer) = send(machine, Method::GET, path, None).await;
        assert_eq!(status.as_u16(), expected, "{path}: {answer}");
    }
    for (namespace, expected) in [("solar-a", 201), ("lunar-a", 403)] {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "notes-"},
        });
        let path = format!("{NAMESPACES}/{namespace}/configmaps");
        let (status, answer) = send(machine, Method::POST, &path, Some(object)).await;
        assert_eq!(status.as_u16(), expected, "{path}: {answer}");
    }
    let path = format!("{NAMESPACES}/lunar-a");
    let (status, answer) = send(machine, Method::DELETE, &path, None).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
    reviews_say_the_same(machine).await;
}

async fn reviews_say_the_same(machine: &Api) {
    for (attributes, expected) in [
        (json!({"verb": "list", "resource": "namespaces"}), true),
        (json!({"verb": "create", "resource": "configmaps", "namespace": "solar-a"}), true),
        (json!({"verb": "create", "resource": "configmaps", "namespace": "lunar-a"}), false),
        (json!({"verb": "create", "resource": "namespaces"}), false),
        (json!({"verb": "create", "resource": "namespaces", "name": "solar-x"}), false),
        (json!({"verb": "list", "group": "storage.k8s.io", "resource": "storageclasses"}), false),
    ] {
        assert_eq!(is_allowed(machine, &attributes).await, expected, "{attributes}");
    }
}

/// Both tenants get a namespace during the watch. The events have the order of the creations.
async fn a_watch_shows_its_tenant(fixture: &Fixture) {
    let path = format!("{GATEWAY}/{NAMESPACES}?watch=1");
    let mut watch = fixture.machine.request(Method::GET, &path).unwrap().send().await.unwrap();
    assert_eq!(watch.status(), StatusCode::OK);
    fixture.carol.create_tenant_namespace(LUNAR, "lunar-b").await.unwrap();
    fixture.alice.create_tenant_namespace(SOLAR, "solar-b").await.unwrap();
    let events = async {
        let mut events = String::new();
        while !events.contains("\"solar-b\"") {
            let chunk = watch.chunk().await.unwrap().expect("the watch goes on");
            events += &String::from_utf8_lossy(&chunk);
        }
        events
    };
    let events = tokio::time::timeout(KUBECTL_TIMEOUT, events).await.expect("an event of solar-b");
    assert!(events.contains("\"solar-a\"") && !events.contains(LUNAR), "{events}");
}

/// A session of the person herself becomes a member of `lunar` by such requests.
async fn the_person_uses_both_tenants(fixture: &Fixture) {
    let alice = &fixture.alice;
    for path in [STORAGE_CLASSES, "api/v1/namespaces/lunar-a/configmaps"] {
        probe::until("the rights of the person", RECONCILE_TIMEOUT, || async {
            let (status, answer) = send(alice, Method::GET, path, None).await;
            let is_read = status == StatusCode::OK;
            Ok(if is_read { Probe::Ready(()) } else { Probe::NotYet(format!("{status} {answer}")) })
        })
        .await
        .unwrap();
    }
    assert_eq!(listed(alice, "").await, ["lunar-a", "lunar-b", "solar-a", "solar-b"]);
    assert_eq!(fixture.members_of_lunar().await, [ALICE, CAROL]);
}
