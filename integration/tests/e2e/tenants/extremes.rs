//! Input that the API server accepts and that the broker answers with a condition or a refusal: very
//! large, very often, and with names at the limits.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use integration::api::Api;
use integration::control_plane::BROKER_USER;
use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::World;
use kube::api::{Api as KubeApi, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};

use super::cluster::user;
use super::reconcile::{
    RECONCILE_TIMEOUT, has_condition, subjects, until, until_bound, until_status, world,
};
use super::{TENANT_BROKER, until_served, with_object};

const ALICE: &str = "alice@example.com";
/// Changes of a Tenant one after the other, and how many at a time.
const CHANGES: usize = 300;
const CONCURRENT_CHANGES: usize = 10;
/// Limit of the runs that these changes cause. A run sends several requests one after the other, and ten
/// changes take as long as one of them. So there are few runs on a slow machine, too.
const MAX_RUNS: usize = CHANGES / 5;
/// The controller's pause between two runs on one tenant.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

struct Fixture {
    world: World,
    admin: Kubectl,
    alice: Api,
}

impl Fixture {
    async fn apply(&self, name: &str, fields: &Value) {
        let mut spec = json!({"owners": [{"kind": "User", "name": ALICE}]});
        for (field, value) in fields.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let object = json!({"apiVersion": TENANT_BROKER.1, "kind": "Tenant",
            "metadata": {"name": name}, "spec": spec});
        // The annotation of a client-side apply has at most 256 KiB.
        let command = ["apply", "--server-side"];
        with_object(&self.admin, &command, object.to_string()).await.success().unwrap();
    }

