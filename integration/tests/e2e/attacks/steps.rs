//! Failure of one step of a suspension because the cluster refuses it: the other steps take effect
//! all the same, and the sweep completes the failed one.

use std::time::Duration;

use http::Method;
use integration::api::Api;
use integration::fault_proxy::{Fault, RecordedRequest, Rule};
use integration::kubectl::Kubectl;
use integration::person::Person;
use integration::probe::{self, Probe};
use integration::world::{World, WorldBuilder};
use serde_json::{Value, json};
use tenant_shared::{StepResult, SuspendRequest, Suspension, WorkspaceStatus};
use uuid::Uuid;

const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// A tenant with a live token.
struct Tenant {
    world: World,
    person: Person,
    operator: Api,
    id: Uuid,
    namespace: String,
    token: Kubectl,
}

impl Tenant {
    async fn start(builder: WorldBuilder) -> Self {
        let world = builder.setting("sweep_seconds", 1).start().await.unwrap();
        let person = world.person("mallory").await.unwrap();
        let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
        let api = person.api().await.unwrap();
        let (workspace, _) = api.init("basic").await.unwrap();
        let file = world.folder().join("stolen.kubeconfig");
        std::fs::write(&file, api.kubeconfig("static").await.unwrap()).unwrap();
        let token = world.kubectl_with(&file).unwrap();
        // RBAC follows the new bindings after a moment.
        crate::until_accepted(&token, &["get", "secrets"]).await;
        let namespace = person.namespace();
        Self { world, person, operator, id: workspace.id, namespace, token }
    }

    async fn suspend(&self) -> Suspension {
        self.operator.suspend(self.id, &SuspendRequest::default()).await.unwrap()
    }

    /// Suspends, and checks that exactly these steps are open.
    async fn suspend_leaving(&self, open: &[&str]) -> Suspension {
        let suspension = self.suspend().await;
        let left: Vec<&str> = suspension
            .steps
            .iter()
            .filter(|step| step.result == StepResult::Open)
            .map(|step| step.step.as_str())
            .collect();
        assert_eq!(left, open, "{suspension:#?}");
        assert_eq!(suspension.status, WorkspaceStatus::Suspending);
        let shown = self.operator.workspace(self.id).await.unwrap().unfinished.unwrap();
        assert_eq!(shown.open_steps, open);
        suspension
    }

    async fn reaches_suspended(&self) {
        probe::until("the sweep", WAIT_TIMEOUT, || async {
            let status = self.operator.workspace(self.id).await?.status;
            Ok(match status {
                WorkspaceStatus::Suspended => Probe::Ready(()),
                other => Probe::NotYet(format!("{other:?}")),
            })
        })
        .await
        .unwrap();
    }

    async fn token_works(&self) -> bool {
        self.token.run(["get", "secrets"]).await.unwrap().status.success()
    }

    async fn is_there(&self, what: &[&str]) -> bool {
        let args: Vec<&str> = what.iter().copied().chain(["-n", &self.namespace]).collect();
        super::super::object(&self.world, &args).await.unwrap().is_some()
    }

    /// Labels the namespace as an administrator.
    async fn label(&self, labels: &[&str]) {
        let args = ["label", "--overwrite", "namespace", &self.namespace];
        let args = args.into_iter().chain(labels.iter().copied());
        self.world.admin_kubectl().unwrap().run(args).await.unwrap().success().unwrap();
    }

    async fn failures(&self, step: &str, cause: &str) -> bool {
        let counter = format!(
            "tenant_broker_suspension_step_failures_total{{step=\"{step}\",cause=\"{cause}\"}}"
        );
        self.world.broker().metric(&counter).await.unwrap() > 0.0
    }
}

/// A policy of another component that refuses one kind of request of the broker in one namespace.
struct InjectedRefusal<'a> {
    tenant: &'a Tenant,
    name: String,
}

impl<'a> InjectedRefusal<'a> {
    async fn new(tenant: &'a Tenant, resource: [&str; 2], operation: &str, probe: &[&str]) -> Self {
        Self::matching(tenant, resource, operation, "true", probe).await
    }

