//! Necessity of every right of the broker's ClusterRole: without it a workflow fails, and with it
//! the same workflow succeeds. A right without a workflow fails the test.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use http::Method;
use integration::api::Api as BrokerApi;
use integration::control_plane::client;
use integration::probe::{self, Probe};
use integration::world::World;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use sqlx::Connection as _;
use tenant_shared::{
    ApplyTenantRequest, ROLE_BINDING_NAME, RevocationState, RevokedBy, SERVICE_ACCOUNT_NAME,
    StepResult, SuspendRequest, WorkspaceStatus,
};
use uuid::Uuid;

use Workflow::{
    BoundToken, Doctor, FinishInit, Init, Repair, Replace, Revoke, Start, Suspend, SuspendHeld,
    Token,
};

use crate::gateway::GATEWAY;
use crate::tenants::{TENANT_BROKER, until_served, with_object};

const RIGHTS_TIMEOUT: Duration = Duration::from_secs(30);
/// How often an operation is tried with a right that is back.
const MAX_RUNS: u32 = 6;
/// Time limit of a repair; the broker checks for drift every second.
const REPAIR_TIMEOUT: Duration = Duration::from_secs(10);
pub(crate) const RBAC: &str = "rbac.authorization.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
pub(crate) const ADMISSION: &str = "admissionregistration.k8s.io";

/// A workflow of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workflow {
    /// A person creates a workspace.
    Init,
    /// A crash came after everything was created and before that was recorded: the existing objects
    /// are read and compared.
    FinishInit,
    /// A person requests a credential.
    Token,
    /// Each token is bound to a Secret of its own.
    BoundToken,
    /// A person revokes a single credential.
    Revoke,
    /// An administrator suspends a workspace.
    Suspend,
    /// An administrator suspends a workspace in which finalizers hold a binding and the
    /// ServiceAccount.
    SuspendHeld,
    /// The binding was deleted: the drift check finds and recreates it.
    Repair,
    /// The binding was altered: the broker replaces it.
    Replace,
    /// An operator runs the doctor.
    Doctor,
    /// The broker starts, and checks whether its policies are in force.
    Start,
}

/// The workflow that fails without each right: verb, API group, resource.
const NEEDED: [(&str, &str, &str, Workflow); 30] = [
    ("create", "", "namespaces", Init),
    ("get", "", "namespaces", FinishInit),
    ("list", "", "namespaces", Doctor),
    ("patch", "", "namespaces", Suspend),
    ("create", "", "resourcequotas", Init),
    ("get", "", "resourcequotas", FinishInit),
    ("list", "", "resourcequotas", Repair),
    ("create", "", "limitranges", Init),
    ("get", "", "limitranges", FinishInit),
    ("list", "", "limitranges", Repair),
    ("create", "", "serviceaccounts", Init),
    ("get", "", "serviceaccounts", FinishInit),
    ("list", "", "serviceaccounts", Repair),
    ("delete", "", "serviceaccounts", Suspend),
    ("patch", "", "serviceaccounts", SuspendHeld),
    ("create", "", "serviceaccounts/token", Token),
    ("create", "", "secrets", BoundToken),
    ("delete", "", "secrets", Revoke),
    ("create", RBAC, "rolebindings", Init),
    ("get", RBAC, "rolebindings", FinishInit),
    ("list", RBAC, "rolebindings", Suspend),
    ("delete", RBAC, "rolebindings", Replace),
    ("patch", RBAC, "rolebindings", SuspendHeld),
    ("bind", RBAC, "clusterroles", Init),
    ("get", RBAC, "clusterroles", Doctor),
    ("create", NETWORKING, "networkpolicies", Init),
    ("get", NETWORKING, "networkpolicies", FinishInit),
    ("list", NETWORKING, "networkpolicies", Repair),
    ("get", ADMISSION, "validatingadmissionpolicies", Start),
    ("get", ADMISSION, "validatingadmissionpolicybindings", Start),
];

/// Whether a workflow of personal workspaces needs a right.
pub(crate) fn is_needed(verb: &str, group: &str, resource: &str) -> bool {
    NEEDED.iter().any(|needed| (needed.0, needed.1, needed.2) == (verb, group, resource))
}

