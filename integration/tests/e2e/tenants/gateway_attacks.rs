//! Attacks through the gateway by people of all kinds. What the policies refuse to the same people
//! directly is tested in `guards` and `direct_namespaces`, and what they refuse to the broker in
//! `fence`.

use http::{HeaderMap, Method, StatusCode};
use integration::api::Api;
use integration::world::World;
use serde_json::{Value, json};

use super::attempt::{Attempt, apply, attempt, labels, namespace, patch, post, put};
use super::cluster::{account, group, role_binding, user};
use super::cluster_state::ClusterState;
use crate::gateway::GATEWAY;

/// A text of the requests of this test, by which the API server's audit log is searched.
const AUDIT_MARKER: &str = "attack-7f3a";
const RBAC: &str = "apis/rbac.authorization.k8s.io/v1";

async fn send(api: &Api, attempt: &Attempt) -> (StatusCode, String) {
    let join = if attempt.path.contains('?') { '&' } else { '?' };
    let path = format!("{GATEWAY}/{}{join}fieldManager={AUDIT_MARKER}", attempt.path);
    let mut request = api.request(attempt.method.clone(), &path).unwrap();
    if let Some((kind, body)) = &attempt.body {
        request = request.header("content-type", *kind).body(body.to_string());
    }
    let answer = request.send().await.unwrap();
    (answer.status(), answer.text().await.unwrap())
}

/// Changes of namespaces themselves: theirs, another tenant's, a home, and one of nobody.
fn of_namespaces() -> Vec<Attempt> {
    let mut attempts = vec![attempt(Method::DELETE, "api/v1/namespaces")];
    for name in ["solar-a", "lunar-a", "tenant-solar", "kube-system"] {
        let path = format!("api/v1/namespaces/{name}");
        let moved =
            namespace(name, &labels(&json!({"tenant-broker.io/tenant": "lunar"}))["metadata"]);
        attempts.extend([
            patch(&path, labels(&json!({"tenant-broker.io/tenant": "lunar"}))),
            patch(&path, labels(&json!({"tenant-broker.io/tenant": null}))),
            patch(&path, labels(&json!({"pod-security.kubernetes.io/enforce": "privileged"}))),
            patch(
                &path,
                json!({"metadata": {"annotations":
                {"scheduler.alpha.kubernetes.io/node-selector": "pool=a"}}}),
            ),
            patch(&path, json!({"metadata": {"finalizers": ["example.com/hold"]}})),
            apply(&path, moved.clone()),
            put(&path, moved.clone()),
            put(format!("{path}/finalize"), moved.clone()),
            patch(format!("{path}/status"), labels(&json!({"team": "x"}))),
            put(format!("{path}/status"), moved),
        ]);
    }
    for name in ["lunar-a", "tenant-solar", "tenant-lunar", "kube-system"] {
        attempts.push(attempt(Method::DELETE, format!("api/v1/namespaces/{name}")));
    }
    attempts
}

/// Objects in homes, and ways to become an owner.
fn of_homes() -> Vec<Attempt> {
    let mut attempts = Vec::new();
    for home in ["tenant-solar", "tenant-lunar"] {
        let path = format!("api/v1/namespaces/{home}");
        let owner = role_binding(home, "mine", "tenant-owner", &json!([user("mallory")]));
        attempts.extend([
            post(format!("{path}/configmaps"), json!({"metadata": {"name": "x"}})),
            post(format!("{path}/serviceaccounts"), json!({"metadata": {"name": "member-x"}})),
            attempt(Method::GET, format!("{path}/serviceaccounts")),
            attempt(Method::GET, format!("{path}/secrets")),
            post(format!("{path}/serviceaccounts/default/token"), json!({"spec": {}})),
            post(format!("{RBAC}/namespaces/{home}/rolebindings"), owner),
            attempt(Method::DELETE, format!("{RBAC}/namespaces/{home}/rolebindings")),
        ]);
    }
    let tenants = "apis/tenant-broker.io/v1alpha1/tenants";
    let mine = json!({"apiVersion": "tenant-broker.io/v1alpha1", "kind": "Tenant",
        "metadata": {"name": "mine"}, "spec": {"owners": [{"kind": "User", "name": "mallory"}]}});
    attempts.extend([
        attempt(Method::GET, tenants),
        post(tenants, mine),
        patch(format!("{tenants}/solar"), json!({"spec": {"bindings": "Any"}})),
        patch(format!("{tenants}/solar/status"), json!({"status": {"size": 0}})),
        attempt(Method::DELETE, format!("{tenants}/solar")),
        post(
            format!("{RBAC}/clusterrolebindings"),
            json!({"metadata": {"name": "x"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "cluster-admin"}, "subjects": [user("mallory")]}),
        ),
    ]);
    attempts
}

