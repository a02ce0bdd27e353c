//! Tenants after the restore of a backup.

use std::time::Duration;

use http::{Method, StatusCode};
use integration::api::{Api, ApiError};
use integration::engine::On;
use integration::fault_proxy::{Fault, RecordedRequest, Rule};
use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::json;
use tenant_shared::{
    Code, RoleBindingName, SUSPENDED_LABEL, StepResult, SuspendRequest, TENANT_LABEL,
    TenantSuspension,
};

use super::reconcile::{PRODUCTION, RECONCILE_TIMEOUT, until, until_status, world};
use super::rest::{SOLAR, apply, until_active};
use super::{TENANT_BROKER, until_served};

/// How long runs of the controller wait for their list of namespaces.
const HELD: Duration = Duration::from_secs(20);

/// Resumes the tenant once that is allowed.
async fn resume(operator: &Api) -> TenantSuspension {
    probe::until("the resumption", RECONCILE_TIMEOUT, || async {
        Ok(match operator.resume_tenant(SOLAR, &SuspendRequest::default()).await {
            Ok(answer) if answer.state == "Active" => Probe::Ready(answer),
            other => Probe::NotYet(format!("{other:?}")),
        })
    })
    .await
    .unwrap()
}

async fn has_no_binding(world: &World, namespace: &str) {
    until(world, &["rolebindings", "-n", namespace], |list| {
        list["items"].as_array().is_none_or(Vec::is_empty)
    })
    .await;
}

/// The label of the home says so. The owners of a tenant with another database could create namespaces
/// without the label otherwise.
#[tokio::test]
async fn a_tenant_that_was_suspended_after_the_backup_stays_suspended() {
    let world = world().await;
    let (admin, broker) = (world.admin_kubectl().unwrap(), world.broker());
    until_served(&admin, TENANT_BROKER).await;
    let alice = world.person("alice").await.unwrap();
    let operator = world.administrator("operator").await.unwrap();
    apply(&admin, SOLAR, 5, &[(alice.email(), &["admin"])]).await;
    let api = alice.api().await.unwrap();
    until_active(&api, SOLAR).await;
    api.create_tenant_namespace(SOLAR, PRODUCTION).await.unwrap();
    let folder = world.folder().join("backup");
    let folder = folder.to_str().unwrap();
    broker.run(&["backup", "--to", folder]).await.unwrap().success().unwrap();

    let reason = SuspendRequest { reason: Some("leak".to_owned()) };
    operator.api().await.unwrap().suspend_tenant(SOLAR, &reason).await.unwrap();
    until_status(&world, |status| status["state"] == "Suspended").await;
    crate::backup::lose_database(&world, On::Sqlite).await;
    broker.run(&["restore", "--from", folder]).await.unwrap().success().unwrap();
    broker.start().await.unwrap();

    let (api, operator) = (alice.api().await.unwrap(), operator.api().await.unwrap());
    let code = probe::until("the refusal", RECONCILE_TIMEOUT, || async {
        Ok(match api.create_tenant_namespace(SOLAR, "solar-later").await {
            // The broker has not read all Tenants yet.
            Err(ApiError::Refused(it)) if it.code() == Code::WorkspaceNotReady => {
                Probe::NotYet(it.body)
            }
            Err(ApiError::Refused(it)) => Probe::Ready(it.code()),
            other => panic!("{other:?}"),
        })
    })
    .await
    .unwrap();
    assert_eq!(code, Code::TenantNotActive);
    let reasons = probe::until("the suspension", RECONCILE_TIMEOUT, || async {
        let rows = operator.audit_logs("action=SuspendTenant").await?.items;
        Ok(if rows.is_empty() { Probe::NotYet("no row".to_owned()) } else { Probe::Ready(rows) })
    })
    .await
    .unwrap();
    let reason = reasons[0].reason.as_deref().unwrap_or_default();
    assert!(reasons.len() == 1 && reason.starts_with("tenant solar: the home has"), "{reasons:?}");
    assert!(reasons[0].user_id.is_none(), "{reasons:?}");
    for namespace in [PRODUCTION, "tenant-solar"] {
        has_no_binding(&world, namespace).await;
    }
    let later = crate::object(&world, &["namespace", "solar-later"]).await.unwrap();
    assert_eq!(later, None);

    resume(&operator).await;
    api.create_tenant_namespace(SOLAR, "solar-later").await.unwrap();
    let rows = operator.audit_logs("action=SuspendTenant").await.unwrap().items;
    assert_eq!(rows.len(), 1, "{rows:?}");
}