    async fn create_namespace(&self, tenant: &str, name: &str) -> (StatusCode, String) {
        let path = format!("tenants/{tenant}/namespaces");
        let request = self.alice.request(Method::POST, &path).unwrap();
        let answer = request.json(&json!({"name": name})).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    async fn until_condition(&self, tenant: &str, kind: &str, text: &str) {
        until(&self.world, &[TENANT_BROKER.0, tenant], |tenant| {
            let status = &tenant["status"];
            has_condition(status, kind) && status.to_string().contains(text)
        })
        .await;
    }
}

#[tokio::test]
async fn extreme_input_gets_a_clear_answer_and_leaves_others_alone() {
    let world = world().await;
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let alice = world.person("alice").await.unwrap().api().await.unwrap();
    let fixture = Fixture { world, admin, alice };
    fixture.apply("solar", &json!({})).await;
    until_status(&fixture.world, |status| status["state"] == "Active").await;
    names_of_namespaces_are_checked(&fixture).await;
    roles_and_quotas_that_cannot_be_carried_out_are_conditions(&fixture).await;
    a_tenant_of_a_megabyte_harms_nobody_else(&fixture).await;
    a_tenant_that_changes_all_the_time_ends_as_its_last_version_says(&fixture).await;
}

async fn names_of_namespaces_are_checked(fixture: &Fixture) {
    let rule = "1 to 63 lower case letters";
    let longest = format!("solar-{}", "x".repeat(57));
    let (longer, dots) = (format!("{longest}x"), "solar-a.b".to_owned());
    for (name, text) in [
        (longer.as_str(), rule),
        ("solar-Production", rule),
        ("SOLAR-production", rule),
        ("solar-", rule),
        (dots.as_str(), rule),
        ("", rule),
        ("solar", "begin with solar-"),
        ("solarium-x", "begin with solar-"),
        ("tenant-solar", "reserved for the broker"),
    ] {
        let (status, text_of) = fixture.create_namespace("solar", name).await;
        // A body that breaks a limit of the API itself is refused before the rules of names.
        let is_named =
            text_of.contains(text) || text_of.contains("field `name` verification failed");
        assert!(status.is_client_error() && is_named, "{name}: {status} {text_of}");
        assert_ne!(status, StatusCode::NOT_FOUND, "{name}: {text_of}");
    }
    let (status, made) = fixture.create_namespace("solar", &longest).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    until_bound_to_alice(fixture, &longest).await;
    let listed = crate::object_list(&fixture.world, &["namespaces"]).await.unwrap();
    let of_solar = |it: &&Value| it["metadata"]["labels"]["tenant-broker.io/tenant"] == "solar";
    assert_eq!(listed.iter().filter(of_solar).count(), 2, "the home and the longest name");

    // The name of a namespace belongs to the tenant with the longest name that it begins with.
    fixture.apply("solar-wind", &json!({})).await;
    until(&fixture.world, &[TENANT_BROKER.0, "solar-wind"], |it| it["status"]["state"] == "Active")
        .await;
    let (status, refused) = fixture.create_namespace("solar", "solar-wind-x").await;
    assert!(
        status.is_client_error() && refused.contains("belong to tenant solar-wind"),
        "{refused}"
    );
    // The label of a tenant that does not exist.
    let (status, refused) = fixture.create_namespace("stellar", "stellar-x").await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{refused}");
}

async fn until_bound_to_alice(fixture: &Fixture, namespace: &str) {
    until(&fixture.world, &["rolebinding", "tenant-solar-admin", "-n", namespace], |binding| {
        subjects(binding).contains(ALICE)
    })
    .await;
}

async fn roles_and_quotas_that_cannot_be_carried_out_are_conditions(fixture: &Fixture) {
    let bind = |role: &str| json!({"clusterRoleName": role, "subjects": [user("bob")]});
    let bindings = json!([bind("secret-reader"), bind("edit")]);
    fixture.apply("solar", &json!({"additionalRoleBindings": bindings})).await;
    fixture.until_condition("solar", "RoleNotAllowed", "secret-reader").await;
    let namespace = format!("solar-{}", "x".repeat(57));
    until_bound(&fixture.world, &namespace, "edit", &["bob"]).await;
    until_bound(&fixture.world, &namespace, "secret-reader", &[]).await;

    let (status, made) = fixture.create_namespace("solar", "solar-second").await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    fixture.apply("solar", &json!({"namespaceOptions": {"quota": 1}})).await;
    fixture.until_condition("solar", "QuotaExceeded", "has 2 namespaces and a quota of 1").await;
    until_bound_to_alice(fixture, "solar-second").await;
    let (status, refused) = fixture.create_namespace("solar", "solar-third").await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{refused}");
    fixture.apply("solar", &json!({"namespaceOptions": {"quota": 5}})).await;
    until_status(&fixture.world, |status| status["state"] == "Active").await;
}

/// All subjects of a role are in one RoleBinding, which is then larger than the API server accepts.
async fn a_tenant_of_a_megabyte_harms_nobody_else(fixture: &Fixture) {
    let name = |number: usize| format!("{number:05}{}", "u".repeat(300));
    let subjects = |first: usize| -> Vec<Value> {
        (first * 256..(first + 1) * 256).map(|number| user(&name(number))).collect()
    };
    let bindings: Vec<Value> = (0..10)
        .map(|number| json!({"clusterRoleName": "view", "subjects": subjects(number)}))
        .collect();
    let large = json!({"additionalRoleBindings": bindings});
    assert!(large.to_string().len() > 900_000);
    fixture.apply("large", &large).await;
    let active = |tenant: &Value| tenant["status"]["state"] == "Active";
    until(&fixture.world, &[TENANT_BROKER.0, "large"], active).await;
    let (status, answer) = fixture.create_namespace("large", "large-a").await;
    let bound = ["rolebinding", "tenant-large-view", "-n", "large-a"];
    if status == StatusCode::CREATED {
        until(&fixture.world, &bound, |it| super::reconcile::subjects(it).len() == 2560).await;
    } else {
        fixture.until_condition("large", "ApplyFailed", "RoleBinding tenant-large-view").await;
        assert!(status.is_server_error() || status == StatusCode::ACCEPTED, "{status} {answer}");
    }
    // The other tenant goes on, and so does the large one once it is smaller.
    let (status, made) = fixture.create_namespace("solar", "solar-beside").await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    let smaller = json!({"additionalRoleBindings": [
        {"clusterRoleName": "view", "subjects": [user("bob")]}]});
    fixture.apply("large", &smaller).await;
    until(&fixture.world, &bound, |it| super::reconcile::subjects(it) == ["bob"].into()).await;
    until(&fixture.world, &[TENANT_BROKER.0, "large"], active).await;
}

/// Number of runs on tenants so far.
async fn runs(world: &World) -> u64 {
    let text = world.broker().metrics().await.unwrap();
    let name = "tenant_broker_tenant_reconciles_total{";
    let runs = text.lines().filter(|line| line.starts_with(name));
    runs.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Number of runs on the tenant `solar` so far: each of them lists its LimitRanges once.
fn runs_on_solar(world: &World) -> usize {
    let events = world.cluster().audit_events("limitranges").unwrap();
    let is_run = |event: &&Value| {
        let uri = event["requestURI"].as_str().unwrap_or_default();
        let (_, query) = uri.split_once('?').unwrap_or_default();
        let mut parameters = url::form_urlencoded::parse(query.as_bytes());
        event["user"]["username"] == BROKER_USER
            && event["verb"] == "list"
            && parameters.any(|(key, value)| {
                key == "labelSelector" && value == "tenant-broker.io/tenant=solar"
            })
    };
    events.iter().filter(is_run).count()
}

/// The number of changes of `spec` of the Tenant `solar` so far.
async fn generation(admin: &Kubectl) -> u64 {
    super::tenant(admin, TENANT_BROKER, "solar").await["metadata"]["generation"].as_u64().unwrap()
}

async fn a_tenant_that_changes_all_the_time_ends_as_its_last_version_says(fixture: &Fixture) {
    let client = fixture.world.cluster().admin().await.unwrap();
    let kind = GroupVersionKind::gvk("tenant-broker.io", "v1alpha1", "Tenant");
    let tenants: KubeApi<DynamicObject> = KubeApi::all_with(client, &ApiResource::from_gvk(&kind));
    let owners = |number: usize| {
        let user =
            json!({"kind": "User", "name": format!("user-{number}"), "clusterRoles": ["view"]});
        json!({"spec": {"owners": [{"kind": "User", "name": ALICE}, user]}})
    };
    let began = Instant::now();
    let (runs_before, changes_before) =
        (runs_on_solar(&fixture.world), generation(&fixture.admin).await);
    let tenants = &tenants;
    let change = |number: usize| {
        let patch = Patch::Merge(owners(number));
        async move {
            tenants.patch("solar", &PatchParams::default(), &patch).await.unwrap();
        }
    };
    for first in (0..CHANGES).step_by(CONCURRENT_CHANGES) {
        let batch = (first..first + CONCURRENT_CHANGES).map(change);
        futures_util::future::join_all(batch).await;
    }
    change(CHANGES).await;
    let last = format!("user-{CHANGES}");
    until_bound(&fixture.world, "solar-second", "view", &[&last]).await;
    until_status(&fixture.world, |status| status["state"] == "Active").await;
    // With the last one.
    let changes = generation(&fixture.admin).await - changes_before;
    assert_eq!(changes, u64::try_from(CHANGES).unwrap() + 1);
    let made = runs_on_solar(&fixture.world) - runs_before;
    assert!((1..MAX_RUNS).contains(&made), "{made} runs for {changes} changes");
    // The first run has no pause before it, one was perhaps under way, and one has no pause after it.
    let pauses = began.elapsed().as_millis() / MIN_INTERVAL.as_millis();
    let limit = pauses + 3;
    assert!(u128::try_from(made).unwrap() <= limit, "{made} runs, and not at most {limit}");
    // And then it is quiet: no run follows from what the broker itself wrote.
    let quiet = async || {
        let version = super::tenant(&fixture.admin, TENANT_BROKER, "solar").await;
        (version["metadata"]["resourceVersion"].clone(), runs(&fixture.world).await)
    };
    probe::until("no more runs", RECONCILE_TIMEOUT, || async {
        let seen = quiet().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let later = quiet().await;
        let is_quiet = seen == later;
        Ok(if is_quiet { Probe::Ready(()) } else { Probe::NotYet(format!("{seen:?} {later:?}")) })
    })
    .await
    .unwrap();
}
