//! The namespaces that a caller may see, by each way.

use futures_util::future::join_all;
use http::Method;
use integration::acceptance::tenants::Fixture;
use integration::fault_proxy::{Fault, RecordedRequest, Rule};
use integration::kubectl::Kubectl;
use integration::raw_role_binding::{self, RawSubject};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::fixture::{
    ADM, Client, NONE, ONE, REG, TIMEOUT, apply, bind, builder, namespace_of, person, world,
};
use integration::probe::{self, Probe};
use integration::world::World;

fn names(list: &Value) -> Vec<String> {
    let items = list.as_array().unwrap().iter();
    items.map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

/// Creates RoleBindings that are larger together than a large page may be, in a namespace that comes
/// first.
async fn large_role_bindings(admin: &Kubectl) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "a-large"}});
    apply(admin, namespace.to_string()).await;
    let subjects: Vec<_> = (0..15_000)
        .map(|number| {
            json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io",
            "name": format!("other-{number:05}")})
        })
        .collect();
    for number in 0..8 {
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": format!("large-{number}"), "namespace": "a-large"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "view"},
            "subjects": subjects});
        let created = admin.run_with_input(["create", "-f", "-"], binding.to_string()).await;
        created.unwrap().success().unwrap();
    }
}

/// Makes a RoleBinding with a subject whose name is not UTF-8.
async fn role_binding_that_is_not_utf8(world: &World, admin: &Kubectl) {
    let namespace = "ns-not-utf8";
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    apply(admin, object.to_string()).await;
    let reg = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "reg"});
    bind(admin, namespace, &reg, "admin").await;
    let user = RawSubject { kind: "User", name: b"\xff", namespace: "" };
    // RBAC follows the binding of `reg` after a moment.
    probe::until("a RoleBinding that is not UTF-8", TIMEOUT, || async {
        let place = (namespace, &b"not-utf8"[..]);
        let (status, text) = raw_role_binding::create(world, REG, place, user).await?;
        Ok(if status == 201 { Probe::Ready(()) } else { Probe::NotYet(text) })
    })
    .await
    .unwrap();
}

/// Whether a request is for a page of the RoleBindings of all namespaces.
fn is_page(seen: &RecordedRequest) -> bool {
    seen.is(&Method::GET, "/v1/rolebindings") && !seen.query.contains("labelSelector")
}

fn is_page_of_metadata(seen: &RecordedRequest) -> bool {
    let accept = seen.headers.get("accept").and_then(|accept| accept.to_str().ok());
    is_page(seen) && accept.is_some_and(|accept| accept.contains("PartialObjectMetadataList"))
}

