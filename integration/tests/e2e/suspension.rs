//! Suspension and resumption: the kill switch.

use std::time::Duration;

use http::{Method, StatusCode};
use integration::fault_proxy::{Fault, Rule};
use integration::probe::{self, Probe};
use integration::world::World;
use tenant_shared::{Code, StepResult, SuspendRequest, WorkspaceStatus};

/// Limit of the time until the sweep has finished, which may wait for a claim of 45 s.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(90);

fn reason(text: &str) -> SuspendRequest {
    SuspendRequest { reason: Some(text.to_owned()) }
}

#[tokio::test]
async fn suspend_revokes_all_access_and_resume_revives_no_old_token() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let operator = world.administrator("operator").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    let (api, admin) = (alice.api().await.unwrap(), operator.api().await.unwrap());
    let id = api.workspaces(false).await.unwrap().items[0].id;

    // A stolen token, and a backdoor that the tenant prepared.
    let stolen = world.folder().join("stolen.kubeconfig");
    std::fs::write(&stolen, api.kubeconfig("static").await.unwrap()).unwrap();
    let stolen = world.kubectl_with(&stolen).unwrap();
    alice
        .kubectl()
        .run(["create", "serviceaccount", "back-door"])
        .await
        .unwrap()
        .success()
        .unwrap();
    let subject = format!("--serviceaccount={}:back-door", alice.namespace());
    alice
        .kubectl()
        .run(["create", "rolebinding", "back-door", "--clusterrole=admin", &subject])
        .await
        .unwrap()
        .success()
        .unwrap();
    stolen.run(["get", "secrets"]).await.unwrap().success().unwrap();

    let suspension = admin.suspend(id, &reason("leaked laptop")).await.unwrap();
    assert_eq!(suspension.status, WorkspaceStatus::Suspended);
    let steps: Vec<&str> = suspension.steps.iter().map(|step| step.step.as_str()).collect();
    assert_eq!(
        steps,
        [
            "record",
            "label_namespace",
            "delete_role_bindings",
            "delete_service_account",
            "close_streams",
            "finish"
        ]
    );
    assert!(suspension.steps.iter().all(|step| step.result == StepResult::Done));
    // A resumption in the first ten seconds is too early.
    let early = super::refused(admin.resume(id, &SuspendRequest::default()).await);
    assert_eq!((early.status, early.code()), (StatusCode::CONFLICT, Code::WorkspaceNotReady));
    assert!(early.retry_after().is_some_and(|seconds| seconds <= 10));

    let after = stolen.run(["get", "secrets"]).await.unwrap();
    assert!(!after.status.success(), "the stolen token is cut off");
    let bindings =
        super::object(&world, &["rolebindings", "-n", &alice.namespace()]).await.unwrap();
    // kubectl prints nothing at all when there is none.
    assert!(bindings.is_none(), "{bindings:?}");
    assert_eq!(super::refused(api.credential(id).await).code(), Code::WorkspaceSuspended);
    assert_eq!(super::refused(api.init("basic").await).code(), Code::WorkspaceSuspended);
    assert!(!alice.kubectl().run(["get", "pods"]).await.unwrap().status.success());

    // A repeated suspension changes nothing.
    assert_eq!(
        admin.suspend(id, &reason("again")).await.unwrap().status,
        WorkspaceStatus::Suspended
    );

    let resumed = probe::until("the resumption", Duration::from_secs(30), || async {
        Ok(match admin.resume(id, &SuspendRequest::default()).await {
            Ok(resumed) => Probe::Ready(resumed),
            Err(error) => Probe::NotYet(error.to_string()),
        })
    })
    .await
    .unwrap();
    assert_eq!(resumed.status, WorkspaceStatus::Provisioned);
    let old = stolen.run(["get", "secrets"]).await.unwrap();
    assert!(old.stderr.contains("Unauthorized") || old.stderr.contains("logged in"), "{old:?}");
    let fresh = world.folder().join("fresh.kubeconfig");
    std::fs::write(&fresh, api.kubeconfig("static").await.unwrap()).unwrap();
    let fresh = world.kubectl_with(&fresh).unwrap();
    // RBAC follows the new bindings after a moment.
    super::until_accepted(&fresh, &["get", "secrets"]).await;

    let actions: Vec<String> = admin
        .audit_logs(&format!("workspace_id={id}&limit=100"))
        .await
        .unwrap()
        .items
        .into_iter()
        .map(|entry| entry.action)
        .collect();
    for action in ["SuspendWorkspace", "WorkspaceSuspended", "ResumeWorkspace", "WorkspaceResumed"]
    {
        assert_eq!(actions.iter().filter(|there| *there == action).count(), 1, "{actions:?}");
    }
}

