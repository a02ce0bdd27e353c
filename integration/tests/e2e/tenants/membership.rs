//! People become members of tenants that name them, make namespaces, and lose their rights again.

use http::{Method, StatusCode};
use integration::api::Api;
use integration::kubectl::Kubectl;
use integration::person::Person;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};
use uuid::Uuid;

use super::reconcile::{RECONCILE_TIMEOUT, subjects, until, until_status, world};
use super::{TENANT_BROKER, until_served, with_object};
use crate::gateway::GATEWAY;

const ALICE: &str = "alice@example.com";
const CAROL: &str = "carol@example.com";
const FIRST: &str = "solar-a";

/// A world with the people of the test, and their sessions.
struct Fixture {
    world: World,
    admin: Kubectl,
    alice: (Person, Api),
    bob: (Person, Api),
    carol: (Person, Api),
    stranger: (Person, Api),
    operator: Api,
}

impl Fixture {
    async fn start() -> Self {
        let world = world().await;
        let admin = world.admin_kubectl().unwrap();
        until_served(&admin, TENANT_BROKER).await;
        let signed_in = async |name: &str| {
            let person = world.person(name).await.unwrap();
            let api = person.api().await.unwrap();
            (person, api)
        };
        let alice = signed_in("alice").await;
        let bob = signed_in("bob").await;
        let carol = signed_in("carol").await;
        let stranger = signed_in("mallory").await;
        let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
        let groups = format!("users/{}/groups", bob.0.id());
        let body = json!({"groups": ["developers"]});
        let (status, given) = call(&operator, Method::POST, &groups, Some(body)).await;
        assert_eq!(status, StatusCode::OK, "{given}");
        Self { world, admin, alice, bob, carol, stranger, operator }
    }

    /// Gives the tenant this only owner. Developers can look at its namespaces.
    async fn apply(&self, owner: &str) {
        let developers = json!({
            "kind": "Group", "name": "developers", "apiGroup": "rbac.authorization.k8s.io",
        });
        let object = json!({
            "apiVersion": TENANT_BROKER.1,
            "kind": "Tenant",
            "metadata": {"name": "solar"},
            "spec": {
                "owners": [{"kind": "User", "name": owner, "clusterRoles": ["admin"]}],
                "additionalRoleBindings": [
                    {"clusterRoleName": "view", "subjects": [developers]},
                ],
                "namespaceOptions": {"quota": 2},
            },
        });
        with_object(&self.admin, &["apply"], object.to_string()).await.success().unwrap();
    }

    /// Waits until the API server allows, or no longer allows, a member to do something with pods.
    async fn until_allowed(&self, user: Uuid, verb: &str, expected: bool) {
        let member = format!("--as=system:serviceaccount:tenant-solar:member-{user}");
        let what = format!("{verb} pods by {user}: {expected}");
        probe::until(&what, RECONCILE_TIMEOUT, || async {
            let args = ["auth", "can-i", verb, "pods", "-n", FIRST, &member];
            let answer = self.admin.run(args).await?;
            let is_allowed = answer.status.success();
            Ok(if is_allowed == expected { Probe::Ready(()) } else { Probe::NotYet(answer.stdout) })
        })
        .await
        .unwrap();
    }
}

async fn call(api: &Api, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
    let mut request = api.request(method, path).unwrap();
    if let Some(body) = body {
        request = request.json(&body);
    }
    let answer = request.send().await.unwrap();
    let status = answer.status();
    (status, answer.json().await.unwrap())
}

async fn get(api: &Api, path: &str) -> (StatusCode, Value) {
    call(api, Method::GET, path, None).await
}

async fn join(api: &Api) -> (StatusCode, Value) {
    call(api, Method::POST, "tenants/solar/members", None).await
}

async fn create(api: &Api, name: &str, labels: Value) -> (StatusCode, Value) {
    let body = json!({"name": name, "labels": labels});
    call(api, Method::POST, "tenants/solar/namespaces", Some(body)).await
}