#[tokio::test]
async fn everybody_sees_exactly_what_they_may_read() {
    let world = builder().fault_proxy().start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    let client = Client::new(&world);
    for name in ["ns-user", "ns-group", "ns-account", "ns-named", "ns-secrets", "openshift-x"] {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name,
            "annotations": {"openshift.io/display-name": format!("The {name}")}}});
        apply(&admin, object.to_string()).await;
    }
    let subject = |kind: &str, name: &str| match kind {
        "ServiceAccount" => json!({"kind": kind, "name": name, "namespace": "ns-user"}),
        _ => json!({"kind": kind, "apiGroup": "rbac.authorization.k8s.io", "name": name}),
    };
    bind(&admin, "ns-user", &subject("User", "one"), "admin").await;
    bind(&admin, "ns-group", &subject("Group", "team"), "view").await;
    bind(&admin, "ns-account", &subject("ServiceAccount", "builder"), "edit").await;
    // A binding that gives no right to read the namespace makes a candidate and no more.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "List", "items": [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
         "metadata": {"name": "test-secrets-only"},
         "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
         "metadata": {"name": "test-named-namespace"},
         "rules": [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"],
                    "resourceNames": ["ns-named", "ns-missing"]}]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
         "metadata": {"name": "test-named-namespace"},
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                     "name": "test-named-namespace"},
         "subjects": [subject("User", "one")]},
        {"apiVersion": "v1", "kind": "ServiceAccount",
         "metadata": {"name": "builder", "namespace": "ns-user"}},
    ]});
    apply(&admin, role.to_string()).await;
    bind(&admin, "ns-secrets", &subject("User", "one"), "test-secrets-only").await;

    large_role_bindings(&admin).await;
    role_binding_that_is_not_utf8(&world, &admin).await;
    let proxy = world.proxy().unwrap();

    let expected = json!([
        {"name": "ns-group", "displayName": "The ns-group"},
        {"name": "ns-named", "displayName": "The ns-named"},
        {"name": "ns-user", "displayName": "The ns-user"},
    ]);
    // RBAC follows new bindings after a moment.
    probe::until("all namespaces", TIMEOUT, || async {
        let found = client.get("/namespaces", ONE).await;
        let is_complete = *found.data() == expected;
        Ok(if is_complete { Probe::Ready(()) } else { Probe::NotYet(format!("{found:?}")) })
    })
    .await
    .unwrap();
    // Of the page that is too large the metadata are read, and no smaller parts of it.
    let (pages, of_metadata) = (proxy.count(is_page), proxy.count(is_page_of_metadata));
    assert!(of_metadata > 0);
    assert_eq!(pages, of_metadata * 2);
    // Its namespaces are candidates, so the large ones are read as the caller.
    let reads = "/api/v1/namespaces/a-large";
    assert!(proxy.count(|seen| seen.is(&Method::GET, reads) && seen.has_token(ONE)) > 0);
    let token = admin.run(["create", "token", "builder", "-n", "ns-user"]).await.unwrap();
    let token = token.success().unwrap().stdout.trim().to_owned();
    let account = client.get("/namespaces", &token).await;
    assert_eq!(names(account.data()), ["ns-account"]);
    assert_eq!(client.get("/user", &token).await.body, json!({"userId": "builder"}));
    assert_eq!(*client.get("/namespaces", NONE).await.data(), json!([]));
    // Somebody who may list all sees all but those of the platform, and is asked nothing else.
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "test-adm"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": "cluster-admin"},
        "subjects": [subject("User", "adm")]});
    apply(&admin, binding.to_string()).await;
    let all = probe::until("the administrator's rights", TIMEOUT, || async {
        let found = client.get("/namespaces", ADM).await;
        let all = names(found.data());
        let is_all = all.contains(&"ns-secrets".to_owned());
        Ok(if is_all { Probe::Ready(all) } else { Probe::NotYet(format!("{found:?}")) })
    })
    .await
    .unwrap();
    assert!(all.is_sorted(), "{all:?}");
    for hidden in ["default", "kube-system", "openshift-x"] {
        assert!(!all.contains(&hidden.to_owned()), "{all:?}");
    }

    // The candidates' way equals asking for every namespace.
    for (as_user, token) in [("one", ONE), ("none", NONE)] {
        let user = format!("--as={as_user}");
        let group = if as_user == "one" { "--as-group=team" } else { "--as-group=nobody" };
        let listed = names(client.get("/namespaces", token).await.data());
        for name in &all {
            let args =
                ["auth", "can-i", &user, group, "get", &format!("namespaces/{name}"), "-n", name];
            let may = admin.run(args).await.unwrap().stdout.trim() == "yes";
            assert_eq!(listed.contains(name), may, "{as_user} {name}");
        }
    }
    failures_are_no_answers(&client, &world, &expected).await;
}