#[tokio::test]
async fn every_right_is_needed() {
    let builder = World::builder().own_control_plane().bind_tokens();
    let builder = builder.installed("tiers.basic.network_policy", "deny-ingress");
    let builder = builder.setting("sweep_seconds", 3600).setting("drift_seconds", 1);
    let world = builder.start().await.unwrap();
    let role = Role::open(&world).await.unwrap();
    let used = |right: &Right| {
        let mut needed = NEEDED.iter();
        needed.find(|(verb, group, resource, _)| right.is(verb, group, resource))
    };
    for right in &role.rights {
        assert!(used(right).is_some(), "no workflow needs {right:?}: is it needed at all?");
    }
    for (verb, group, resource, workflow) in NEEDED {
        let there = role.rights.iter().any(|right| right.is(verb, group, resource));
        assert!(there, "{workflow:?} needs {verb} {group}/{resource}, and the role has it not");
    }
    // Some need a stopped broker; those come last.
    let (starts, others): (Vec<_>, Vec<_>) =
        role.rights.iter().partition(|right| used(right).is_some_and(|it| it.3 == Start));
    for (number, right) in others.into_iter().enumerate() {
        let (.., workflow) = *used(right).unwrap();
        let case = Case::prepare(&world, workflow, number).await.unwrap();
        role.without(right).await.unwrap();
        let refused = case.run().await;
        role.whole(right).await.unwrap();
        assert!(refused.is_err(), "{workflow:?} does not need {right:?}");
        // A round over all workspaces may take longer than one run waits.
        let mut allowed = case.run().await;
        for _ in 1..MAX_RUNS {
            if allowed.is_ok() {
                break;
            }
            allowed = case.run().await;
        }
        allowed.with_context(|| format!("{workflow:?} with {right:?} back")).unwrap();
    }
    let broker = world.broker();
    broker.stop().await.unwrap();
    for right in starts {
        role.without(right).await.unwrap();
        let refused = format!("{:#}", broker.start().await.unwrap_err());
        let kind = if right.resource.ends_with("bindings") { "binding" } else { "policy" };
        let told = format!("the broker may not read the {kind} {}", right.name);
        assert!(refused.contains(&told), "{told} is not in: {refused}");
        role.whole(right).await.unwrap();
    }
    broker.start().await.unwrap();
}

/// The policies that only a cluster with tenants has, and the second bindings of the others for the
/// namespaces of tenants. The broker checks each by its name.
#[tokio::test]
async fn the_rights_to_read_policies_and_bindings_for_tenants_are_needed() {
    let without_tenants = World::builder().start().await.unwrap();
    let without_tenants = Role::open(&without_tenants).await.unwrap().rights;
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    let builder = builder.installed("tenants.direct_namespaces", true);
    let world = builder.installed("tenants.groups", "developers").start().await.unwrap();
    let role = Role::open(&world).await.unwrap();
    let is_for_tenants =
        |right: &&Right| right.group == ADMISSION && !without_tenants.contains(right);
    let rights: Vec<&Right> = role.rights.iter().filter(is_for_tenants).collect();
    for name in ["tenant-tokens-tenants", "tenant-guard-creation", "tenant-broker-fence-tenants"] {
        assert!(rights.iter().any(|right| right.name == name), "{name}: {rights:?}");
    }
    let broker = world.broker();
    broker.stop().await.unwrap();
    for right in rights {
        role.without(right).await.unwrap();
        let refused = format!("{:#}", broker.start().await.unwrap_err());
        let kind = if right.resource.ends_with("bindings") { "binding" } else { "policy" };
        let told = format!("the broker may not read the {kind} {}", right.name);
        assert!(refused.contains(&told), "{told} is not in: {refused}");
        role.whole(right).await.unwrap();
    }
    broker.start().await.unwrap();
}

