//! Tenants through the gateway, as members use them with kubectl.

mod names;
mod reviews;
mod session;
mod watch;

use std::time::Duration;

use http::{Method, StatusCode};
use integration::api::Api;
use integration::helm::Helm;
use integration::kubectl::Kubectl;
use integration::person::Person;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};
use tenant_shared::SuspendRequest;

use super::gateway_attacks::{self, Who};
use super::gateway_lists::a_page_of_the_own_list_continues_it;
use super::reconcile::{RECONCILE_TIMEOUT, subjects, until};
use super::{TENANT_BROKER, until_served, with_object};
use crate::gateway::helm::chart;
use crate::gateway::{GATEWAY, through_the_gateway};
use crate::until_logged;

/// Limit of the time until kubectl has printed something, or ends.
const KUBECTL_TIMEOUT: Duration = Duration::from_secs(30);
const NAMESPACES: &str = "api/v1/namespaces";
/// An owner of `solar` with the role `view`.
const VIEW_ONLY: &str = "vera@example.com";

/// A world with two tenants: alice owns `solar`, and bob may look at it; carol owns `lunar`.
struct Fixture {
    world: World,
    admin: Kubectl,
    alice: Person,
    viewer: Person,
    carol: Person,
}

impl Fixture {
    async fn start() -> Self {
        let builder = World::builder().own_control_plane().installed("tenants.enabled", true).tls();
        let builder = builder.setting("tiers.basic.gateway_requests_per_second", 1000);
        let world = builder.setting("drift_seconds", 3600).start().await.unwrap();
        let admin = world.admin_kubectl().unwrap();
        until_served(&admin, TENANT_BROKER).await;
        let alice = through_the_gateway(&world, "alice").await;
        let carol = through_the_gateway(&world, "carol").await;
        let viewer = world.person("bob").await.unwrap();
        for (tenant, owner) in [("solar", alice.email()), ("lunar", carol.email())] {
            apply(&admin, tenant, &[owner, "bob@example.com"]).await;
            until(&world, &[TENANT_BROKER.0, tenant], |it| it["status"]["state"] == "Active").await;
        }
        Self { world, admin, alice, viewer, carol }
    }
}

/// Gives a tenant an owner. If it is `solar`, it has an owner with the role `view` as well, and somebody
/// who may look at it.
async fn apply(admin: &Kubectl, tenant: &str, people: &[&str; 2]) {
    let [owner, viewer] = people;
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": viewer});
    let owner = json!({"kind": "User", "name": owner});
    let (owners, bindings) = match tenant {
        "solar" => {
            let view_only = json!({"kind": "User", "name": VIEW_ONLY, "clusterRoles": ["view"]});
            let bindings = json!([{"clusterRoleName": "view", "subjects": [subject]}]);
            (json!([owner, view_only]), bindings)
        }
        _ => (json!([owner]), json!([])),
    };
    let object = json!({
        "apiVersion": TENANT_BROKER.1,
        "kind": "Tenant",
        "metadata": {"name": tenant},
        "spec": {
            "owners": owners,
            "additionalRoleBindings": bindings,
            "namespaceOptions": {"quota": 2},
        },
    });
    with_object(admin, &["apply"], object.to_string()).await.success().unwrap();
}

async fn succeeds(kubectl: &Kubectl, args: &[&str]) -> String {
    kubectl.run(args).await.unwrap().success().unwrap().stdout
}

/// Runs a command that has to fail with these texts.
async fn fails(kubectl: &Kubectl, args: &[&str], texts: &[&str]) {
    let finished = kubectl.run(args).await.unwrap();
    assert!(!finished.status.success(), "{args:?}: {finished:?}");
    for text in texts {
        assert!(finished.stderr.contains(text), "{args:?} without {text:?}: {finished:?}");
    }
}

/// The names of the namespaces that kubectl lists.
async fn listed(kubectl: &Kubectl, args: &[&str]) -> Vec<String> {
    let args = [&["get", "namespaces", "-o", "name"][..], args].concat();
    let output = succeeds(kubectl, &args).await;
    output.lines().map(|line| line.trim_start_matches("namespace/").to_owned()).collect()
}