/// What the broker keeps in a namespace, and whom owners bind.
fn of_bindings() -> Vec<Attempt> {
    let bindings = format!("{RBAC}/namespaces/solar-a/rolebindings");
    let bind = |name: &str, subject: Value| {
        post(&bindings, role_binding("solar-a", name, "view", &json!([subject])))
    };
    let own = account("solar-a", "default");
    vec![
        bind("x", user("mallory")),
        bind("x", group("developers")),
        bind("x", group("system:authenticated")),
        bind("x", account("lunar-a", "default")),
        bind("x", account("tenant-lunar", "member-x")),
        bind("tenant-solar-edit", own),
        attempt(Method::DELETE, format!("{bindings}/tenant-solar-admin")),
        attempt(Method::DELETE, &bindings),
        patch(format!("{bindings}/tenant-solar-admin"), json!({"subjects": [user("mallory")]})),
        post("api/v1/namespaces/solar-a/serviceaccounts/default/token", json!({"spec": {}})),
        attempt(Method::GET, "api/v1/namespaces/lunar-a/configmaps"),
        post("api/v1/namespaces/lunar-a/configmaps", json!({"metadata": {"name": "x"}})),
    ]
}

/// New namespaces that squat on names, or whose metadata decides something.
fn of_creations() -> Vec<Attempt> {
    let create =
        |name: &str, metadata: Value| post("api/v1/namespaces", namespace(name, &metadata));
    let none = || json!({});
    let labelled = |key: &str, value: &str| json!({"labels": {key: value}});
    vec![
        create("solar-a", none()),
        create("lunar-x", none()),
        create("tenant-stellar", none()),
        create("kube-x", none()),
        create("x", none()),
        create("solar-", none()),
        create("solar-X", none()),
        create(&format!("solar-{}", "x".repeat(58)), none()),
        create("solar-x", labelled("tenant-broker.io/home", "true")),
        create("solar-x", labelled("tenant-broker.io/bindings", "any")),
        create("solar-x", labelled("tenant-broker.io/workspace", "x")),
        create("solar-x", labelled("tenant-broker.io/tenant", "lunar")),
        create("solar-x", labelled("pod-security.kubernetes.io/enforce", "privileged")),
        create(
            "solar-x",
            json!({"annotations":
            {"scheduler.alpha.kubernetes.io/node-selector": "pool=a"}}),
        ),
        create("solar-x", json!({"finalizers": ["example.com/hold"]})),
        create(
            "solar-x",
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap",
            "name": "c", "uid": "00000000-0000-4000-8000-000000000000"}]}),
        ),
    ]
}

/// The identity of the broker: it lists namespaces for members, and does nothing else for them.
fn of_the_brokers_identity() -> Vec<Attempt> {
    vec![
        attempt(Method::GET, "api/v1/watch/namespaces"),
        attempt(Method::GET, "api/v1/watch/namespaces/lunar-a"),
        attempt(Method::GET, "api/v1/namespaces/lunar-a"),
        attempt(Method::GET, "api/v1/namespaces/lunar-a?watch=true"),
        attempt(Method::GET, "api/v1/namespaces/lunar-a/status"),
        attempt(Method::POST, "api/v1/namespaces/lunar-a"),
        attempt(Method::PATCH, "api/v1/namespaces"),
        attempt(Method::PUT, "api/v1/namespaces"),
        attempt(Method::GET, "api/v1/namespaces?labelSelector=a%29%2Cb+in+%28c"),
        attempt(Method::GET, "api/v1/pods"),
        attempt(Method::GET, "api/v1/secrets"),
        attempt(Method::GET, "apis/authorization.k8s.io/v1/namespaces"),
    ]
}