/// The gateway lists and watches for members with them, and `doctor` tries them.
#[tokio::test]
async fn the_rights_to_list_for_members_of_tenants_are_needed() {
    let lists = ["nodes", "storageclasses", "ingressclasses", "priorityclasses", "runtimeclasses"];
    let kinds = ["Nodes", "StorageClasses", "IngressClasses", "PriorityClasses", "RuntimeClasses"];
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    let builder = builder.installed("tenants.cluster_lists", lists.join(","));
    let world = builder.setting("drift_seconds", 3600).start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let settings = kinds.map(|kind| json!({"kind": kind, "operations": ["List"]}));
    let alice = world.person("alice").await.unwrap();
    let owner = json!({"kind": "User", "name": alice.email(), "proxySettings": settings});
    let tenant = json!({
        "apiVersion": TENANT_BROKER.1, "kind": "Tenant", "metadata": {"name": "solar"},
        "spec": {"owners": [owner], "nodeSelector": {"pool": "solar"}},
    });
    with_object(&admin, &["apply"], tenant.to_string()).await.success().unwrap();
    let api = alice.api().await.unwrap();
    let read = async |right: &Right| {
        let root =
            if right.group.is_empty() { "api".to_owned() } else { format!("apis/{}", right.group) };
        let query = if right.verb == "watch" { "watch=1&timeoutSeconds=1" } else { "limit=1" };
        let path = format!("{GATEWAY}/{root}/v1/{}?{query}", right.resource);
        let answer = api.request(Method::GET, &path).unwrap().send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };
    let role = Role::open(&world).await.unwrap();
    let rights: Vec<&Right> =
        role.rights.iter().filter(|right| lists.contains(&right.resource.as_str())).collect();
    let mut verbs: Vec<(&str, &str)> =
        rights.iter().map(|right| (right.resource.as_str(), right.verb.as_str())).collect();
    verbs.sort_unstable();
    let mut expected: Vec<_> =
        lists.into_iter().flat_map(|list| [(list, "list"), (list, "watch")]).collect();
    expected.sort_unstable();
    assert_eq!(verbs, expected);
    for right in rights {
        probe::until("the read", RIGHTS_TIMEOUT, || async {
            let (status, text) = read(right).await;
            Ok(if status.is_success() { Probe::Ready(()) } else { Probe::NotYet(text) })
        })
        .await
        .unwrap();
        role.without(right).await.unwrap();
        let (status, text) = read(right).await;
        assert!(status.is_server_error(), "{right:?}: {status} {text}");
        let told = format!("does not let the broker list {}", right.resource);
        assert!(text.contains(&told) && text.contains("install --apply"), "{text}");
        if right.verb == "list" {
            let report = world.broker().run(&["doctor", "-o", "json"]).await.unwrap().stdout;
            let report: serde_json::Value = serde_json::from_str(&report).unwrap();
            let failed = |title: &str| {
                let mut checks = report["checks"].as_array().into_iter().flatten();
                checks.any(|check| check["check"] == title && check["outcome"] == "fail")
            };
            let resource = &right.resource;
            for title in [
                format!("may list {resource}"),
                format!("the gateway can list {resource} for members of tenants"),
            ] {
                assert!(failed(&title), "{title}: {report}");
            }
        }
        role.whole(right).await.unwrap();
    }
}

