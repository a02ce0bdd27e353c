//! Suspension of tenants.

use std::time::Duration;

use http::{Method, StatusCode};
use integration::api::Api;
use integration::fault_proxy::{Fault, RecordedRequest, Rule};
use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};
use sqlx::{Connection as _, SqliteConnection};
use tenant_shared::{StepResult, SuspendRequest};
use uuid::Uuid;

use super::reconcile::{
    PRODUCTION, RECONCILE_TIMEOUT, create_namespace, has_condition, until, until_bound,
    until_status, world,
};
use super::{TENANT_BROKER, until_served, with_object};
use crate::until_logged;

/// A namespace with the label of the tenant that is not its own, because it has another name.
const FOREIGN: &str = "lunar-x";

/// Applies the Tenant `solar` with the owner alice and these further fields.
pub(super) async fn apply(admin: &Kubectl, fields: &Value) {
    let mut spec = json!({
        "owners": [{"kind": "User", "name": "alice", "clusterRoles": ["admin"]}],
        "resourceQuotas": {"items": [{"hard": {"pods": "4"}}]},
    });
    for (field, value) in fields.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let object = json!({
        "apiVersion": TENANT_BROKER.1, "kind": "Tenant", "metadata": {"name": "solar"}, "spec": spec,
    });
    with_object(admin, &["apply"], object.to_string()).await.success().unwrap();
}

/// Starts a world with the Tenant and a namespace in which alice has her role.
pub(super) async fn world_with_namespace(fields: &Value) -> (World, Kubectl) {
    let world = world().await;
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    apply(&admin, fields).await;
    until_bound(&world, "tenant-solar", "tenant-owner", &["alice"]).await;
    create_namespace(&admin, PRODUCTION).await;
    until_bound(&world, PRODUCTION, "admin", &["alice"]).await;
    (world, admin)
}