/// Suspends or resumes the tenant until it has a state.
async fn until_state(fixture: &Fixture, operation: &str, state: &str) -> Value {
    let path = format!("tenants/solar/{operation}");
    probe::until(&path, RECONCILE_TIMEOUT, || async {
        let body = Some(json!({"reason": "test"}));
        let (_, answer) = call(&fixture.operator, Method::POST, &path, body).await;
        let is_so = answer["state"] == state;
        Ok(if is_so { Probe::Ready(answer) } else { Probe::NotYet(answer.to_string()) })
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn people_whom_a_tenant_names_become_members() {
    let fixture = Fixture::start().await;
    fixture.apply(ALICE).await;
    until_status(&fixture.world, |status| status["state"] == "Active").await;
    an_owner_joins_by_user_name_and_makes_a_namespace(&fixture).await;
    a_person_joins_by_group(&fixture).await;
    a_stranger_learns_nothing(&fixture).await;
    only_owners_and_administrators_see_the_members(&fixture).await;
    refused_namespaces_change_nothing(&fixture).await;
    a_suspended_tenant_has_no_members_with_rights(&fixture).await;
    a_suspended_user_loses_the_rights(&fixture).await;
    rights_end_with_the_owner_entry(&fixture).await;
}

async fn an_owner_joins_by_user_name_and_makes_a_namespace(fixture: &Fixture) {
    let (alice, api) = &fixture.alice;
    let (status, joined) = join(api).await;
    assert_eq!(status, StatusCode::CREATED, "{joined}");
    assert_eq!((&joined["tenant"], &joined["status"]), (&json!("solar"), &json!("provisioned")));
    let (status, again) = join(api).await;
    assert_eq!((status, &again["id"]), (StatusCode::OK, &joined["id"]), "{again}");

    let (status, made) = create(api, FIRST, json!({"team": "a"})).await;
    assert_eq!((status, &made["name"]), (StatusCode::CREATED, &json!(FIRST)), "{made}");
    assert_eq!(made["made_by"], json!(alice.id()));
    let namespace = crate::object(&fixture.world, &["namespace", FIRST]).await.unwrap().unwrap();
    let labels = &namespace["metadata"]["labels"];
    assert_eq!(
        (&labels["tenant-broker.io/tenant"], &labels["team"]),
        (&json!("solar"), &json!("a"))
    );
    fixture.until_allowed(alice.id(), "create", true).await;

    let (_, seen) = get(api, "tenants/solar").await;
    assert_eq!((&seen["is_owner"], &seen["workspace"]), (&json!(true), &joined["id"]), "{seen}");
    assert_eq!(seen["roles"][0]["cluster_role"], "admin", "{seen}");
    let given = json!([format!("owner User {ALICE}")]);
    assert_eq!(seen["roles"][0]["given_by"], given, "{seen}");
    let (_, listed) = get(api, "tenants/solar/namespaces").await;
    assert_eq!((&listed["items"][0]["name"], &listed["quota"]), (&json!(FIRST), &json!(2)));
}

async fn a_person_joins_by_group(fixture: &Fixture) {
    let (bob, api) = &fixture.bob;
    let (status, joined) = join(api).await;
    assert_eq!(status, StatusCode::CREATED, "{joined}");
    let name = ["rolebinding", "tenant-solar-view", "-n", FIRST];
    let account = format!("member-{}", bob.id());
    until(&fixture.world, &name, |binding| subjects(binding).contains(account.as_str())).await;
    fixture.until_allowed(bob.id(), "list", true).await;
    fixture.until_allowed(bob.id(), "create", false).await;
    let (_, seen) = get(api, "tenants/solar").await;
    assert_eq!(seen["is_owner"], json!(false), "{seen}");
    let (status, refused) = create(api, "solar-b", json!({})).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{refused}");
}

async fn a_stranger_learns_nothing(fixture: &Fixture) {
    let (stranger, api) = &fixture.stranger;
    let (status, listed) = get(api, "tenants").await;
    assert_eq!((status, &listed["items"]), (StatusCode::OK, &json!([])));
    let of = async |tenant: &str| {
        let members = format!("tenants/{tenant}/members");
        let namespaces = format!("tenants/{tenant}/namespaces");
        let namespace = Some(json!({"name": format!("{tenant}-x")}));
        let answers = [
            get(api, &format!("tenants/{tenant}")).await,
            get(api, &members).await,
            get(api, &namespaces).await,
            call(api, Method::POST, &members, None).await,
            call(api, Method::POST, &namespaces, namespace).await,
        ];
        answers.map(|(status, problem)| (status, problem["detail"].clone()))
    };
    let (theirs, unknown) = (of("solar").await, of("lunar").await);
    assert!(theirs.iter().all(|(status, _)| *status == StatusCode::NOT_FOUND), "{theirs:?}");
    assert_eq!(theirs, unknown);
    let account = format!("member-{}", stranger.id());
    let account = ["serviceaccount", &account, "-n", "tenant-solar"];
    assert_eq!(crate::object(&fixture.world, &account).await.unwrap(), None);
    for tenant in ["solar", "lunar"] {
        let path = format!("tenants/{tenant}/suspend");
        let (status, refused) = call(api, Method::POST, &path, Some(json!({}))).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{refused}");
    }
}

async fn only_owners_and_administrators_see_the_members(fixture: &Fixture) {
    for api in [&fixture.alice.1, &fixture.operator] {
        let (status, members) = get(api, "tenants/solar/members").await;
        assert_eq!(status, StatusCode::OK, "{members}");
        let items = members["items"].as_array().unwrap();
        let seen: Vec<_> = items.iter().map(|it| (&it["email"], &it["is_owner"])).collect();
        let expected = [(json!(ALICE), json!(true)), (json!("bob@example.com"), json!(false))];
        let expected: Vec<_> = expected.iter().map(|(email, owner)| (email, owner)).collect();
        assert_eq!(seen, expected);
    }
    let (status, refused) = get(&fixture.bob.1, "tenants/solar/members").await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{refused}");
}

async fn refused_namespaces_change_nothing(fixture: &Fixture) {
    let api = &fixture.alice.1;
    let taken = ["create", "namespace", "solar-taken"];
    fixture.admin.run(taken).await.unwrap().success().unwrap();
    let before = crate::object(&fixture.world, &["namespace", "solar-taken"]).await.unwrap();
    for (name, labels, expected) in [
        ("solar-taken", json!({}), Some(StatusCode::CONFLICT)),
        (FIRST, json!({}), Some(StatusCode::CONFLICT)),
        ("lunar-a", json!({}), None),
        ("tenant-lunar", json!({}), None),
        ("solar-b", json!({"pod-security.kubernetes.io/enforce": "privileged"}), None),
    ] {
        let (status, refused) = create(api, name, labels).await;
        assert!(status.is_client_error(), "{name}: {refused}");
        assert!(expected.is_none_or(|expected| status == expected), "{name}: {status} {refused}");
    }
    let after = crate::object(&fixture.world, &["namespace", "solar-taken"]).await.unwrap();
    assert_eq!(before, after, "a namespace that exists is not touched");
    // None of them counts: there is room for one more, and then no longer.
    let (status, made) = create(api, "solar-b", json!({})).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    let (status, full) = create(api, "solar-c", json!({})).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{full}");
    let detail = full["detail"].as_str().unwrap();
    assert!(detail.contains("exceeded namespace quota: tenant solar has 2 of 2"), "{detail}");
    let of_action = "audit-logs?action=CreateNamespace&limit=100";
    let (_, page) = get(&fixture.operator, of_action).await;
    let entries = page["items"].as_array().unwrap();
    let of = |name: &str, outcome: &str| {
        let reason = format!("namespace {name} of tenant solar");
        let is_it = |entry: &&Value| {
            let text = entry["reason"].as_str().unwrap_or_default();
            entry["outcome"] == outcome && text.split(": ").next() == Some(reason.as_str())
        };
        entries.iter().filter(is_it).count()
    };
    assert_eq!((of("solar-b", "success"), of("solar-c", "refused")), (1, 1), "{page}");
    assert_eq!(of("solar-taken", "refused"), 1, "{page}");
}

async fn a_suspended_tenant_has_no_members_with_rights(fixture: &Fixture) {
    let alice = fixture.alice.0.id();
    let suspended = until_state(fixture, "suspend", "Suspended").await;
    let steps = suspended["steps"].as_array().unwrap();
    let steps: Vec<_> = steps.iter().map(|step| (&step["step"], &step["result"])).collect();
    let done = json!("done");
    let names = ["record", "home", "members", "namespaces", "finish"].map(Value::from);
    assert_eq!(steps, names.each_ref().map(|name| (name, &done)));
    fixture.until_allowed(alice, "list", false).await;
    let (status, refused) = create(&fixture.alice.1, "solar-c", json!({})).await;
    assert!(status.is_client_error() && status != StatusCode::NOT_FOUND, "{status} {refused}");
    let again = until_state(fixture, "suspend", "Suspended").await;
    assert_eq!(again["name"], "solar");
    let (status, refused) =
        call(&fixture.alice.1, Method::POST, "tenants/solar/resume", Some(json!({}))).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{refused}");

    until_state(fixture, "resume", "Active").await;
    fixture.until_allowed(alice, "list", true).await;
    // Members have their ServiceAccounts again, so nobody waits for the sweep.
    let pods = format!("{GATEWAY}/api/v1/namespaces/{FIRST}/pods");
    let (status, listed) = get(&fixture.alice.1, &pods).await;
    assert_eq!(status, StatusCode::OK, "{listed}");
    let (_, page) = get(&fixture.operator, "audit-logs?action=SuspendTenant&limit=100").await;
    let entries = page["items"].as_array().unwrap();
    let recorded = entries.iter().filter(|entry| entry["reason"] == "tenant solar: test").count();
    assert_eq!(recorded, 1, "a repeated suspension is not recorded again: {page}");
}

async fn a_suspended_user_loses_the_rights(fixture: &Fixture) {
    let (bob, api) = &fixture.bob;
    let path = format!("users/{}/suspend", bob.id());
    let (status, suspended) = call(&fixture.operator, Method::POST, &path, Some(json!({}))).await;
    assert!(status.is_success(), "{suspended}");
    fixture.until_allowed(bob.id(), "list", false).await;
    let (status, refused) = join(api).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED, "{refused}");
}

async fn rights_end_with_the_owner_entry(fixture: &Fixture) {
    let (alice, api) = &fixture.alice;
    fixture.apply(CAROL).await;
    // The API server's object decides, so this does not wait for the broker's copy.
    let (status, refused) = create(api, "solar-c", json!({})).await;
    assert!(status.is_client_error(), "{status} {refused}");
    fixture.until_allowed(alice.id(), "list", false).await;
    let (carol, api) = &fixture.carol;
    let (status, joined) = join(api).await;
    assert_eq!(status, StatusCode::CREATED, "{joined}");
    fixture.until_allowed(carol.id(), "create", true).await;
}
