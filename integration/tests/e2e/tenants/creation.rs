//! Creations of namespaces that are repeated after a failure, or during which the tenant changes.

use std::sync::Arc;

use http::{Method, StatusCode};
use integration::api::{Api, ApiError};
use integration::fault_proxy::{Fault, Rule};
use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};
use tenant_shared::{Code, SUSPENDED_LABEL, SuspendRequest};

use super::reconcile::{RECONCILE_TIMEOUT, until};
use super::rest::{SOLAR, until_active};
use super::{TENANT_BROKER, until_served, with_object};

const FIRST: &str = "solar-a";
const ALICE: &str = "alice@example.com";
/// End of the path of the first request, whose body has the name of the namespace.
const NAMESPACES: &str = "/namespaces";
/// The requests of a creation in their order: ends of their paths, and how many there are.
const REQUESTS: [(&str, usize); 4] =
    [(NAMESPACES, 1), ("/resourcequotas", 1), ("/limitranges", 1), ("/rolebindings", 2)];

/// A world with a fault proxy in which alice owns a tenant, whose namespaces have a quota, limits and
/// two RoleBindings.
async fn world() -> (World, Api) {
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    let world = builder.fault_proxy().setting("drift_seconds", 3600).start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let alice = world.person("alice").await.unwrap();
    apply(&admin, ALICE).await;
    let api = alice.api().await.unwrap();
    until_active(&api, SOLAR).await;
    api.join_tenant(SOLAR).await.unwrap();
    (world, api)
}

/// Applies the Tenant with one owner.
async fn apply(admin: &Kubectl, owner: &str) {
    let limits = json!({"type": "Container", "default": {"cpu": "100m"}});
    let object = json!({
        "apiVersion": TENANT_BROKER.1,
        "kind": "Tenant",
        "metadata": {"name": SOLAR},
        "spec": {
            "owners": [{"kind": "User", "name": owner, "clusterRoles": ["admin", "view"]}],
            "resourceQuotas": {"scope": "Namespace", "items": [{"hard": {"pods": "4"}}]},
            "limitRanges": {"items": [{"limits": [limits]}]},
        },
    });
    with_object(admin, &["apply"], object.to_string()).await.success().unwrap();
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

/// Runs a callback once, after this request of a creation and before the broker gets its response.
fn after_request<F>(
    world: &World,
    namespace: &str,
    path_end: &str,
    hook: impl Fn() -> F + Send + Sync + 'static,
) -> Arc<Rule>
where
    F: Future<Output = ()> + Send + 'static,
{
    let is_of_namespace = path_end != NAMESPACES;
    let path_end =
        if is_of_namespace { format!("/{namespace}{path_end}") } else { path_end.to_owned() };
    let rule = Rule::new(Fault::after(move |_| hook()));
    world.proxy().unwrap().add(rule.when(move |seen| seen.is(&Method::POST, &path_end)).nth(1))
}

/// Names of the subjects of each binding that the broker made in a namespace.
async fn subjects(world: &World, namespace: &str) -> Vec<Vec<String>> {
    let selector = ["rolebindings", "-n", namespace, "-l", "tenant-broker.io/tenant=solar"];
    // kubectl prints nothing for an empty list.
    let list = crate::object(world, &selector).await.unwrap().unwrap_or_default();
    let bindings = list["items"].as_array().cloned().unwrap_or_default();
    let names = |binding: &Value| {
        let subjects = binding["subjects"].as_array().unwrap().iter();
        subjects.map(|subject| subject["name"].as_str().unwrap().to_owned()).collect()
    };
    bindings.iter().map(names).collect()
}

/// Whoever changes a tenant may not see what a creation is about to write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_creation_gives_nobody_a_right_that_was_taken_away_meanwhile() {
    let (world, api) = world().await;
    let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
    a_creation_is_on_record_with_its_request(&operator, &api).await;
    for (number, (path_end, _)) in REQUESTS.into_iter().enumerate() {
        an_owner_who_is_removed_is_not_bound(&world, &api, number, path_end).await;
        nobody_is_bound_after_a_suspension(&world, &operator, &api, number, path_end).await;
    }
}

