//! A session of a person with memberships in several tenants.

use integration::kubectl::Kubectl;
use integration::person::Person;
use integration::probe::{self, Probe};
use integration::world::World;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::fixture::{Client, TIMEOUT, builder, install_kinds, person};
use super::llama_stack::{LSD, distribution, ready_model};
use crate::machines::{AUDIENCE, accept_builder, account_token, exchange};
use crate::object;
use crate::tenants::{TENANT_BROKER, until_served, with_object};

/// Creates a tenant with these owners, and waits until the broker has carried it out.
async fn tenant(world: &World, admin: &Kubectl, name: &str, owners: &[&str]) {
    let owners: Vec<_> = owners.iter().map(|it| json!({"kind": "User", "name": it})).collect();
    let object = json!({"apiVersion": TENANT_BROKER.1, "kind": "Tenant",
        "metadata": {"name": name},
        "spec": {"owners": owners, "namespaceOptions": {"quota": 2}}});
    with_object(admin, &["apply"], object.to_string()).await.success().unwrap();
    probe::until("the tenant", TIMEOUT, || async {
        let found = object_of(world, name).await?;
        let is_active = found["status"]["state"] == "Active";
        Ok(if is_active { Probe::Ready(()) } else { Probe::NotYet(found.to_string()) })
    })
    .await
    .unwrap();
}

async fn object_of(world: &World, tenant: &str) -> anyhow::Result<Value> {
    Ok(object(world, &[TENANT_BROKER.0, tenant]).await?.unwrap_or_default())
}

/// Waits until `GET /namespaces` has these names.
async fn until_listed(client: &Client, token: &str, names: &[&str]) {
    probe::until("the namespaces", TIMEOUT, || async {
        let found = client.get("/namespaces", token).await;
        let items = found.body["data"].as_array().cloned().unwrap_or_default();
        let listed: Vec<&str> = items.iter().filter_map(|item| item["name"].as_str()).collect();
        Ok(if listed == names { Probe::Ready(()) } else { Probe::NotYet(format!("{found:?}")) })
    })
    .await
    .unwrap();
}

fn models(namespace: &str) -> String {
    format!("/aaa/models?namespace={namespace}")
}

/// Checks that the calls of a request for a namespace were sent as an account of `home`.
async fn assert_sent_from(world: &World, client: &Client, token: &str, at: &str, home: &str) {
    // RBAC follows new bindings after a moment.
    let answer = probe::until("the models", TIMEOUT, || async {
        let answer = client.get(&models(at), token).await;
        let is_allowed = answer.status.is_success();
        Ok(if is_allowed { Probe::Ready(answer) } else { Probe::NotYet(format!("{answer:?}")) })
    });
    let answer = answer.await.unwrap();
    let events = world.cluster().audit_events(answer.request_id()).unwrap();
    let in_namespace = events.iter().filter(|event| {
        event["auditID"] == answer.request_id() && event["user"]["username"] != "tenant-broker"
    });
    let senders: Vec<&str> =
        in_namespace.map(|event| event["user"]["username"].as_str().unwrap()).collect();
    let account = format!("system:serviceaccount:{home}:");
    assert!(!senders.is_empty());
    assert!(senders.iter().all(|sender| sender.starts_with(&account)), "{at}: {senders:?}");
}

/// Checks that these namespaces are refused as one that does not exist is.
async fn assert_foreign(client: &Client, token: &str, namespaces: &[&str]) {
    for namespace in namespaces {
        let refused = client.get(&models(namespace), token).await;
        let text =
            format!("You don't have permission to access resources in namespace {namespace}");
        assert_eq!(refused.failure(403), text);
        client.install(namespace, token, &["granite"]).await.failure(403);
        client.delete(namespace, token, LSD).await.failure(403);
    }
}

/// Makes a person a member of a tenant, and creates the namespace `TENANT-a`.
async fn join_and_create_namespace(owner: &Person, tenant: &str) {
    let api = owner.api().await.unwrap();
    api.join_tenant(tenant).await.unwrap();
    api.create_tenant_namespace(tenant, &format!("{tenant}-a")).await.unwrap();
}