    /// Refuses only where this CEL expression is true.
    async fn matching(
        tenant: &'a Tenant,
        resource: [&str; 2],
        operation: &str,
        which: &str,
        probe: &[&str],
    ) -> Self {
        let name = format!("no-{}-{}", resource[1], tenant.id);
        let spot = if resource[1] == "namespaces" { "request.name" } else { "request.namespace" };
        let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{"apiGroups": [resource[0]],
                    "apiVersions": ["*"], "operations": [operation], "resources": [resource[1]]}]},
                "matchConditions": [{"name": "here", "expression":
                    format!("{spot} == '{}' && request.userInfo.username == 'tenant-broker' && {which}",
                        tenant.namespace)}],
                "validations": [{"expression": "false", "message": "not today"}]}});
        let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]}});
        let admin = tenant.world.admin_kubectl().unwrap();
        for object in [policy, binding] {
            let apply = ["create", "-f", "-"];
            admin.run_with_input(apply, object.to_string()).await.unwrap().success().unwrap();
        }
        let broker = tenant.world.broker_kubectl().unwrap();
        probe::until("the policy", WAIT_TIMEOUT, || async {
            let told = broker.run(probe).await?.stderr;
            Ok(if told.contains("not today") { Probe::Ready(()) } else { Probe::NotYet(told) })
        })
        .await
        .unwrap();
        Self { tenant, name }
    }

    async fn end(self) {
        let admin = self.tenant.world.admin_kubectl().unwrap();
        for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
            admin.run(["delete", kind, &self.name]).await.unwrap().success().unwrap();
        }
    }
}

#[tokio::test]
async fn a_refused_label_keeps_no_right_alive() {
    let tenant = Tenant::start(World::builder()).await;
    // A request that the broker's own policies allow, so that the other policy refuses it.
    let probe = [
        "label",
        "namespace",
        &tenant.namespace,
        "tenant-broker.io/suspended=true",
        "--dry-run=server",
    ];
    let refusal = InjectedRefusal::new(&tenant, ["", "namespaces"], "UPDATE", &probe).await;
    let suspension = tenant.suspend_leaving(&["label_namespace", "finish"]).await;
    assert!(!tenant.token_works().await, "the tokens that are out");
    assert!(!tenant.is_there(&["rolebindings"]).await);
    assert!(!tenant.is_there(&["serviceaccount", "sa-tenant-admin"]).await);
    let detail = suspension.steps[1].detail.as_deref().unwrap_or_default();
    assert!(detail.contains("not today"), "{suspension:?}");
    assert!(tenant.failures("label_namespace", "refused").await);
    // The plugin reports it as well.
    let operator = tenant.world.administrator("operator-2").await.unwrap();
    operator.login(&[]).await.unwrap().success().unwrap();
    let suspend = ["tenant", "suspend", &tenant.namespace, "--wait", "0"];
    let told = operator.kubectl().run(suspend).await.unwrap();
    assert_eq!(told.status.code(), Some(4), "{told:?}");
    assert!(told.stderr.contains("label_namespace: ") && told.stderr.contains("not today"));
    refusal.end().await;
    tenant.reaches_suspended().await;
}

#[tokio::test]
async fn bindings_that_cannot_be_deleted_leave_no_token() {
    let tenant = Tenant::start(World::builder()).await;
    let path = format!(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings/rb-tenant-admin?dryRun=All",
        tenant.namespace
    );
    let probe = ["delete", "--raw", &path];
    let resource = ["rbac.authorization.k8s.io", "rolebindings"];
    let refusal = InjectedRefusal::new(&tenant, resource, "DELETE", &probe).await;
    tenant.suspend_leaving(&["delete_role_bindings", "finish"]).await;
    assert!(!tenant.is_there(&["serviceaccount", "sa-tenant-admin"]).await);
    // The API server caches the account for a moment.
    probe::until("the token to end", WAIT_TIMEOUT, || async {
        let works = tenant.token_works().await;
        Ok(if works { Probe::NotYet("works".to_owned()) } else { Probe::Ready(()) })
    })
    .await
    .unwrap();
    let create = tenant.token.run(["create", "configmap", "c"]).await.unwrap();
    assert!(!create.status.success(), "{create:?}");
    refusal.end().await;
    tenant.reaches_suspended().await;
    assert!(!tenant.is_there(&["rolebindings"]).await);
}