async fn a_creation_is_on_record_with_its_request(operator: &Api, api: &Api) {
    api.create_tenant_namespace(SOLAR, "solar-record").await.unwrap();
    let rows = operator.audit_logs("action=CreateNamespace").await.unwrap().items;
    let row = rows.iter().find(|row| row.reason.as_deref().is_some_and(|it| it.contains("record")));
    assert!(row.is_some_and(|row| row.request_id.is_some()), "{rows:?}");
}

async fn an_owner_who_is_removed_is_not_bound(
    world: &World,
    api: &Api,
    number: usize,
    path_end: &str,
) {
    let name = format!("solar-removed{number}");
    let admin = world.admin_kubectl().unwrap();
    let rule = after_request(world, &name, path_end, {
        let admin = admin.clone();
        move || {
            let admin = admin.clone();
            async move { apply(&admin, "bob").await }
        }
    });
    let created = api.create_tenant_namespace(SOLAR, &name).await;
    assert_eq!(rule.fired(), 1);
    // The request was allowed when it was sent.
    created.unwrap();
    assert_eq!(subjects(world, &name).await, [["bob"], ["bob"]], "after {path_end}");
    world.proxy().unwrap().clear();
    apply(&admin, ALICE).await;
    until_owned(api).await;
}

/// Waits until the broker knows that alice owns the tenant.
async fn until_owned(api: &Api) {
    probe::until("the tenant to be owned", RECONCILE_TIMEOUT, || async {
        Ok(match api.tenant(SOLAR).await {
            Ok(tenant) if tenant.state == "Active" && tenant.is_owner => Probe::Ready(()),
            other => Probe::NotYet(format!("{other:?}")),
        })
    })
    .await
    .unwrap();
}

async fn nobody_is_bound_after_a_suspension(
    world: &World,
    operator: &Api,
    api: &Api,
    number: usize,
    path_end: &str,
) {
    let name = format!("solar-suspended{number}");
    let reason = SuspendRequest { reason: Some("test".to_owned()) };
    let rule = after_request(world, &name, path_end, {
        let (operator, reason) = (operator.clone(), reason.clone());
        move || {
            let (operator, reason) = (operator.clone(), reason.clone());
            async move { operator.suspend_tenant(SOLAR, &reason).await.map(drop).unwrap() }
        }
    });
    match api.create_tenant_namespace(SOLAR, &name).await {
        Err(ApiError::Refused(refused)) => assert_eq!(refused.code(), Code::TenantNotActive),
        other => panic!("after {path_end}: {other:?}"),
    }
    assert_eq!(rule.fired(), 1);
    assert!(subjects(world, &name).await.is_empty(), "after {path_end}");
    let proxy = world.proxy().unwrap();
    let written = proxy.count(|seen| seen.is(&Method::POST, &format!("/{name}/rolebindings")));
    if path_end != "/rolebindings" {
        assert_eq!(written, 0, "after {path_end}");
    }
    // The suspension includes a namespace that is not complete, and the resumption completes it.
    until(world, &["namespace", &name], |it| it["metadata"]["labels"][SUSPENDED_LABEL] == "true")
        .await;
    proxy.clear();
    probe::until("the resumption", RECONCILE_TIMEOUT, || async {
        Ok(match operator.resume_tenant(SOLAR, &reason).await {
            Ok(answer) if answer.state == "Active" => Probe::Ready(()),
            other => Probe::NotYet(format!("{other:?}")),
        })
    })
    .await
    .unwrap();
    probe::until("the rights of the owner", RECONCILE_TIMEOUT, || async {
        let subjects = subjects(world, &name).await;
        let are_bound = |names: &Vec<String>| names.iter().any(|it| it == ALICE);
        let is_complete = subjects.len() == 2 && subjects.iter().all(are_bound);
        Ok(if is_complete { Probe::Ready(()) } else { Probe::NotYet(format!("{subjects:?}")) })
    })
    .await
    .unwrap();
    assert_eq!(made(world, &name).await, [1, 1, 2], "after {path_end}");
}