/// A world with the kinds of model services that serves Tenants, and kubectl of its administrator.
async fn world_with_tenants() -> (World, Kubectl) {
    let builder = builder().own_control_plane().installed("tenants.enabled", true);
    let world = builder.setting("drift_seconds", 3600).start().await.unwrap();
    install_kinds(&world).await;
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    (world, admin)
}

#[tokio::test]
async fn the_first_request_makes_the_membership() {
    let (world, admin) = world_with_tenants().await;
    let client = Client::new(&world);
    let (alice, session) = person(&world, "alice").await;
    let (bob, _) = person(&world, "bob").await;
    let (session, own) = (session.expose_secret(), alice.namespace());
    // A request for a namespace of the tenant.
    tenant(&world, &admin, "solar", &[alice.email(), bob.email()]).await;
    join_and_create_namespace(&bob, "solar").await;
    assert_sent_from(&world, &client, session, "solar-a", "tenant-solar").await;
    // The list of namespaces.
    tenant(&world, &admin, "lunar", &[alice.email(), bob.email()]).await;
    join_and_create_namespace(&bob, "lunar").await;
    let mut all = ["lunar-a", "solar-a", own.as_str()];
    all.sort_unstable();
    until_listed(&client, session, &all).await;
}

#[tokio::test]
async fn each_namespace_of_a_session_is_used_with_its_own_membership() {
    let (world, admin) = world_with_tenants().await;
    let client = Client::new(&world);
    let (alice, session) = person(&world, "alice").await;
    let (bob, _) = person(&world, "bob").await;
    let (session, own) = (session.expose_secret(), alice.namespace());
    for (name, owner) in [("solar", &alice), ("lunar", &alice), ("stellar", &bob)] {
        tenant(&world, &admin, name, &[owner.email()]).await;
        join_and_create_namespace(owner, name).await;
    }

    let mut all = ["lunar-a", "solar-a", own.as_str()];
    all.sort_unstable();
    until_listed(&client, session, &all).await;
    for (at, home) in [("solar-a", "tenant-solar"), ("lunar-a", "tenant-lunar"), (&own, &own)] {
        assert_sent_from(&world, &client, session, at, home).await;
    }
    let foreign = ["stellar-a", "tenant-stellar", "kube-system", "solar-missing", "missing"];
    assert_foreign(&client, session, &foreign).await;
    assert_foreign(&client, session, &[&bob.namespace()]).await;
    // A change goes with the membership, too.
    ready_model(&admin, "lunar-a", "granite").await;
    client.install("lunar-a", session, &["granite"]).await.data();
    assert!(distribution(&world, "lunar-a").await.is_some());
    let created = world.cluster().audit_events("llamastackdistributions").unwrap();
    let created: Vec<_> = created
        .iter()
        .filter(|event| event["verb"] == "create" && event["objectRef"]["namespace"] == "lunar-a")
        .collect();
    let [created] = created[..] else { panic!("{created:?}") };
    let sender = created["user"]["username"].as_str().unwrap();
    assert!(sender.starts_with("system:serviceaccount:tenant-lunar:"), "{sender}");

    // A session that is restricted to one membership has the namespaces of that one.
    let solar = alice.api().await.unwrap().tenant("solar").await.unwrap().workspace.unwrap();
    let solar = solar.to_string();
    accept_builder(&world, "default", &solar).await;
    let token = account_token(&world, "default", "builder", AUDIENCE).await;
    let (status, answer) = exchange(&world, &solar, &token).await;
    assert!(status.is_success(), "{answer}");
    let machine = answer["access_token"].as_str().unwrap();
    until_listed(&client, machine, &["solar-a"]).await;
    assert_sent_from(&world, &client, machine, "solar-a", "tenant-solar").await;
    assert_foreign(&client, machine, &["lunar-a", &own, "stellar-a", "missing"]).await;
    assert!(distribution(&world, "lunar-a").await.is_some());
    // The person's own session is as it was, although the broker restarted.
    until_listed(&client, session, &all).await;
}