/// Sends a request through the gateway without kubectl.
async fn send(api: &Api, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
    let mut request = api.request(method, &format!("{GATEWAY}/{path}")).unwrap();
    if let Some(body) = body {
        request = request.json(&body);
    }
    let answer = request.send().await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}

#[tokio::test]
async fn owners_use_their_namespaces_with_kubectl() {
    let fixture = Fixture::start().await;
    a_namespace_works_at_once(&fixture).await;
    what_the_api_server_would_refuse_is_refused_alike(&fixture).await;
    namespaces_of_others_do_not_exist(&fixture).await;
    reviews_say_what_the_gateway_does(&fixture).await;
    a_file_with_a_namespace_and_its_objects_is_applied(&fixture).await;
    a_viewer_without_a_workspace_becomes_a_member(&fixture).await;
    attacks_are_refused(&fixture).await;
    helm_creates_the_namespace_of_a_release(&fixture).await;
    a_deletion_returns(&fixture).await;
    names::names_are_generated_and_free_once_their_namespaces_are_gone(&fixture).await;
    a_watch_follows_what_a_member_sees(&fixture).await;
    a_lost_role_ends_a_watch(&fixture).await;
    a_suspension_ends_a_watch(&fixture).await;
}

async fn a_namespace_works_at_once(fixture: &Fixture) {
    let kubectl = fixture.alice.kubectl();
    assert_eq!(listed(kubectl, &[]).await, Vec::<String>::new());
    succeeds(kubectl, &["create", "namespace", "solar-a"]).await;
    let made = ["create", "configmap", "notes", "--from-literal=a=b", "-n", "solar-a"];
    succeeds(kubectl, &made).await;
    succeeds(kubectl, &["get", "namespace", "solar-a"]).await;
    assert_eq!(listed(kubectl, &[]).await, ["solar-a"]);
    let table = succeeds(kubectl, &["get", "namespaces"]).await;
    assert!(table.starts_with("NAME") && table.lines().count() == 2, "{table}");
    // The personal workspace stays what the context names.
    succeeds(kubectl, &["get", "configmaps"]).await;
    succeeds(kubectl, &["get", "namespace", &fixture.alice.namespace()]).await;
    let namespace =
        crate::object(&fixture.world, &["namespace", "solar-a"]).await.unwrap().unwrap();
    assert_eq!(namespace["metadata"]["labels"]["tenant-broker.io/tenant"], "solar");
}

async fn what_the_api_server_would_refuse_is_refused_alike(fixture: &Fixture) {
    let kubectl = fixture.alice.kubectl();
    fails(kubectl, &["create", "namespace", "solar-a"], &["AlreadyExists"]).await;
    let rule = "namespace names of tenant solar begin with solar-; choose such a name";
    fails(kubectl, &["create", "namespace", "stellar-a"], &[rule]).await;
    fails(kubectl, &["create", "namespace", "solar-b", "--dry-run=server"], &["dryRun"]).await;
    let api = fixture.alice.api().await.unwrap();
    for (metadata, status) in [
        (json!({"name": "solar-b", "finalizers": ["example.com/x"]}), 422),
        (json!({"name": "solar-b", "labels": {"pod-security.kubernetes.io/enforce": "x"}}), 422),
        (json!({"name": "lunar-b", "labels": {"tenant-broker.io/tenant": "lunar"}}), 403),
        (json!({}), 422),
    ] {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        let (given, answer) = send(&api, Method::POST, NAMESPACES, Some(object)).await;
        assert_eq!((given.as_u16(), &answer["kind"]), (status, &json!("Status")), "{answer}");
    }
    assert_eq!(listed(kubectl, &[]).await, ["solar-a"]);
}