#[tokio::test]
async fn with_the_cluster_down_the_decision_stands_and_is_completed_later() {
    let world = World::builder().fault_proxy().setting("sweep_seconds", 1).start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let operator = world.administrator("operator").await.unwrap();
    operator.login(&[]).await.unwrap().success().unwrap();
    let (api, admin) = (alice.api().await.unwrap(), operator.api().await.unwrap());
    let (workspace, _) = api.init("basic").await.unwrap();

    world.proxy().unwrap().down().await;
    let suspension = admin.suspend(workspace.id, &reason("now")).await.unwrap();
    assert_eq!(suspension.status, WorkspaceStatus::Suspending);
    assert_eq!(suspension.steps[0].result, StepResult::Done);
    assert_eq!(suspension.steps.iter().filter(|s| s.result == StepResult::Open).count(), 4);
    let unfinished = api.workspace(workspace.id).await.unwrap().unfinished.unwrap();
    assert_eq!(
        unfinished.open_steps,
        ["label_namespace", "delete_role_bindings", "delete_service_account", "finish"]
    );
    // The plugin reports it to an administrator, with its exit code too.
    let id = workspace.id.to_string();
    let at_terminal = ["tenant", "suspend", &id, "--reason", "now", "--wait", "0"];
    let told = operator.kubectl().run(at_terminal).await.unwrap();
    assert_eq!(told.status.code(), Some(4), "{told:?}");
    assert!(told.stderr.contains("continues with them by itself"), "{}", told.stderr);
    assert!(told.stderr.contains("is suspending, not suspended; open:"), "{}", told.stderr);
    let listed = operator.kubectl().run(["tenant", "workspaces", "--all"]).await.unwrap();
    assert!(listed.stdout.contains("suspending (4 steps open)"), "{}", listed.stdout);
    assert_eq!(super::refused(api.credential(workspace.id).await).code(), Code::WorkspaceSuspended);

    world.proxy().unwrap().up().await.unwrap();
    probe::until("the sweep", SWEEP_TIMEOUT, || async {
        let status = api.workspace(workspace.id).await?.status;
        Ok(match status {
            WorkspaceStatus::Suspended => Probe::Ready(()),
            other => Probe::NotYet(format!("{other:?}")),
        })
    })
    .await
    .unwrap();
    let account = ["serviceaccount", "sa-tenant-admin", "-n", &alice.namespace()];
    assert!(super::object(&world, &account).await.unwrap().is_none());
    assert_eq!(api.workspace(workspace.id).await.unwrap().unfinished, None);
    let told = operator.kubectl().run(["tenant", "suspend", &alice.namespace()]).await.unwrap();
    assert!(told.success().unwrap().stderr.contains("is suspended: its tokens are invalid"));
}

/// The broker's requests to the API server in a suspension, in order.
const SUSPENSION: [(Method, &str); 4] = [
    (Method::PATCH, ""),
    (Method::DELETE, "/rolebindings/rb-tenant-admin"),
    (Method::GET, "/rolebindings"),
    (Method::DELETE, "/serviceaccounts/sa-tenant-admin"),
];
/// Some of its requests in a resumption.
const RESUMPTION: [(Method, &str); 4] = [
    (Method::PATCH, ""),
    (Method::POST, "/resourcequotas"),
    (Method::POST, "/serviceaccounts"),
    (Method::POST, "/rolebindings"),
];

/// Kills the broker after the first such call in a namespace.
fn kill_after(world: &World, namespace: &str, (method, path): (Method, &str)) {
    let (broker, end) = (world.broker().clone(), format!("/namespaces/{namespace}{path}"));
    let kill = move |_| {
        broker.kill();
        std::future::ready(())
    };
    let rule = Rule::new(Fault::after(kill)).when(move |seen| seen.is(&method, &end)).nth(1);
    world.proxy().unwrap().add(rule);
}