/// Has an administrator suspend or resume the tenant. A resumption waits until API servers have
/// forgotten the old tokens.
async fn change(operator: &Api, operation: &str) {
    let path = format!("tenants/solar/{operation}");
    let body = SuspendRequest { reason: Some("test".to_owned()) };
    let mut attempts = 0;
    loop {
        let request = operator.request(Method::POST, &path).unwrap().json(&body);
        let answer = request.send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        if matches!(status, StatusCode::OK | StatusCode::ACCEPTED) {
            return;
        }
        attempts += 1;
        let is_early = status == StatusCode::CONFLICT && text.contains("accept old tokens");
        assert!(is_early && attempts < 20, "{status}: {text}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Creates a RoleBinding, as an owner or administrator may do.
async fn bind(admin: &Kubectl, namespace: &str, name: &str, labels: Value) {
    let rbac = "rbac.authorization.k8s.io";
    let object = json!({
        "apiVersion": format!("{rbac}/v1"),
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "joe"}],
    });
    with_object(admin, &["create"], object.to_string()).await.success().unwrap();
}

fn is_marked(namespace: &Value) -> bool {
    namespace["metadata"]["labels"]["tenant-broker.io/suspended"] == "true"
}

/// Waits until the namespace and the home are labelled, and have no binding at all.
async fn until_revoked(world: &World) {
    for namespace in [PRODUCTION, "tenant-solar"] {
        until(world, &["namespace", namespace], is_marked).await;
        until(world, &["rolebindings", "-n", namespace], |list| {
            list["items"].as_array().is_none_or(Vec::is_empty)
        })
        .await;
    }
}

pub(super) async fn database(world: &World) -> SqliteConnection {
    SqliteConnection::connect(world.database_url().unwrap().as_str()).await.unwrap()
}

/// The state of the tenant in the response of the broker.
async fn tenant_state(api: &Api) -> String {
    let request = api.request(Method::GET, "tenants/solar").unwrap();
    let answer: Value = request.send().await.unwrap().json().await.unwrap();
    answer["state"].as_str().unwrap().to_owned()
}

/// Takes the lease of a tenant for an hour, as a replica that died with it, so that nobody reconciles
/// the tenant. Returns the name of the lease.
pub(super) async fn hold_lease(database: &mut SqliteConnection, tenant: &str) -> String {
    let id: Uuid = sqlx::query_scalar("SELECT id FROM tenants WHERE name = $1")
        .bind(tenant)
        .fetch_one(&mut *database)
        .await
        .unwrap();
    let lease = format!("tenant/{id}");
    sqlx::query(
        "INSERT INTO leases (name, holder, held_until) \
         VALUES ($1, randomblob(16), (unixepoch() + 3600) * 1000) ON CONFLICT (name) DO UPDATE \
         SET holder = randomblob(16), held_until = (unixepoch() + 3600) * 1000",
    )
    .bind(&lease)
    .execute(&mut *database)
    .await
    .unwrap();
    lease
}

pub(super) async fn end_lease(database: &mut SqliteConnection, lease: &str) {
    let ended = sqlx::query("DELETE FROM leases WHERE name = $1").bind(lease);
    ended.execute(database).await.unwrap();
}

/// Sets the status of the tenant in the database, as an administrator's request does.
async fn set_suspending(database: &mut SqliteConnection) {
    let statement = "UPDATE tenants SET status = 'suspending', \
                     status_changed_at = unixepoch() * 1000 WHERE name = 'solar'";
    let done = sqlx::query(statement).execute(database).await.unwrap();
    assert_eq!(done.rows_affected(), 1);
}

#[tokio::test]
async fn a_suspension_ends_all_rights_in_the_namespaces_of_the_tenant_and_no_others() {
    let (world, admin) = world_with_namespace(&json!({})).await;
    let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
    create_namespace(&admin, FOREIGN).await;
    until_status(&world, |status| has_condition(status, "NamespaceConflict")).await;
    for namespace in [PRODUCTION, FOREIGN] {
        bind(&admin, namespace, "own", json!({"tenant-broker.io/tenant": "solar"})).await;
    }

    change(&operator, "suspend").await;
    until_revoked(&world).await;
    until_status(&world, |status| status["state"] == "Suspended").await;
    let foreign = ["rolebinding", "own", "-n", FOREIGN];
    assert!(crate::object(&world, &foreign).await.unwrap().is_some(), "it is not the tenant's");
    let foreign = crate::object(&world, &["namespace", FOREIGN]).await.unwrap().unwrap();
    assert!(!is_marked(&foreign), "{foreign}");
    // A namespace that is made meanwhile gives nobody a right either.
    create_namespace(&admin, "solar-later").await;
    until(&world, &["namespace", "solar-later"], is_marked).await;
    // Nor does a binding, as one that the API server admitted before the label.
    for labels in [json!({"tenant-broker.io/tenant": "solar"}), json!({})] {
        bind(&admin, PRODUCTION, "later", labels).await;
        until_revoked(&world).await;
    }

    change(&operator, "resume").await;
    for namespace in [PRODUCTION, "solar-later"] {
        until_bound(&world, namespace, "admin", &["alice"]).await;
        until(&world, &["namespace", namespace], |namespace| !is_marked(namespace)).await;
    }
    until_bound(&world, "tenant-solar", "tenant-owner", &["alice"]).await;
    let own = ["rolebinding", "own", "-n", PRODUCTION];
    assert_eq!(crate::object(&world, &own).await.unwrap(), None, "owners bind anew");
    until_logged(world.broker(), "deleting other RoleBindings in a suspended tenant").await;
}

/// Such as a definition of the other API group that is broken. Here the broker may not read Tenants.
#[tokio::test]
async fn a_suspension_does_not_need_the_object() {
    let (world, admin) = world_with_namespace(&json!({})).await;
    let mut role = admin.json(["get", "clusterrole", "tenant-broker"]).await.unwrap();
    let rules = role["rules"].as_array_mut().unwrap();
    let before = rules.len();
    rules.retain(|rule| !rule["resources"].as_array().unwrap().contains(&json!("tenants")));
    assert!(rules.len() < before, "{role}");
    with_object(&admin, &["replace"], role.to_string()).await.success().unwrap();
    set_suspending(&mut database(&world).await).await;
    until_revoked(&world).await;
}

/// The lease is valid for far longer than the test may take.
#[tokio::test]
async fn a_replica_that_died_with_the_lease_does_not_delay_a_suspension() {
    let (world, _) = world_with_namespace(&json!({})).await;
    let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
    let mut database = database(&world).await;
    let lease = hold_lease(&mut database, "solar").await;
    set_suspending(&mut database).await;
    until_revoked(&world).await;
    let status: String = sqlx::query_scalar("SELECT status FROM tenants WHERE name = 'solar'")
        .fetch_one(&mut database)
        .await
        .unwrap();
    assert_eq!(status, "suspending", "only a replica with the lease records the end");
    assert_eq!(tenant_state(&operator).await, "Suspending", "clients wait for the end");

    end_lease(&mut database, &lease).await;
    probe::until("the end of the suspension", RECONCILE_TIMEOUT, || async {
        let state = tenant_state(&operator).await;
        Ok(if state == "Suspended" { Probe::Ready(()) } else { Probe::NotYet(state) })
    })
    .await
    .unwrap();
}

/// A world whose broker reaches the API server through a proxy, with the Tenant and a namespace in which
/// alice has her role.
async fn world_with_proxy() -> World {
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    let world = builder.fault_proxy().setting("drift_seconds", 3600).start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    apply(&admin, &json!({})).await;
    until_bound(&world, "tenant-solar", "tenant-owner", &["alice"]).await;
    create_namespace(&admin, PRODUCTION).await;
    until_bound(&world, PRODUCTION, "admin", &["alice"]).await;
    world
}

/// Longer than a run may take.
const HANGS: Duration = Duration::from_mins(2);

/// An owner with tens of thousands of namespaces makes the list long. The decision is older than a first
/// attempt, as after a crash.
#[tokio::test]
async fn a_list_that_hangs_keeps_no_rights_in_the_namespaces_that_the_broker_knows() {
    const SUSPEND: &str = "UPDATE tenants SET status = 'suspending', \
                           status_changed_at = (unixepoch() - 60) * 1000 WHERE name = 'solar'";
    let world = world_with_proxy().await;
    let lists = |seen: &RecordedRequest| {
        let is_list =
            seen.is(&Method::GET, "/namespaces") || seen.is(&Method::GET, "/rolebindings");
        is_list && seen.query.contains("solar") && !seen.query.contains("watch")
    };
    world.proxy().unwrap().add(Rule::new(Fault::delay(HANGS)).when(lists));
    sqlx::query(SUSPEND).execute(&mut database(&world).await).await.unwrap();
    until_revoked(&world).await;
    let statement = "SELECT status FROM tenants WHERE name = 'solar'";
    let status: String =
        sqlx::query_scalar(statement).fetch_one(&mut database(&world).await).await.unwrap();
    assert_eq!(status, "suspending", "other namespaces are not known yet");
    world.proxy().unwrap().clear();
}

/// The API server may have admitted the RoleBinding before the label, and a webhook have held it since.
#[tokio::test]
async fn a_suspension_that_is_open_deletes_bindings_that_appear_where_it_was_done() {
    const OTHER: &str = "solar-other";
    let world = world_with_proxy().await;
    let (admin, broker) = (world.admin_kubectl().unwrap(), world.broker());
    create_namespace(&admin, OTHER).await;
    until_bound(&world, OTHER, "admin", &["alice"]).await;
    let refused = |seen: &RecordedRequest| {
        seen.method == Method::DELETE && seen.path.contains(&format!("/{OTHER}/rolebindings"))
    };
    let refusal = Fault::respond(StatusCode::INTERNAL_SERVER_ERROR);
    world.proxy().unwrap().add(Rule::new(refusal).when(refused));
    let mut database = database(&world).await;
    set_suspending(&mut database).await;
    until_logged(broker, "a step of a tenant's suspension is open").await;
    for labels in [json!({"tenant-broker.io/tenant": "solar"}), json!({})] {
        bind(&admin, PRODUCTION, "later", labels).await;
        until_revoked(&world).await;
    }
    let statement = "SELECT status FROM tenants WHERE name = 'solar'";
    let status: String = sqlx::query_scalar(statement).fetch_one(&mut database).await.unwrap();
    assert_eq!(status, "suspending", "the other namespace has bindings");
    world.proxy().unwrap().clear();
    until_status(&world, |status| status["state"] == "Suspended").await;
    until(&world, &["rolebindings", "-n", OTHER], |list| {
        list["items"].as_array().is_none_or(Vec::is_empty)
    })
    .await;
}

/// A webhook for namespaces may hang.
#[tokio::test]
async fn members_lose_their_accounts_although_the_label_of_the_home_takes_long() {
    let world = world_with_proxy().await;
    let admin = world.admin_kubectl().unwrap();
    // The account of a member without a row, as after a restore.
    let name = "member-0190a5f0-0000-7000-8000-000000000001";
    let account = ["serviceaccount", name, "-n", "tenant-solar"].map(str::to_owned);
    for command in [&["create"][..], &["label", "tenant-broker.io/tenant=solar"]] {
        let (verb, labels) = command.split_first().unwrap();
        let command = [*verb].into_iter().chain(account.iter().map(String::as_str));
        admin.run(command.chain(labels.iter().copied())).await.unwrap().success().unwrap();
    }

    let labels = |seen: &RecordedRequest| seen.is(&Method::PATCH, "/namespaces/tenant-solar");
    let (sender, mut was_deleted) = tokio::sync::mpsc::unbounded_channel();
    let holds = Fault::before(move |_| {
        let (admin, sender, account) = (admin.clone(), sender.clone(), account.clone());
        async move {
            // The request of the broker has a timeout of 15 s.
            let deadline = tokio::time::Instant::now() + Duration::from_secs(12);
            let get = ["get", "--ignore-not-found", "-o", "name"].map(str::to_owned);
            let get = [&get[..], &account].concat();
            let mut is_there = true;
            while is_there && tokio::time::Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(200)).await;
                let got = admin.run(&get).await.unwrap().success().unwrap();
                is_there = !got.stdout.trim().is_empty();
            }
            sender.send(!is_there).unwrap();
        }
    });
    world.proxy().unwrap().add(Rule::new(holds).when(labels).nth(1));
    set_suspending(&mut database(&world).await).await;
    assert_eq!(was_deleted.recv().await, Some(true), "the account outlived the hold of the label");
    until_revoked(&world).await;
}