/// A failure is none of the answers, and a candidate is never an answer.
async fn failures_are_no_answers(client: &Client, world: &World, expected: &Value) {
    let proxy = world.proxy().unwrap();
    let fault = Fault::respond(http::StatusCode::INTERNAL_SERVER_ERROR);
    proxy.add(Rule::new(fault).when(|seen| seen.is(&Method::GET, "/namespaces/ns-group")));
    client.get("/namespaces", ONE).await.failure(500);
    proxy.clear();
    // So does Projects' failure lead to the way that is right everywhere, and so does its refusal of a
    // token that the API server accepts.
    for status in [http::StatusCode::SERVICE_UNAVAILABLE, http::StatusCode::UNAUTHORIZED] {
        let refused = Rule::new(Fault::respond(status));
        let refused = proxy.add(refused.when(|seen| seen.path.ends_with("/projects")));
        assert_eq!(*client.get("/namespaces", ONE).await.data(), *expected, "{status}");
        assert_eq!(refused.fired(), 1, "{status}");
        proxy.clear();
    }
    let series = "tenant_broker_model_services_tokens_refused_total";
    assert!(world.broker().metric(series).await.unwrap() < 1.0);
    // And so does a Projects API that does not answer.
    let projects = Rule::new(Fault::before(|_| std::future::pending()));
    let held = proxy.add(projects.when(|seen| seen.path.ends_with("/projects")));
    assert_eq!(*client.get("/namespaces", ONE).await.data(), *expected);
    assert_eq!(held.fired(), 1);
    proxy.clear();
    // The broker's own credential asks for names only: its reads are no answer.
    let fault = Fault::respond(http::StatusCode::FORBIDDEN);
    proxy.add(
        Rule::new(fault)
            .when(|seen| !seen.is_as_broker() && seen.path.starts_with("/api/v1/namespaces/")),
    );
    assert_eq!(*client.get("/namespaces", ONE).await.data(), json!([]));
}

#[tokio::test]
async fn a_session_sees_the_namespaces_of_its_workspaces() {
    let world = world().await;
    let client = Client::new(&world);
    let (alice, session) = person(&world, "alice").await;
    person(&world, "bob").await;
    let found = client.get("/namespaces", session.expose_secret()).await;
    assert_eq!(names(found.data()), [alice.namespace()]);
    namespace_of(&world, "namespaces-other", "reg", "admin").await;
    let again = client.get("/namespaces", session.expose_secret()).await;
    assert_eq!(names(again.data()), [alice.namespace()]);
}

#[tokio::test]
async fn the_namespaces_of_a_member_count_as_one_request_of_the_limit() {
    // The burst is four requests, so a member with six namespaces would have too many.
    const NAMESPACES: usize = 6;
    let builder = World::builder()
        .setting("model_services.enabled", true)
        .setting("tiers.basic.gateway_requests_per_second", 1);
    let fixture = Fixture::start(builder).await.unwrap();
    let alice = fixture.world.person("alice").await.unwrap();
    let owner = json!({"owners": [{"kind": "User", "name": alice.email()}]});
    fixture.apply("solar", &owner).await.unwrap();
    let api = alice.api().await.unwrap();
    probe::until("alice to join", TIMEOUT, || async {
        Ok(match api.join_tenant("solar").await {
            Ok(_) => Probe::Ready(()),
            Err(error) => Probe::NotYet(error.to_string()),
        })
    })
    .await
    .unwrap();
    let expected: Vec<String> = (0..NAMESPACES).map(|number| format!("solar-{number}")).collect();
    for name in &expected {
        api.create_tenant_namespace("solar", name).await.unwrap();
    }
    let session = alice.sign_in().await.unwrap().access_token;
    let client = Client::new(&fixture.world);
    let found = client.get("/namespaces", session.expose_secret()).await;
    assert_eq!(names(found.data()), expected);
    // A request counts, all the same. At once, so that a busy machine sends more than one a second.
    let requests = (0..20).map(|_| client.get("/namespaces", session.expose_secret()));
    let statuses: Vec<u16> =
        join_all(requests).await.iter().map(|answer| answer.status.as_u16()).collect();
    assert!(statuses.contains(&200) && statuses.contains(&429), "{statuses:?}");
}