/// Model services read the domain of the cluster's routes with it, and `doctor` tries it.
#[tokio::test]
async fn the_right_to_read_the_domain_of_the_cluster_is_needed_and_absent_without_the_setting() {
    let builder = World::builder().own_control_plane().installed("model_services.enabled", true);
    let builder = builder.installed("model_services.cluster_domain", "auto");
    let world = builder.start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    let api = world.person("alice").await.unwrap().api().await.unwrap();
    let config = async || {
        let request = api.request(Method::GET, "../../gen-ai/api/v1/config").unwrap();
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let doctor = async |title: &str| {
        let report = world.broker().run(&["doctor", "-o", "json"]).await.unwrap().stdout;
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        let mut checks = report["checks"].as_array().into_iter().flatten();
        checks.find(|it| it["check"] == title).unwrap()["outcome"].clone()
    };
    let title = "the cluster names the domain of its routes";
    // The API server does not serve the kind.
    let (status, text) = config().await;
    assert_eq!(status, 404, "{text}");
    assert!(text.contains("ingresses.config.openshift.io has no object cluster"), "{text}");
    assert_eq!(doctor(title).await, "fail");
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ingresses.config.openshift.io"},
        "spec": {"group": "config.openshift.io", "scope": "Cluster",
            "names": {"kind": "Ingress", "plural": "ingresses", "singular": "ingress",
                "listKind": "IngressList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}]},
    });
    with_object(&admin, &["apply"], definition.to_string()).await.success().unwrap();
    let object = json!({"apiVersion": "config.openshift.io/v1", "kind": "Ingress",
        "metadata": {"name": "cluster"}, "spec": {"domain": "apps.example.com"}});
    probe::until("the object", RIGHTS_TIMEOUT, || async {
        let applied = with_object(&admin, &["apply"], object.to_string()).await;
        Ok(if applied.status.success() { Probe::Ready(()) } else { Probe::NotYet(applied.stderr) })
    })
    .await
    .unwrap();

    let role = Role::open(&world).await.unwrap();
    let is_it = |right: &&Right| right.is("get", "config.openshift.io", "ingresses");
    let rights: Vec<&Right> = role.rights.iter().filter(is_it).collect();
    let [right] = rights[..] else { panic!("{rights:?}") };
    assert_eq!(right.name, "cluster");
    assert!(role.rights.iter().all(|it| it.group != "config.openshift.io" || it == right));
    role.without(right).await.unwrap();
    let until_status = async |expected: u16| {
        probe::until("the answer", RIGHTS_TIMEOUT, || async {
            let (status, text) = config().await;
            Ok(if status == expected { Probe::Ready(text) } else { Probe::NotYet(text) })
        })
        .await
        .unwrap()
    };
    until_status(500).await;
    assert!(world.broker().log().unwrap().contains("run tenant-broker install --apply"));
    assert_eq!(doctor(title).await, "fail");
    assert_eq!(doctor("may get ingresses cluster").await, "fail");
    role.whole(right).await.unwrap();
    let text = until_status(200).await;
    assert!(text.contains("\"clusterDomain\":\"apps.example.com\""), "{text}");
    assert_eq!(doctor(title).await, "pass");
    assert_eq!(doctor("may get ingresses cluster").await, "pass");

    let builder = World::builder().own_control_plane().installed("model_services.enabled", true);
    let world = builder.start().await.unwrap();
    let role = Role::open(&world).await.unwrap();
    assert!(role.rights.iter().all(|right| right.group != "config.openshift.io"));
}

/// The API group of Tenants that the broker writes.
const TENANTS: &str = "tenant-broker.io";

/// The rights on Tenants that are there with `tenants.write` alone.
fn writes_of_tenants(role: &Role) -> Vec<&Right> {
    let is_write = |right: &&Right| {
        right.resource == "tenants" && !["get", "list", "watch"].contains(&right.verb.as_str())
    };
    role.rights.iter().filter(is_write).collect()
}

#[tokio::test]
async fn the_rights_to_write_tenants_are_needed_and_absent_without_the_setting() {
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    let world = builder.installed("tenants.write", true).start().await.unwrap();
    let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
    let role = Role::open(&world).await.unwrap();
    let rights = writes_of_tenants(&role);
    let verbs: Vec<&str> = rights.iter().map(|right| right.verb.as_str()).collect();
    assert_eq!(verbs, ["create", "update", "delete"]);
    assert!(rights.iter().all(|right| right.group == TENANTS && right.name.is_empty()));
    let spec = |quota: u32| {
        let owner = json!({"kind": "User", "name": "alice"});
        json!({"owners": [owner], "namespaceOptions": {"quota": quota}})
    };
    let apply = async |name: &str, quota: u32| {
        let request = ApplyTenantRequest { spec: spec(quota), ..ApplyTenantRequest::default() };
        operator.apply_tenant(name, &request, "").await.map(drop)
    };
    apply("solar", 1).await.unwrap();
    for right in rights {
        role.without(right).await.unwrap();
        let run = async || match right.verb.as_str() {
            "create" => apply("lunar", 1).await,
            "update" => apply("solar", 2).await,
            _ => operator.delete_tenant("solar", "").await.map(drop),
        };
        let refused = super::refused(run().await);
        assert_eq!(refused.status, http::StatusCode::FORBIDDEN, "{refused}");
        assert!(refused.body.contains("cannot"), "the text of the API server: {refused}");
        role.whole(right).await.unwrap();
        run().await.unwrap();
    }

    let settings = World::builder().own_control_plane().installed("tenants.enabled", true);
    let world = settings.start().await.unwrap();
    let role = Role::open(&world).await.unwrap();
    assert!(writes_of_tenants(&role).is_empty(), "{:?}", writes_of_tenants(&role));
}

/// One verb on one resource, possibly for one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Right {
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) name: String,
}

impl Right {
    pub(crate) fn is(&self, verb: &str, group: &str, resource: &str) -> bool {
        self.verb == verb && self.group == group && self.resource == resource
    }

    /// Returns a rule that grants only this right.
    fn rule(&self) -> PolicyRule {
        PolicyRule {
            api_groups: Some(vec![self.group.clone()]),
            resources: Some(vec![self.resource.clone()]),
            verbs: vec![self.verb.clone()],
            resource_names: (!self.name.is_empty()).then(|| vec![self.name.clone()]),
            non_resource_urls: None,
        }
    }
}