/// What the attacks are about. Members of the attackers' own tenants come and go in a home.
async fn state(world: &World) -> ClusterState {
    let state = ClusterState::read(world).await;
    state.without_accounts_of("tenant-solar").without_accounts_of("tenant-lunar")
}

/// Nobody of these does anything that they may not: an owner, an owner with the role `view` and a
/// viewer of solar, the owner of lunar, who is an outsider to solar, and somebody without a tenant.
pub(super) async fn are_refused(world: &World, people: &[(&str, Api)]) {
    let before = state(world).await;
    for (who, api) in people {
        let mut attempts = of_namespaces();
        attempts.extend(of_homes());
        attempts.extend(of_creations());
        if !who.contains("lunar") {
            attempts.extend(of_bindings());
            attempts.extend(of_the_brokers_identity());
        }
        for attempt in &attempts {
            let is_own = who.contains("lunar") && attempt.path.contains("lunar-");
            let creates_own = who.contains("lunar")
                && attempt.body.as_ref().is_some_and(|(_, it)| it["metadata"]["name"] == "lunar-x");
            if creates_own || (is_own && attempt.method == Method::DELETE) {
                continue;
            }
            let (status, answer) = send(api, attempt).await;
            let what = format!("{who}: {} {}", attempt.method, attempt.path);
            assert!(status.is_client_error(), "{what}: {status} {answer}");
        }
        an_upgrade_is_not_the_brokers(api).await;
        a_page_of_others_shows_nothing(world, api, who).await;
    }
    before.assert_same(&state(world).await);
    // The broker's identity did none of it. It lists namespaces by the tenants of the caller.
    let events = world.cluster().audit_events(AUDIT_MARKER).unwrap();
    assert!(!events.is_empty());
    let of_broker = events.iter().find(|event| event["user"]["username"] == "tenant-broker");
    assert_eq!(of_broker, None, "a request of a person had the broker's identity");
}

async fn an_upgrade_is_not_the_brokers(api: &Api) {
    let path = format!("{GATEWAY}/api/v1/namespaces?watch=true&fieldManager={AUDIT_MARKER}");
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ] {
        headers.insert(name, value.parse().unwrap());
    }
    let request = api.request(Method::GET, &path).unwrap().headers(headers);
    let answer = request.send().await.unwrap();
    assert_ne!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
}

/// A token that continues a list of all namespaces does not show others' to a member.
async fn a_page_of_others_shows_nothing(world: &World, api: &Api, who: &str) {
    let admin = world.admin_kubectl().unwrap();
    let page = admin.run(["get", "--raw", "/api/v1/namespaces?limit=1"]).await.unwrap();
    let page: Value = serde_json::from_str(&page.success().unwrap().stdout).unwrap();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let path = format!("{GATEWAY}/api/v1/namespaces?limit=500&continue={token}");
    let answer = api.request(Method::GET, &path).unwrap().send().await.unwrap();
    let (status, text) = (answer.status(), answer.text().await.unwrap());
    let list: Value = serde_json::from_str(&text).unwrap();
    assert!(status == StatusCode::OK || status.is_client_error(), "{who}: {status} {text}");
    let names = list["items"].as_array().into_iter().flatten();
    let names: Vec<_> = names.map(|it| it["metadata"]["name"].as_str().unwrap()).collect();
    let own = if who.contains("lunar") { "lunar-" } else { "solar-" };
    assert!(names.iter().all(|name| name.starts_with(own)), "{who}: {names:?}");
}