/// A run may hang in a request, or its machine may have paused it while another replica completed the
/// suspension. What it does later would undo the resumption.
#[tokio::test]
async fn a_resumption_ends_the_run_of_the_suspension() {
    const RESUME: &str = "UPDATE tenants SET status = 'resuming', \
                          status_changed_at = status_changed_at + 1 WHERE name = 'solar'";
    let world = world_with_proxy().await;
    let deletes = |seen: &RecordedRequest| {
        seen.method == Method::DELETE && seen.path.contains(&format!("/{PRODUCTION}/rolebindings"))
    };
    let hangs = Rule::new(Fault::delay(HANGS)).when(deletes).nth(1);
    let hangs = world.proxy().unwrap().add(hangs);
    let mut database = database(&world).await;
    set_suspending(&mut database).await;
    probe::until("the deletion", RECONCILE_TIMEOUT, || async {
        Ok(if hangs.fired() > 0 { Probe::Ready(()) } else { Probe::NotYet("none".to_owned()) })
    })
    .await
    .unwrap();
    sqlx::query(RESUME).execute(&mut database).await.unwrap();
    // A run ends at its time limit of 50 seconds at the latest.
    probe::until("the resumption", Duration::from_secs(30), || async {
        let statement = "SELECT status FROM tenants WHERE name = 'solar'";
        let status: String =
            sqlx::query_scalar(statement).fetch_one(&mut self::database(&world).await).await?;
        Ok(if status == "active" { Probe::Ready(()) } else { Probe::NotYet(status) })
    })
    .await
    .unwrap();
    until(&world, &["namespace", PRODUCTION], |namespace| !is_marked(namespace)).await;
    until_bound(&world, PRODUCTION, "admin", &["alice"]).await;
}