/// The broker's ClusterRole as it is in the cluster.
pub(crate) struct Role {
    api: Api<ClusterRole>,
    broker: kube::Client,
    pub(crate) rights: Vec<Right>,
}

impl Role {
    pub(crate) async fn open(world: &World) -> Result<Self> {
        let api: Api<ClusterRole> = Api::all(world.cluster().admin().await?);
        let broker = client(world.cluster().broker_kubeconfig()).await?;
        let mut rights = Vec::new();
        for rule in api.get("tenant-broker").await?.rules.unwrap_or_default() {
            let names = rule.resource_names.unwrap_or_else(|| vec![String::new()]);
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    for (verb, name) in
                        rule.verbs.iter().flat_map(|verb| names.iter().map(move |it| (verb, it)))
                    {
                        rights.push(Right {
                            verb: verb.clone(),
                            group: group.clone(),
                            resource: resource.clone(),
                            name: name.clone(),
                        });
                    }
                }
            }
        }
        Ok(Self { api, broker, rights })
    }

    /// Removes one right, and returns once the API server has noticed.
    pub(crate) async fn without(&self, right: &Right) -> Result<()> {
        let rights = self.rights.iter().filter(|other| *other != right);
        self.give(rights.map(Right::rule).collect(), right, false).await
    }

    /// Limits one right to an object of this name, and returns once the API server has noticed.
    pub(crate) async fn only_for(&self, right: &Right, name: &str) -> Result<()> {
        let limited = Right { name: name.to_owned(), ..right.clone() };
        let rights = self.rights.iter().map(|other| if other == right { &limited } else { other });
        self.give(rights.map(Right::rule).collect(), right, false).await
    }

    /// Restores all rights.
    pub(crate) async fn whole(&self, missing: &Right) -> Result<()> {
        self.give(self.rights.iter().map(Right::rule).collect(), missing, true).await
    }

    /// Sets the rules, and returns once the API server allows a right, or no longer allows it.
    async fn give(&self, rules: Vec<PolicyRule>, changed: &Right, allowed: bool) -> Result<()> {
        let patch = Patch::Merge(json!({"rules": rules}));
        self.api.patch("tenant-broker", &PatchParams::default(), &patch).await?;
        let (resource, subresource) =
            changed.resource.split_once('/').unwrap_or((&changed.resource, ""));
        let question: SelfSubjectAccessReview = serde_json::from_value(json!({
            "spec": {"resourceAttributes": {"verb": changed.verb, "group": changed.group,
                "resource": resource, "subresource": subresource, "name": changed.name}}
        }))?;
        let api: Api<SelfSubjectAccessReview> = Api::all(self.broker.clone());
        probe::until("RBAC to change", RIGHTS_TIMEOUT, || async {
            let answer = api.create(&PostParams::default(), &question).await?;
            let may = answer.status.is_some_and(|status| status.allowed);
            Ok(if may == allowed { Probe::Ready(()) } else { Probe::NotYet(format!("{may}")) })
        })
        .await
    }
}

/// A prepared workflow.
struct Case<'a> {
    world: &'a World,
    workflow: Workflow,
    person: BrokerApi,
    operator: BrokerApi,
    namespace: String,
    workspace: Option<Uuid>,
}

impl<'a> Case<'a> {
    async fn prepare(world: &'a World, workflow: Workflow, number: usize) -> Result<Self> {
        let tenant = world.person(&format!("tenant-{number}")).await?;
        let operator = world.administrator(&format!("operator-{number}")).await?.api().await?;
        let person = tenant.api().await?;
        let workspace = match workflow {
            Init => None,
            _ => Some(person.init("basic").await?.0.id),
        };
        let namespace = tenant.namespace();
        if workflow == FinishInit {
            reset_to_unfinished(world, &namespace).await?;
        }
        if workflow == SuspendHeld {
            let hold = r#"{"metadata":{"finalizers":["a.example.com/hold"]}}"#;
            let account = format!("serviceaccount/{SERVICE_ACCOUNT_NAME}");
            for held in [&account, &format!("rolebinding/{ROLE_BINDING_NAME}")] {
                let args = ["patch", held, "-n", &namespace, "--type=merge", "-p", hold];
                world.admin_kubectl()?.run(args).await?.success()?;
            }
        }
        Ok(Self { world, workflow, person, operator, namespace, workspace })
    }