async fn namespaces_of_others_do_not_exist(fixture: &Fixture) {
    succeeds(fixture.carol.kubectl(), &["create", "namespace", "lunar-a"]).await;
    assert_eq!(listed(fixture.carol.kubectl(), &[]).await, ["lunar-a"]);
    let kubectl = fixture.alice.kubectl();
    for name in ["lunar-a", "kube-system", "tenant-lunar", "solar-none"] {
        fails(kubectl, &["get", "namespace", name], &["NotFound"]).await;
    }
    fails(kubectl, &["get", "pods", "-n", "lunar-a"], &["Forbidden"]).await;
    fails(kubectl, &["delete", "namespace", "lunar-a"], &["Forbidden"]).await;
    for selector in ["tenant-broker.io/tenant=lunar", "tenant-broker.io/home", "a in (b)"] {
        assert!(listed(kubectl, &["-l", selector]).await.is_empty(), "{selector}");
    }
    let field = ["--field-selector", "metadata.name=lunar-a"];
    assert!(listed(kubectl, &field).await.is_empty());
    // The gateway does not send what would end its own selector.
    let api = fixture.alice.api().await.unwrap();
    for selector in ["a)", "a),b in (c", "a,", "a%7Cb"] {
        let path = format!("{NAMESPACES}?labelSelector={}", selector.replace(',', "%2C"));
        let (status, answer) = send(&api, Method::GET, &path, None).await;
        assert_eq!((status.as_u16(), &answer["kind"]), (400, &json!("Status")), "{answer}");
    }
}

async fn reviews_say_what_the_gateway_does(fixture: &Fixture) {
    let mallory = through_the_gateway(&fixture.world, "mallory").await;
    for (person, args, answer) in [
        (&fixture.alice, &["create", "namespaces"][..], "yes"),
        (&fixture.alice, &["create", "namespaces/solar-x"], "yes"),
        (&fixture.alice, &["create", "namespaces/lunar-x"], "no"),
        (&fixture.alice, &["list", "namespaces", "-A"], "yes"),
        (&fixture.alice, &["watch", "namespaces", "-A"], "yes"),
        (&fixture.alice, &["create", "pods", "-n", "solar-a"], "yes"),
        (&fixture.alice, &["create", "pods", "-n", "lunar-a"], "no"),
        (&fixture.alice, &["list", "nodes"], "no"),
        (&mallory, &["create", "namespaces"], "no"),
        (&mallory, &["list", "namespaces", "-A"], "yes"),
    ] {
        let args = [&["auth", "can-i"][..], args].concat();
        let said = person.kubectl().run(&args).await.unwrap();
        assert_eq!(said.stdout.trim(), answer, "{args:?}: {said:?}");
    }
    let rules =
        succeeds(fixture.alice.kubectl(), &["auth", "can-i", "--list", "-n", "solar-a"]).await;
    assert!(rules.contains("deployments.apps"), "{rules}");
}

async fn a_file_with_a_namespace_and_its_objects_is_applied(fixture: &Fixture) {
    let kubectl = fixture.alice.kubectl();
    let watch = kubectl.spawn(["get", "namespaces", "-w"]).unwrap();
    let seen = async |text: &str| {
        watch.until_stdout(text, KUBECTL_TIMEOUT, |said| said.contains(text)).await.unwrap()
    };
    seen("solar-a").await;
    let file = "apiVersion: v1\nkind: Namespace\nmetadata: {name: solar-b, labels: {team: a}}\n---\n\
                apiVersion: v1\nkind: ConfigMap\nmetadata: {name: notes, namespace: solar-b}\n";
    let applied = kubectl.run_with_input(["apply", "-f", "-"], file).await.unwrap();
    applied.success().unwrap();
    let again = kubectl.run_with_input(["apply", "-f", "-"], file).await.unwrap();
    assert_eq!(
        again.stdout, "namespace/solar-b unchanged\nconfigmap/notes unchanged\n",
        "{again:?}"
    );
    assert_eq!(again.stderr, "", "{again:?}");
    let said = seen("solar-b").await;
    assert!(!said.contains("lunar") && !said.contains("tenant-solar"), "{said}");
    assert_eq!(listed(kubectl, &["-l", "team=a"]).await, ["solar-b"]);
    let quota = "exceeded namespace quota: tenant solar has 2 of 2; delete a namespace, or ask an \
                 administrator";
    fails(kubectl, &["create", "namespace", "solar-c"], &["Forbidden", quota]).await;
}