#[tokio::test]
async fn a_crash_after_any_step_is_finished_by_the_next_sweep() {
    let world = World::builder().fault_proxy().setting("sweep_seconds", 1).start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let operator = world.administrator("operator").await.unwrap();
    let (api, admin) = (alice.api().await.unwrap(), operator.api().await.unwrap());
    let (workspace, _) = api.init("basic").await.unwrap();
    let reaches = async |wanted: WorkspaceStatus| {
        probe::until("the sweep", SWEEP_TIMEOUT, || async {
            let status = api.workspace(workspace.id).await?.status;
            Ok(if status == wanted {
                Probe::Ready(())
            } else {
                Probe::NotYet(format!("{status:?}"))
            })
        })
        .await
        .unwrap();
    };
    for (suspending, resuming) in SUSPENSION.into_iter().zip(RESUMPTION) {
        kill_after(&world, &alice.namespace(), suspending);
        admin.suspend(workspace.id, &reason("now")).await.expect_err("the broker was killed");
        world.proxy().unwrap().clear();
        world.broker().crash_and_restart().await.unwrap();
        reaches(WorkspaceStatus::Suspended).await;
        let account = ["serviceaccount", "sa-tenant-admin", "-n", &alice.namespace()];
        assert!(super::object(&world, &account).await.unwrap().is_none());

        kill_after(&world, &alice.namespace(), resuming);
        probe::until("the crash", Duration::from_secs(30), || async {
            Ok(match admin.resume(workspace.id, &SuspendRequest::default()).await {
                Err(error) if error.refused().is_some() => Probe::NotYet(error.to_string()),
                _ => Probe::Ready(()),
            })
        })
        .await
        .unwrap();
        world.proxy().unwrap().clear();
        world.broker().crash_and_restart().await.unwrap();
        reaches(WorkspaceStatus::Provisioned).await;
        api.credential(workspace.id).await.unwrap();
    }
}

#[tokio::test]
async fn only_an_administrator_can_suspend() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    let (workspace, _) = api.init("basic").await.unwrap();
    let refused = super::refused(api.suspend(workspace.id, &SuspendRequest::default()).await);
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert_eq!(api.workspace(workspace.id).await.unwrap().status, WorkspaceStatus::Provisioned);
}

#[tokio::test]
async fn a_suspended_person_gets_nothing_from_any_replica() {
    let world = World::builder().postgres().replicas(2).start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    let operator = world.administrator("operator").await.unwrap();
    operator.login(&[]).await.unwrap().success().unwrap();
    let other = world.brokers()[1].url().unwrap();
    let api = alice.api().await.unwrap().at(&other).unwrap();
    let id = api.workspaces(false).await.unwrap().items[0].id;
    api.credential(id).await.unwrap();
    let file = world.folder().join("taken-away.kubeconfig");
    std::fs::write(&file, api.kubeconfig("static").await.unwrap()).unwrap();
    let taken_away = world.kubectl_with(&file).unwrap();
    taken_away.run(["get", "pods"]).await.unwrap().success().unwrap();

    let user = alice.id().to_string();
    let suspend = ["tenant", "users", "suspend", &user, "--reason", "left the company"];
    let told = operator.kubectl().run(suspend).await.unwrap().success().unwrap();
    let line = format!("Workspace {} of {} is suspended.\n", alice.namespace(), alice.email());
    assert!(told.stderr.contains(&line), "{}", told.stderr);
    assert!(!taken_away.run(["get", "pods"]).await.unwrap().status.success(), "the live token");
    let refused = super::refused(api.credential(id).await);
    assert_eq!((refused.status, refused.code()), (StatusCode::UNAUTHORIZED, Code::Unauthenticated));
    assert!(alice.sign_in().await.is_err(), "nor is there a new session");
    let plugin = alice.kubectl().run(["tenant", "whoami"]).await.unwrap();
    assert!(!plugin.status.success() && plugin.stderr.contains("kubectl tenant login"));

    // The workspace cannot be resumed before the person.
    let told = operator.kubectl().run(["tenant", "resume", &id.to_string()]).await.unwrap();
    assert_eq!(told.status.code(), Some(5), "{told:?}");
    let early =
        told.stderr.contains("resume again in") || told.stderr.contains("owner is suspended");
    assert!(early, "{}", told.stderr);
    let refused = probe::until("the end of the cache", Duration::from_secs(30), || async {
        let answer = operator.api().await?.resume(id, &SuspendRequest::default()).await;
        let refused = super::refused(answer);
        Ok(match refused.code() {
            Code::WorkspaceNotReady => Probe::NotYet(refused.to_string()),
            _ => Probe::Ready(refused),
        })
    })
    .await
    .unwrap();
    assert_eq!((refused.status, refused.code()), (StatusCode::CONFLICT, Code::OwnerSuspended));
    assert!(refused.body.contains(&format!("kubectl tenant users resume {user}")));

    let resume = ["tenant", "users", "resume", &user];
    operator.kubectl().run(resume).await.unwrap().success().unwrap();
    assert_eq!(super::refused(api.credential(id).await).status, StatusCode::UNAUTHORIZED);
    // The person is resumed; the workspace waits for a resumption of its own by an administrator.
    let back = alice.api().await.unwrap();
    assert_eq!(super::refused(back.credential(id).await).code(), Code::WorkspaceSuspended);
    let logs = operator.api().await.unwrap().audit_logs("action=SuspendUser").await.unwrap();
    assert_eq!(logs.items.len(), 1);
    assert!(logs.items[0].reason.as_deref().is_some_and(|why| why.contains("left the company")));
}