/// A namespace with a binding of the broker is the tenant's, although its row was lost, and so is one that
/// a suspension labelled. The account of a member without a row would be taken over with its old tokens.
/// The run that could claim the namespaces is held.
#[tokio::test]
async fn a_suspension_reaches_a_namespace_and_a_member_without_a_row() {
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    let world = builder.fault_proxy().setting("drift_seconds", 3600).start().await.unwrap();
    let (admin, broker) = (world.admin_kubectl().unwrap(), world.broker());
    until_served(&admin, TENANT_BROKER).await;
    let (alice, bob) = (world.person("alice").await.unwrap(), world.person("bob").await.unwrap());
    let operator = world.administrator("operator").await.unwrap();
    let owners = [(alice.email(), &["admin"][..]), (bob.email(), &["admin"][..])];
    apply(&admin, SOLAR, 5, &owners).await;
    let (owner, member) = (alice.api().await.unwrap(), bob.api().await.unwrap());
    until_active(&owner, SOLAR).await;
    owner.create_tenant_namespace(SOLAR, "solar-first").await.unwrap();
    let folder = world.folder().join("backup");
    let folder = folder.to_str().unwrap();
    broker.run(&["backup", "--to", folder]).await.unwrap().success().unwrap();
    member.create_tenant_namespace(SOLAR, PRODUCTION).await.unwrap();
    let names = |kind: &'static str, namespace: &'static str| {
        let admin = admin.clone();
        async move {
            let listed = admin.run(&["get", kind, "-n", namespace, "-o", "name"]).await.unwrap();
            listed.success().unwrap().stdout
        }
    };
    let accounts = || async {
        let all = names("serviceaccounts", "tenant-solar").await;
        all.lines().filter(|name| name.contains("/member-")).count()
    };
    assert_eq!(accounts().await, 2);

    crate::backup::lose_database(&world, On::Sqlite).await;
    // What an attempt leaves that the restore interrupts.
    let marked = "solar-marked";
    let object = namespace_of_suspension(marked).to_string();
    admin.run_with_input(["create", "-f", "-"], object).await.unwrap().success().unwrap();
    let bind = ["create", "rolebinding", "app", "--clusterrole=view", "--serviceaccount"];
    let bind = [&bind[..], &["solar-marked:default", "-n", marked]].concat();
    admin.run(&bind).await.unwrap().success().unwrap();
    broker.run(&["restore", "--from", folder]).await.unwrap().success().unwrap();
    let held =
        world.proxy().unwrap().add(Rule::new(Fault::delay(HELD)).when(lists_of_solar).nth(1));
    broker.start().await.unwrap();
    let operator = operator.api().await.unwrap();
    probe::until("a run of the controller", RECONCILE_TIMEOUT, || async {
        Ok(if held.fired() > 0 { Probe::Ready(()) } else { Probe::NotYet("no list".to_owned()) })
    })
    .await
    .unwrap();
    assert_ne!(names("rolebindings", PRODUCTION).await, "");
    until_suspended(&operator).await;
    for namespace in [PRODUCTION, marked] {
        assert_eq!(names("rolebindings", namespace).await, "");
        let namespace = crate::object(&world, &["namespace", namespace]).await.unwrap().unwrap();
        assert_eq!(namespace["metadata"]["labels"][SUSPENDED_LABEL], "true");
    }
    assert_eq!(accounts().await, 0);
    crate::until_logged(broker, "found namespaces of a tenant without rows").await;

    let not_restored = resume(&operator).await.bindings_not_restored;
    let deleted = RoleBindingName { namespace: marked.to_owned(), name: "app".to_owned() };
    assert_eq!(not_restored, [deleted]);
    for namespace in [PRODUCTION, marked] {
        until(&world, &["namespace", namespace], |namespace| {
            namespace["metadata"]["labels"].get(SUSPENDED_LABEL).is_none()
        })
        .await;
        until(&world, &["rolebindings", "-n", namespace], |list| {
            list["items"].as_array().is_some_and(|items| !items.is_empty())
        })
        .await;
    }

    // A binding of the broker in a namespace that has lost its row and the label of the tenant.
    let refused = |seen: &RecordedRequest| {
        seen.method == Method::DELETE && seen.path.contains(&format!("/{PRODUCTION}/rolebindings"))
    };
    let refusal = Fault::respond(StatusCode::INTERNAL_SERVER_ERROR);
    world.proxy().unwrap().add(Rule::new(refusal).when(refused));
    let unlabel = format!("{TENANT_LABEL}-");
    let unlabelled = admin.run(&["label", "namespace", PRODUCTION, &unlabel]).await.unwrap();
    unlabelled.success().unwrap();
    until_status(&world, |status| {
        let namespaces = status["namespaces"].as_array();
        namespaces.is_some_and(|all| !all.iter().any(|it| it == PRODUCTION))
    })
    .await;
    let suspension = operator.suspend_tenant(SOLAR, &SuspendRequest::default()).await.unwrap();
    assert_is_open(&suspension, PRODUCTION);
    assert_ne!(names("rolebindings", PRODUCTION).await, "");
    world.proxy().unwrap().clear();
    until_suspended(&operator).await;
    assert_eq!(names("rolebindings", PRODUCTION).await, "");
}