/// Its name sorts before the others: the API server stops the deletion of a collection there.
#[tokio::test]
async fn a_binding_that_cannot_be_deleted_protects_no_other() {
    let tenant = Tenant::start(World::builder()).await;
    let admin = tenant.world.admin_kubectl().unwrap();
    for name in ["aaa", "extra"] {
        let subject = format!("--serviceaccount={}:default", tenant.namespace);
        let bind = ["create", "rolebinding", name, "--clusterrole=view", &subject];
        let bind = bind.into_iter().chain(["-n", &tenant.namespace]);
        admin.run(bind).await.unwrap().success().unwrap();
    }
    let path = format!(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings/aaa?dryRun=All",
        tenant.namespace
    );
    let (resource, probe) =
        (["rbac.authorization.k8s.io", "rolebindings"], ["delete", "--raw", &path]);
    let which = "oldObject.metadata.name == 'aaa'";
    let refusal = InjectedRefusal::matching(&tenant, resource, "DELETE", which, &probe).await;
    tenant.suspend_leaving(&["delete_role_bindings", "finish"]).await;
    assert!(tenant.is_there(&["rolebinding", "aaa"]).await);
    for name in ["extra", "rb-tenant-admin"] {
        assert!(!tenant.is_there(&["rolebinding", name]).await, "{name}");
    }
    refusal.end().await;
    tenant.reaches_suspended().await;
    assert!(!tenant.is_there(&["rolebinding", "aaa"]).await);
}

#[tokio::test]
async fn an_account_that_cannot_be_deleted_has_no_rights() {
    let tenant = Tenant::start(World::builder()).await;
    let path = format!(
        "/api/v1/namespaces/{}/serviceaccounts/sa-tenant-admin?dryRun=All",
        tenant.namespace
    );
    let probe = ["delete", "--raw", &path];
    let refusal = InjectedRefusal::new(&tenant, ["", "serviceaccounts"], "DELETE", &probe).await;
    tenant.suspend_leaving(&["delete_service_account", "finish"]).await;
    assert!(!tenant.token_works().await);
    assert!(!tenant.is_there(&["rolebindings"]).await);
    refusal.end().await;
    tenant.reaches_suspended().await;
    assert!(!tenant.is_there(&["serviceaccount", "sa-tenant-admin"]).await);
}

/// A resumption creates a new ServiceAccount. A slow run of the suspension before it must not
/// delete that one.
#[tokio::test]
async fn an_account_created_meanwhile_is_not_deleted() {
    let tenant = Tenant::start(World::builder().fault_proxy().setting("drift_seconds", 3600)).await;
    let account = ["serviceaccount", "sa-tenant-admin"];
    let (admin, namespace) = (tenant.world.admin_kubectl().unwrap(), tenant.namespace.clone());
    let replace = move |_| {
        let (admin, namespace) = (admin.clone(), namespace.clone());
        async move {
            for verb in ["delete", "create"] {
                let args = [verb, account[0], account[1], "-n", &namespace];
                admin.run(args).await.unwrap().success().unwrap();
            }
        }
    };
    let deletes =
        |seen: &RecordedRequest| seen.is(&Method::DELETE, "/serviceaccounts/sa-tenant-admin");
    let rule = Rule::new(Fault::before(replace)).when(deletes).nth(1);
    let rule = tenant.world.proxy().unwrap().add(rule);
    tenant.suspend().await;
    assert_eq!(rule.fired(), 1);
    assert!(tenant.is_there(&account).await);
}

/// A full etcd refuses writes and allows deletions; a tenant can cause it.
#[tokio::test]
async fn a_full_etcd_keeps_no_right_alive() {
    let tenant = Tenant::start(World::builder().own_control_plane()).await;
    let cluster = tenant.world.cluster();
    cluster.etcd_alarm(true).await.unwrap();
    let admin = tenant.world.admin_kubectl().unwrap();
    let write = ["create", "configmap", "full", "-n", &tenant.namespace];
    let told = admin.run(write).await.unwrap().stderr;
    assert!(told.contains("database space exceeded"), "{told}");
    tenant.suspend_leaving(&["label_namespace", "finish"]).await;
    assert!(!tenant.token_works().await);
    assert!(!tenant.is_there(&["rolebindings"]).await);
    assert!(!tenant.is_there(&["serviceaccount", "sa-tenant-admin"]).await);
    cluster.etcd_alarm(false).await.unwrap();
    tenant.reaches_suspended().await;
}