    /// Runs the workflow; it may be repeated.
    async fn run(&self) -> Result<()> {
        match self.workflow {
            Init | FinishInit => {
                let (workspace, _) = self.person.init("basic").await?;
                let status = workspace.status;
                ensure!(status == WorkspaceStatus::Provisioned, "{status:?}");
            }
            Token => {
                let workspace = self.workspace.context("there is no workspace")?;
                self.person.credential(workspace).await?;
            }
            BoundToken => {
                let workspace = self.workspace.context("there is no workspace")?;
                let issued = self.person.credential(workspace).await?.credential_id;
                let page = self.person.credentials(workspace, "").await?;
                let found = page.items.iter().find(|it| it.credential_id == issued);
                ensure!(found.is_some_and(|it| it.bound), "it is not bound: {found:?}");
            }
            Revoke => {
                let workspace = self.workspace.context("there is no workspace")?;
                let issued = self.person.credential(workspace).await?.credential_id;
                let revocation = self.person.revoke(workspace, &issued).await?;
                let alone = revocation.by == Some(RevokedBy::Secret);
                let done = revocation.state == RevocationState::Revoked;
                ensure!(alone && done, "it is not revoked alone: {revocation:?}");
            }
            Repair => {
                let binding = ["delete", "rolebinding", ROLE_BINDING_NAME, "--ignore-not-found"];
                self.break_and_wait(&binding).await?;
            }
            Replace => {
                let patch = r#"{"subjects": [{"apiGroup": "rbac.authorization.k8s.io",
                    "kind": "User", "name": "mallory"}]}"#;
                self.break_and_wait(&["patch", "rolebinding", ROLE_BINDING_NAME, "-p", patch])
                    .await?;
            }
            Suspend | SuspendHeld => {
                let workspace = self.workspace.context("there is no workspace")?;
                let suspension =
                    self.operator.suspend(workspace, &SuspendRequest::default()).await?;
                let open = suspension.steps.iter().any(|step| step.result == StepResult::Open);
                ensure!(!open, "a step is open: {suspension:?}");
            }
            Doctor => {
                let finished = self.world.broker().run(&["doctor", "-o", "json"]).await?;
                let report: serde_json::Value = serde_json::from_str(&finished.stdout)?;
                // The doctor also asks RBAC for every right; only a failed action counts here.
                let failed = report["checks"].as_array().into_iter().flatten().find(|check| {
                    let title = check["check"].as_str().unwrap_or_default();
                    check["outcome"] == "fail" && !title.starts_with("may ")
                });
                ensure!(failed.is_none(), "{failed:?}");
            }
            Start => bail!("the broker cannot start itself"),
        }
        Ok(())
    }

    /// Breaks the workspace's binding as an administrator, and waits until it is repaired.
    async fn break_and_wait(&self, args: &[&str]) -> Result<()> {
        let admin = self.world.admin_kubectl()?;
        // The broker may be about to replace it.
        probe::until("the binding to be there", REPAIR_TIMEOUT, || async {
            let args = args.iter().copied().chain(["-n", &self.namespace]);
            let done = admin.run(args).await?;
            let there = done.status.success();
            Ok(if there { Probe::Ready(()) } else { Probe::NotYet(done.stderr) })
        })
        .await?;
        let binding = ["rolebinding", ROLE_BINDING_NAME, "-n", &self.namespace];
        probe::until("the binding to be as it was", REPAIR_TIMEOUT, || async {
            let there = super::object(self.world, &binding).await?.unwrap_or_default();
            let subject = &there["subjects"][0]["name"];
            Ok(if subject == SERVICE_ACCOUNT_NAME {
                Probe::Ready(())
            } else {
                Probe::NotYet(subject.to_string())
            })
        })
        .await
    }
}

/// Resets a workspace to the state before its completion was recorded.
async fn reset_to_unfinished(world: &World, namespace: &str) -> Result<()> {
    let mut database = sqlx::SqliteConnection::connect(world.database_url()?.as_str()).await?;
    let done = sqlx::query("UPDATE workspaces SET status = 'provisioning' WHERE k8s_namespace = ?")
        .bind(namespace)
        .execute(&mut database)
        .await?;
    ensure!(done.rows_affected() == 1, "there is no row of {namespace}");
    Ok(())
}