/// A world in which the row of a namespace of `solar` says that it is another tenant's, as it was before a
/// move that a restore lost, and no run of the controller has noticed. The namespace has a RoleBinding
/// `app` of an owner.
async fn world_with_row_of_another_tenant() -> (World, Kubectl, Api) {
    const TO_LUNAR: &str = "UPDATE tenant_namespaces SET tenant_id = \
        (SELECT id FROM tenants WHERE name = 'lunar') WHERE name = 'solar-production';";
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    let world = builder.fault_proxy().setting("drift_seconds", 3600).start().await.unwrap();
    let (admin, broker) = (world.admin_kubectl().unwrap(), world.broker());
    until_served(&admin, TENANT_BROKER).await;
    let alice = world.person("alice").await.unwrap();
    let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
    apply(&admin, SOLAR, 5, &[(alice.email(), &["admin"])]).await;
    apply(&admin, "lunar", 5, &[("carol@example.com", &["admin"])]).await;
    let owner = alice.api().await.unwrap();
    until_active(&owner, SOLAR).await;
    until_active(&operator, "lunar").await;
    owner.create_tenant_namespace(SOLAR, PRODUCTION).await.unwrap();
    let bind = ["create", "rolebinding", "app", "--clusterrole=view", "-n", PRODUCTION];
    let bind = [&bind[..], &["--serviceaccount=solar-production:default"]].concat();
    admin.run(&bind).await.unwrap().success().unwrap();
    // So that its deletion is a change, as a watch shows it.
    let finalizer = r#"{"metadata": {"finalizers": ["example.com/hold"]}}"#;
    let patch = ["patch", "rolebinding", "app", "-n", PRODUCTION, "--type=merge", "-p", finalizer];
    admin.run(patch).await.unwrap().success().unwrap();

    broker.stop().await.unwrap();
    crate::upgrade::execute(&world, On::Sqlite, TO_LUNAR).await;
    let proxy = world.proxy().unwrap();
    let held = proxy.add(Rule::new(Fault::delay(HELD)).when(lists_of_solar).nth(1));
    broker.start().await.unwrap();
    probe::until("a run of the controller", RECONCILE_TIMEOUT, || async {
        Ok(if held.fired() > 0 { Probe::Ready(()) } else { Probe::NotYet("no list".to_owned()) })
    })
    .await
    .unwrap();
    (world, admin, operator)
}