/// The gateway confirms closed streams only after it has read what was revoked. A table that
/// somebody else locks prevents that; the rights are gone all the same.
#[tokio::test]
async fn streams_without_a_confirmation_leave_no_token() {
    use sqlx::Connection as _;

    let tenant = Tenant::start(World::builder().postgres()).await;
    let url = tenant.world.database_url().unwrap();
    let mut database = sqlx::PgConnection::connect(url.as_str()).await.unwrap();
    let mut lock = database.begin().await.unwrap();
    sqlx::query("LOCK TABLE issued_credentials IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *lock)
        .await
        .unwrap();
    tenant.suspend_leaving(&["close_streams", "finish"]).await;
    assert!(!tenant.token_works().await);
    lock.rollback().await.unwrap();
    tenant.reaches_suspended().await;
}

/// Helm, Argo CD and Flux overwrite `app.kubernetes.io/managed-by` as a matter of course.
#[tokio::test]
async fn the_label_of_other_tools_decides_nothing() {
    let tenant = Tenant::start(World::builder()).await;
    tenant.label(&["app.kubernetes.io/managed-by=Helm"]).await;
    let minted = ["create", "token", "default", "--duration=87600h"];
    super::are_refused(&tenant.token, &[(&minted, "tenant-tokens")]).await;
    let suspension = tenant.suspend().await;
    assert_eq!(suspension.status, WorkspaceStatus::Suspended, "{suspension:#?}");
    assert!(!tenant.token_works().await);
}

/// Only administrators of the policies may write our label; a right to label namespaces is not
/// enough.
#[tokio::test]
async fn our_label_is_written_by_policy_administrators_only() {
    let tenant = Tenant::start(World::builder()).await;
    let admin = tenant.world.admin_kubectl().unwrap();
    let name = format!("labels-{}", tenant.namespace);
    let role =
        ["create", "clusterrole", &name, "--verb=*", "--resource=namespaces,namespaces/status"];
    admin.run(role).await.unwrap().success().unwrap();
    let (role, user) = (format!("--clusterrole={name}"), format!("--user={name}"));
    let give = ["create", "clusterrolebinding", &name, &role, &user];
    admin.run(give).await.unwrap().success().unwrap();
    let labeller =
        tenant.world.cluster().kubeconfig_for(&name, None, tenant.world.folder()).unwrap();
    let labeller = tenant.world.kubectl_with(&labeller).unwrap();
    labeller.until_allowed(&["patch", "namespaces"]).await.unwrap();
    let here = ["label", "--overwrite", "namespace", &tenant.namespace];
    let plain = here.into_iter().chain(["team=a"]);
    labeller.run(plain).await.unwrap().success().unwrap();
    let policy = "tenant-guard-namespaces";
    for label in [
        "tenant-broker.io/workspace-",
        "tenant-broker.io/workspace=other",
        "tenant-broker.io/suspended=false",
        "tenant-broker.io/other=x",
    ] {
        let [a, b, c, d] = here;
        super::are_refused(&labeller, &[(&[a, b, c, d, label], policy)]).await;
        let status = [a, b, c, d, label, "--subresource=status"];
        // kubectl label has no subresource; a patch has.
        let (key, value) = label
            .trim_end_matches('-')
            .split_once('=')
            .unwrap_or((label.trim_end_matches('-'), ""));
        let value = if value.is_empty() { Value::Null } else { json!(value) };
        let patch = json!({"metadata": {"labels": {key: value}}}).to_string();
        let patch =
            ["patch", status[2], status[3], "--subresource=status", "--type=merge", "-p", &patch];
        super::are_refused(&labeller, &[(&patch, policy)]).await;
    }
    let other = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": format!("other-{}", tenant.id), "labels": {"tenant-broker.io/workspace": "x"}}});
    super::is_refused(&labeller, &["create", "-f", "-"], &other, policy).await;
    admin.run(["delete", "clusterrolebinding", &name]).await.unwrap().success().unwrap();
    admin.run(["delete", "clusterrole", &name]).await.unwrap().success().unwrap();
}

/// Without the label no policy matches the namespace, but its uid is on record: access is revoked,
/// and the suspension stays open until the label is back.
#[tokio::test]
async fn a_namespace_without_its_label_loses_its_rights() {
    for recorded in [true, false] {
        let tenant = Tenant::start(World::builder().setting("drift_seconds", 3600)).await;
        if !recorded {
            clear_namespace_uid(&tenant).await;
        }
        // A tenant's action while no policy matches.
        tenant.label(&["tenant-broker.io/workspace-"]).await;
        let bind = ["create", "rolebinding", "extra", "--clusterrole=admin", "--user=mallory"];
        probe::until("the policies to let go", WAIT_TIMEOUT, || async {
            let done = tenant.token.run(bind).await?;
            Ok(if done.status.success() { Probe::Ready(()) } else { Probe::NotYet(done.stderr) })
        })
        .await
        .unwrap();
        let suspension = tenant.suspend_leaving(&["label_namespace", "finish"]).await;
        let detail = suspension.steps[1].detail.clone().unwrap_or_default();
        let back = format!("tenant-broker.io/workspace={}", tenant.id);
        assert!(detail.contains(&back), "{detail}");
        assert!(!tenant.token_works().await);
        assert!(!tenant.is_there(&["rolebindings"]).await);
        assert!(!tenant.is_there(&["serviceaccount", "sa-tenant-admin"]).await);
        assert!(tenant.failures("label_namespace", "relabelled").await);
        crate::until_logged(tenant.world.broker(), "a step of a suspension is open").await;
        if recorded {
            tenant.label(&[&back]).await;
            tenant.reaches_suspended().await;
        }
    }
}

/// The status reflects the cluster: if access may be restored, the workspace is suspending again.
#[tokio::test]
async fn a_suspended_namespace_that_loses_its_label_is_suspending_again() {
    let tenant = Tenant::start(World::builder().setting("drift_seconds", 1)).await;
    assert_eq!(tenant.suspend().await.status, WorkspaceStatus::Suspended);
    tenant.label(&["tenant-broker.io/workspace-", "tenant-broker.io/suspended-"]).await;
    let back = ["create", "rolebinding", "back", "--clusterrole=admin", "--user=mallory", "-n"];
    let back = back.into_iter().chain([tenant.namespace.as_str()]);
    tenant.world.admin_kubectl().unwrap().run(back).await.unwrap().success().unwrap();
    probe::until("the broker to find it", WAIT_TIMEOUT, || async {
        let workspace = tenant.operator.workspace(tenant.id).await?;
        let open = workspace.unfinished.map(|it| it.open_steps).unwrap_or_default();
        let is_open = workspace.status == WorkspaceStatus::Suspending
            && open == ["label_namespace", "finish"];
        Ok(if is_open { Probe::Ready(()) } else { Probe::NotYet(format!("{open:?}")) })
    })
    .await
    .unwrap();
    assert!(!tenant.is_there(&["rolebinding", "back"]).await);
    tenant.label(&[&format!("tenant-broker.io/workspace={}", tenant.id)]).await;
    tenant.reaches_suspended().await;
}

/// A namespace of the same name that another user created is left alone, and the workspace is not
/// reported as suspended.
#[tokio::test]
async fn a_foreign_namespace_of_the_same_name_is_left_alone() {
    let tenant = Tenant::start(World::builder().setting("drift_seconds", 3600)).await;
    let admin = tenant.world.admin_kubectl().unwrap();
    admin.run(["delete", "namespace", &tenant.namespace]).await.unwrap().success().unwrap();
    admin.run(["create", "namespace", &tenant.namespace]).await.unwrap().success().unwrap();
    let bind = ["create", "rolebinding", "theirs", "--clusterrole=view", "--user=carol", "-n"];
    let bind = bind.into_iter().chain([tenant.namespace.as_str()]);
    admin.run(bind).await.unwrap().success().unwrap();
    let open = ["label_namespace", "delete_role_bindings", "delete_service_account", "finish"];
    let suspension = tenant.suspend_leaving(&open).await;
    let detail = suspension.steps[1].detail.clone().unwrap_or_default();
    assert!(detail.contains("is not the one that the broker created"), "{detail}");
    assert!(tenant.is_there(&["rolebinding", "theirs"]).await);
    assert!(!tenant.token_works().await);
    admin.run(["delete", "namespace", &tenant.namespace]).await.unwrap().success().unwrap();
    tenant.reaches_suspended().await;
    assert!(tenant.person.api().await.unwrap().credential(tenant.id).await.is_err());
}

/// Resets a row to the state that an earlier version wrote.
async fn clear_namespace_uid(tenant: &Tenant) {
    use sqlx::Connection as _;

    let url = tenant.world.database_url().unwrap();
    let mut database = sqlx::SqliteConnection::connect(url.as_str()).await.unwrap();
    let done =
        sqlx::query("UPDATE workspaces SET k8s_namespace_uid = NULL WHERE k8s_namespace = ?")
            .bind(&tenant.namespace)
            .execute(&mut database)
            .await
            .unwrap();
    assert_eq!(done.rows_affected(), 1);
}