async fn a_viewer_without_a_workspace_becomes_a_member(fixture: &Fixture) {
    let api = fixture.viewer.api().await.unwrap();
    let (status, list) = send(&api, Method::GET, NAMESPACES, None).await;
    assert_eq!((status, &list["kind"]), (StatusCode::OK, &json!("NamespaceList")), "{list}");
    let names = list["items"].as_array().unwrap().iter().map(|it| &it["metadata"]["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["solar-a", "solar-b"]);
    let path = "api/v1/namespaces/solar-a/configmaps";
    // RBAC follows the bindings of a new member after a moment.
    probe::until("the rights of the viewer", RECONCILE_TIMEOUT, || async {
        let (status, read) = send(&api, Method::GET, path, None).await;
        let is_read = status == StatusCode::OK;
        Ok(if is_read { Probe::Ready(()) } else { Probe::NotYet(format!("{status} {read}")) })
    })
    .await
    .unwrap();
    let object = json!({"metadata": {"name": "mine"}});
    let (status, refused) = send(&api, Method::POST, path, Some(object)).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{refused}");
    let object = json!({"metadata": {"name": "solar-c"}});
    let (status, refused) = send(&api, Method::POST, NAMESPACES, Some(object)).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{refused}");
}

async fn attacks_are_refused(fixture: &Fixture) {
    let owner = fixture.alice.api().await.unwrap();
    a_page_of_the_own_list_continues_it(&owner, ["solar-a", "solar-b"]).await;
    // Otherwise the quota would refuse what other rules have to refuse.
    succeeds(fixture.alice.kubectl(), &["delete", "namespace", "solar-b"]).await;
    let api = async |name: &str| fixture.world.person(name).await.unwrap().api().await.unwrap();
    let view_only = fixture.world.person("vera").await.unwrap();
    let member = format!("member-{}", view_only.id());
    let view_only = view_only.api().await.unwrap();
    // The first attempt would make the membership, and so change what is compared.
    view_only.join_tenant("solar").await.unwrap();
    for (namespace, role) in [("solar-a", "view"), ("tenant-solar", "tenant-owner")] {
        let binding = format!("tenant-solar-{role}");
        let binding = ["rolebinding", &binding, "-n", namespace];
        until(&fixture.world, &binding, |it| subjects(it).contains(member.as_str())).await;
    }
    let people = [
        (Who::Owner, owner),
        (Who::ViewOnlyOwner, view_only),
        (Who::Viewer, fixture.viewer.api().await.unwrap()),
        (Who::OwnerOfLunar, fixture.carol.api().await.unwrap()),
        (Who::Nobody, api("eve").await),
    ];
    gateway_attacks::are_refused(&fixture.world, &people).await;
}

async fn helm_creates_the_namespace_of_a_release(fixture: &Fixture) {
    let kubectl = fixture.alice.kubectl();
    let helm = Helm::for_kubectl(kubectl).await.unwrap();
    let chart = chart(fixture.alice.home());
    let chart = chart.to_str().unwrap();
    let release = ["shop", chart, "--namespace", "solar-b", "--create-namespace"];
    // Helm looks for earlier releases before it creates the namespace, and nobody has a right in it yet.
    let upgrade = [&["upgrade", "--install"][..], &release].concat();
    let refused = helm.run(&upgrade).await.unwrap();
    assert!(!refused.status.success(), "{refused:?}");
    for text in ["secrets is forbidden", "in the namespace \"solar-b\""] {
        assert!(refused.stderr.contains(text), "without {text:?}: {refused:?}");
    }
    assert_eq!(listed(kubectl, &[]).await, ["solar-a"]);
    helm.run([&["install"][..], &release].concat()).await.unwrap().success().unwrap();
    assert_eq!(listed(kubectl, &[]).await, ["solar-a", "solar-b"]);
    helm.run(upgrade).await.unwrap().success().unwrap();
    let found = ["get", "configmap", "shop", "-n", "solar-b", "-o", "name"];
    assert_eq!(succeeds(kubectl, &found).await, "configmap/shop\n");
    // Helm looks for the objects of a release before it creates the namespace.
    let other = ["install", "shop", chart, "--namespace", "lunar-x", "--create-namespace"];
    let refused = helm.run(other).await.unwrap();
    assert!(refused.stderr.contains("forbidden"), "{refused:?}");
    fails(kubectl, &["get", "configmap", "shop", "-n", "lunar-x"], &["Forbidden"]).await;
    fails(kubectl, &["get", "configmap", "shop", "-n", "solar-x"], &["NotFound"]).await;
    helm.run(["uninstall", "shop", "--namespace", "solar-b"]).await.unwrap().success().unwrap();
}

async fn a_deletion_returns(fixture: &Fixture) {
    let kubectl = fixture.alice.kubectl();
    succeeds(kubectl, &["delete", "namespace", "solar-b"]).await;
    assert_eq!(listed(kubectl, &[]).await, ["solar-a"]);
    fails(kubectl, &["get", "namespace", "solar-b"], &["NotFound"]).await;
}

async fn a_watch_follows_what_a_member_sees(fixture: &Fixture) {
    let Fixture { world, admin, alice, carol, .. } = fixture;
    watch::has_an_event_for_each_namespace(world, admin, alice.kubectl()).await;
    let viewer = (alice.kubectl(), alice.email());
    let lunar = carol.email();
    watch::ends_with_a_tenant_that_is_gained_or_lost(world, admin, lunar, viewer).await;
}

/// The API server does not end a watch with the right.
async fn a_lost_role_ends_a_watch(fixture: &Fixture) {
    let watch = async |person: &Person| {
        let path = format!("{GATEWAY}/{NAMESPACES}/solar-a/configmaps?watch=1");
        let request = person.api().await.unwrap().request(Method::GET, &path).unwrap();
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        response
    };
    let (mut owners, mut viewers) = (watch(&fixture.alice).await, watch(&fixture.viewer).await);
    apply(&fixture.admin, "solar", &[fixture.alice.email(), "nobody@example.com"]).await;
    let end = async { while let Ok(Some(_)) = viewers.chunk().await {} };
    tokio::time::timeout(KUBECTL_TIMEOUT, end).await.expect("the watch of the former viewer ends");
    let made = ["create", "configmap", "later", "--from-literal=a=b", "-n", "solar-a"];
    succeeds(fixture.alice.kubectl(), &made).await;
    let event = async {
        let mut events = String::new();
        while !events.contains("\"later\"") {
            let chunk = owners.chunk().await.unwrap().expect("the watch of the owner goes on");
            events += &String::from_utf8_lossy(&chunk);
        }
    };
    tokio::time::timeout(KUBECTL_TIMEOUT, event).await.expect("the owner sees the ConfigMap");
    until_logged(fixture.world.broker(), "role lost").await;
}

async fn a_suspension_ends_a_watch(fixture: &Fixture) {
    let watch = fixture.alice.kubectl().spawn(["get", "namespaces", "-w"]).unwrap();
    watch.until_stdout("a list", KUBECTL_TIMEOUT, |said| said.contains("solar-a")).await.unwrap();
    let others = fixture.carol.kubectl().spawn(["get", "namespaces", "-w"]).unwrap();
    others.until_stdout("a list", KUBECTL_TIMEOUT, |said| said.contains("lunar-a")).await.unwrap();
    let operator = fixture.world.administrator("operator").await.unwrap().api().await.unwrap();
    let reason = SuspendRequest { reason: Some("leak".to_owned()) };
    operator.suspend_user(fixture.alice.id(), &reason).await.unwrap();
    watch.finish(KUBECTL_TIMEOUT).await.unwrap();
    assert!(others.process().status().is_none(), "another person's watch goes on");
    // A tenant that is lost closes the watch too, although no session or workspace is suspended.
    apply(&fixture.admin, "lunar", &["nobody@example.com", "bob@example.com"]).await;
    others.finish(KUBECTL_TIMEOUT).await.unwrap();
}