/// Only the binding of the broker shows whose people have rights there, so it goes last.
#[tokio::test]
async fn a_suspension_ends_rights_in_a_namespace_that_another_tenant_has_by_its_row() {
    let (world, admin, operator) = world_with_row_of_another_tenant().await;
    let proxy = world.proxy().unwrap();
    let refused =
        |seen: &RecordedRequest| seen.is(&Method::DELETE, "/solar-production/rolebindings/app");
    proxy.add(Rule::new(Fault::respond(StatusCode::INTERNAL_SERVER_ERROR)).when(refused));
    let bindings = ["get", "rolebindings", "-n", PRODUCTION, "-o", "name"];
    let suspension = operator.suspend_tenant(SOLAR, &SuspendRequest::default()).await.unwrap();
    assert_is_open(&suspension, PRODUCTION);
    let left = admin.run(bindings).await.unwrap().success().unwrap().stdout;
    assert!(left.contains("/app") && left.contains("/tenant-solar-admin"), "{left}");
    // It grants nothing. The answer may come before, with open steps.
    let binding = ["rolebinding", "tenant-solar-admin", "-n", PRODUCTION];
    until(&world, &binding, |it| !it.is_null() && it.get("subjects").is_none()).await;
    proxy.clear();
    until_suspended(&operator).await;
    let left = admin.run(bindings).await.unwrap().success().unwrap().stdout;
    assert_eq!(left, "");
    let namespace = crate::object(&world, &["namespace", PRODUCTION]).await.unwrap().unwrap();
    assert_eq!(namespace["metadata"]["labels"].get(SUSPENDED_LABEL), None);
    let deleted = RoleBindingName { namespace: PRODUCTION.to_owned(), name: "app".to_owned() };
    assert_eq!(resume(&operator).await.bindings_not_restored, [deleted]);
}

/// The suspended tenant has no right to what the owners of the other tenant made.
#[tokio::test]
async fn a_suspension_spares_the_bindings_of_owners_in_a_namespace_that_was_just_taken_away() {
    let (world, admin, operator) = world_with_row_of_another_tenant().await;
    let emptied = |seen: &RecordedRequest| {
        seen.is(&Method::PATCH, "/solar-production/rolebindings/tenant-solar-admin")
    };
    let (relabel, label) = (admin.clone(), format!("{TENANT_LABEL}=lunar"));
    let taken_away = Fault::before(move |_| {
        let (relabel, label) = (relabel.clone(), label.clone());
        async move {
            let args = ["label", "namespace", PRODUCTION, "--overwrite", &label];
            relabel.run(&args).await.unwrap().success().unwrap();
        }
    });
    let rule = world.proxy().unwrap().add(Rule::new(taken_away).when(emptied).nth(1));
    operator.suspend_tenant(SOLAR, &SuspendRequest::default()).await.unwrap();
    until_suspended(&operator).await;
    assert_eq!(rule.fired(), 1, "the binding of the broker was emptied");
    let bindings = ["get", "rolebindings", "-n", PRODUCTION, "-o", "name"];
    let left = admin.run(bindings).await.unwrap().success().unwrap().stdout;
    assert!(left.contains("/app") && !left.contains("/tenant-solar-"), "{left}");
}

/// Asserts that a suspension has open steps because of a failure in a namespace, which it names.
fn assert_is_open(suspension: &TenantSuspension, namespace: &str) {
    assert_eq!(suspension.state, "Suspending", "{suspension:?}");
    let open = suspension.steps.iter().filter(|step| step.result == StepResult::Open);
    let open: Vec<_> = open.collect();
    let names: Vec<&str> = open.iter().map(|step| step.step.as_str()).collect();
    assert_eq!(names, ["namespaces", "finish"], "{suspension:?}");
    let detail = open[0].detail.as_deref().unwrap_or_default();
    assert!(detail.contains(&format!("in {namespace}: ")), "{suspension:?}");
}

/// Whether a run of the controller lists the namespaces of `solar`.
fn lists_of_solar(seen: &RecordedRequest) -> bool {
    seen.is(&Method::GET, "/namespaces")
        && seen.query.contains("solar")
        && !seen.query.contains("watch")
}

async fn until_suspended(operator: &Api) {
    probe::until("the suspension", RECONCILE_TIMEOUT, || async {
        let answer = operator.suspend_tenant(SOLAR, &SuspendRequest::default()).await?;
        let is_done = answer.state == "Suspended";
        Ok(if is_done { Probe::Ready(()) } else { Probe::NotYet(format!("{answer:?}")) })
    })
    .await
    .unwrap();
}

/// A namespace of `solar` with the label that a suspension writes.
fn namespace_of_suspension(name: &str) -> serde_json::Value {
    let labels = json!({TENANT_LABEL: SOLAR, SUSPENDED_LABEL: "true",
        "pod-security.kubernetes.io/enforce": "restricted"});
    let metadata = json!({"name": name, "labels": labels});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
}