/// Otherwise an owner, who may weaken the level of a namespace that they create, would lock out all
/// others.
#[tokio::test]
async fn a_failure_in_one_namespace_keeps_nobody_from_the_others_after_a_resumption() {
    let (world, admin) = world_with_namespace(&json!({})).await;
    let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
    create_namespace(&admin, "solar-weak").await;
    until_bound(&world, "solar-weak", "admin", &["alice"]).await;
    let weaker = "pod-security.kubernetes.io/enforce=privileged";
    let relabel = ["label", "namespace", "solar-weak", "--overwrite", weaker];
    admin.run(relabel).await.unwrap().success().unwrap();
    until_status(&world, |status| has_condition(status, "ApplyFailed")).await;
    change(&operator, "suspend").await;
    until_revoked(&world).await;
    until_status(&world, |status| status["state"] == "Suspended").await;

    let resumed = probe::until("the resumption", RECONCILE_TIMEOUT, || async {
        Ok(match operator.resume_tenant("solar", &SuspendRequest::default()).await {
            Ok(answer) if answer.state == "Active" => Probe::Ready(answer),
            other => Probe::NotYet(format!("{other:?}")),
        })
    })
    .await
    .unwrap();
    let open: Vec<_> =
        resumed.steps.iter().filter(|step| step.result == StepResult::Open).collect();
    assert!(open.len() == 1 && open[0].step == "namespaces", "{resumed:?}");
    let detail = open[0].detail.as_deref().unwrap_or_default();
    assert!(detail.contains("solar-weak") && detail.contains("Pod Security"), "{resumed:?}");
    until_bound(&world, PRODUCTION, "admin", &["alice"]).await;
    until_bound(&world, "tenant-solar", "tenant-owner", &["alice"]).await;
    until(&world, &["namespace", "solar-weak"], |namespace| !is_marked(namespace)).await;
    let binding = ["rolebinding", "tenant-solar-admin", "-n", "solar-weak"];
    assert_eq!(crate::object(&world, &binding).await.unwrap(), None);
    until_status(&world, |it| it["state"] == "Degraded" && has_condition(it, "ApplyFailed")).await;

    let restricted = "pod-security.kubernetes.io/enforce=restricted";
    let relabel = ["label", "namespace", "solar-weak", "--overwrite", restricted];
    admin.run(relabel).await.unwrap().success().unwrap();
    until_bound(&world, "solar-weak", "admin", &["alice"]).await;
    let again = operator.resume_tenant("solar", &SuspendRequest::default()).await.unwrap();
    assert!(again.steps.iter().all(|step| step.result == StepResult::Done), "{again:?}");
}
