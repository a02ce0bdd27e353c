//! Necessity of every right that `install` adds to the broker's ClusterRole for tenants: without it a
//! workflow is refused, and with it the same workflow succeeds.

use anyhow::{Context as _, Result, bail, ensure};
use integration::acceptance::tenants::{Fixture, RECONCILE_TIMEOUT, SignedIn};
use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};
use tenant_shared::{StepResult, SuspendRequest};

use super::{CAPSULE, Group, TENANT_BROKER, install, until_served, with_object};
use crate::rights::{self, ADMISSION, RBAC, Right, Role};

use Workflow::{
    Bind, BindOwners, ChangeBinding, ChangeLimits, ChangeQuota, Close, Create, Join, NewTenant,
    RemoveLimits, RemoveQuota, Watch,
};

const DEFINITIONS: &str = "apiextensions.k8s.io";
const BROKER_GROUP: &str = "tenant-broker.io";
const OF_CAPSULE: &str = "capsule.clastix.io";
const LIMITS: &str = "limitrange/tenant-limits-0";
const QUOTA: &str = "resourcequota/tenant-quota-0";
/// The only ServiceAccount that the rules about ServiceAccounts name if there are no tenants.
const PERSONAL_ACCOUNT: &str = "sa-tenant-admin";

/// A workflow of the broker for a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workflow {
    /// The broker notices that somebody changed an object of this kind. It is restarted, because an
    /// open watch goes on.
    Watch(&'static str),
    /// Owners get this ClusterRole.
    Bind(&'static str),
    /// A new tenant has owners.
    BindOwners,
    /// There is another owner.
    ChangeBinding,
    ChangeQuota,
    RemoveQuota,
    ChangeLimits,
    RemoveLimits,
    /// The Tenant is deleted, so its bindings end.
    Close,
    /// A Tenant is made, and gets its status.
    NewTenant,
    /// A person becomes a member.
    Join,
    /// An owner with this ClusterRole creates a namespace, and the broker waits until their rights
    /// are in force.
    Create(&'static str),
}

/// The workflow that fails without each right: verb, API group, resource, name.
const NEEDED: [(&str, &str, &str, &str, Workflow); 26] = [
    ("watch", "", "namespaces", "", Watch("Namespace")),
    ("watch", RBAC, "rolebindings", "", Watch("RoleBinding")),
    ("update", RBAC, "rolebindings", "", ChangeBinding),
    ("watch", "", "resourcequotas", "", Watch("ResourceQuota")),
    ("update", "", "resourcequotas", "", ChangeQuota),
    ("delete", "", "resourcequotas", "", RemoveQuota),
    ("watch", "", "limitranges", "", Watch("LimitRange")),
    ("update", "", "limitranges", "", ChangeLimits),
    ("delete", "", "limitranges", "", RemoveLimits),
    ("bind", RBAC, "clusterroles", "tenant-owner", BindOwners),
    ("bind", RBAC, "clusterroles", "edit", Bind("edit")),
    ("bind", RBAC, "clusterroles", "view", Bind("view")),
    ("bind", RBAC, "clusterroles", DELETER, Bind(DELETER)),
    ("get", RBAC, "clusterroles", "edit", Create("edit")),
    ("get", RBAC, "clusterroles", "view", Create("view")),
    ("get", RBAC, "clusterroles", DELETER, Create(DELETER)),
    ("get", DEFINITIONS, "customresourcedefinitions", "tenants.tenant-broker.io", Close),
    ("get", DEFINITIONS, "customresourcedefinitions", "tenants.capsule.clastix.io", NewTenant),
    ("list", BROKER_GROUP, "tenants", "", Watch("Tenant")),
    ("watch", BROKER_GROUP, "tenants", "", Watch("Tenant")),
    ("get", BROKER_GROUP, "tenants", "", Join),
    ("patch", BROKER_GROUP, "tenants/status", "", NewTenant),
    ("list", OF_CAPSULE, "tenants", "", Watch("Tenant")),
    ("watch", OF_CAPSULE, "tenants", "", Watch("Tenant")),
    ("get", OF_CAPSULE, "tenants", "", Join),
    ("patch", OF_CAPSULE, "tenants/status", "", NewTenant),
];
const DELETER: &str = "tenant-namespace-deleter";

/// Whether personal workspaces need a right, which [`rights`] shows.
fn is_for_workspaces(right: &Right) -> bool {
    let is_tier_role = right.resource != "clusterroles" || right.name == "admin";
    let needed = rights::is_needed(&right.verb, &right.group, &right.resource);
    right.group == ADMISSION || needed && is_tier_role
}

fn workflow(right: &Right) -> Option<Workflow> {
    let mut needed = NEEDED.iter();
    let needed = needed.find(|(verb, group, resource, name, _)| {
        right.is(verb, group, resource) && right.name == *name
    });
    needed.map(|(.., workflow)| *workflow)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_right_for_tenants_is_needed() {
    let fixture = Fixture::start(World::builder().setting("drift_seconds", 3600)).await.unwrap();
    let role = Role::open(&fixture.world).await.unwrap();
    let mut tested = check(&fixture, &role, TENANT_BROKER, |_| true).await;
    accounts_of_members_have_names_of_their_own(&fixture, &role).await;

    install(&fixture.world, &["--apply", "--capsule-api"]).await.success().unwrap();
    until_served(&fixture.world.admin_kubectl().unwrap(), CAPSULE).await;
    let role = Role::open(&fixture.world).await.unwrap();
    tested += check(&fixture, &role, CAPSULE, |right| right.group == OF_CAPSULE).await;
    assert_eq!(tested, NEEDED.len(), "a right of the table is not in the role");
}

/// Takes each of these rights away. Returns their number.
async fn check(
    fixture: &Fixture,
    role: &Role,
    group: Group,
    is_tested: impl Fn(&Right) -> bool,
) -> usize {
    let alice = fixture.person(&format!("alice-{}", group.0.len())).await.unwrap();
    let rights = role.rights.iter().filter(|right| !is_for_workspaces(right) && is_tested(right));
    let mut count = 0;
    for (number, right) in rights.enumerate() {
        let Some(workflow) = workflow(right) else {
            panic!("no workflow needs {right:?}: is it needed at all?")
        };
        let tenant = format!("t{number}-{}", group.0.len());
        let case = Case::prepare(fixture, &alice, group, tenant, workflow).await.unwrap();
        role.without(right).await.unwrap();
        let why = format!("{workflow:?} without {right:?}");
        case.is_refused().await.context(why).unwrap();
        role.whole(right).await.unwrap();
        let why = format!("{workflow:?} with {right:?} back");
        case.succeeds().await.context(why).unwrap();
        count += 1;
    }
    count
}

/// Without tenants RBAC limits these rights to one name. That of a member is another one.
async fn accounts_of_members_have_names_of_their_own(fixture: &Fixture, role: &Role) {
    let alice = fixture.person("member").await.unwrap();
    let case = Case::prepare(fixture, &alice, TENANT_BROKER, "limited".to_owned(), Join).await;
    case.unwrap().succeeds().await.unwrap();
    let (membership, _) = fixture.member(&alice, "limited").await.unwrap();
    let reason = SuspendRequest { reason: None };
    let suspend = async || {
        let suspension = fixture.operator.suspend(membership, &reason).await?;
        let is_open = suspension.steps.iter().any(|step| step.result == StepResult::Open);
        ensure!(!is_open, "{suspension:?}");
        Ok(())
    };
    let issue = async || anyhow::Ok(alice.at(0).credential(membership).await.map(drop)?);
    for (verb, resource) in [
        ("create", "serviceaccounts/token"),
        ("delete", "serviceaccounts"),
        ("patch", "serviceaccounts"),
    ] {
        let mut rights = role.rights.iter();
        let right = rights.find(|right| right.is(verb, "", resource)).unwrap();
        if verb == "patch" {
            let account = format!("serviceaccount/member-{}", alice.id);
            let hold = r#"{"metadata":{"finalizers":["a.example.com/hold"]}}"#;
            let args = ["patch", &account, "-n", "tenant-limited", "--type=merge", "-p", hold];
            let admin = fixture.world.admin_kubectl().unwrap();
            admin.run(args).await.unwrap().success().unwrap();
        }
        role.only_for(right, PERSONAL_ACCOUNT).await.unwrap();
        let refused = if verb == "create" { issue().await } else { suspend().await };
        assert!(refused.is_err(), "{right:?} may be limited by name");
        role.whole(right).await.unwrap();
        if verb == "create" {
            issue().await.unwrap();
        }
    }
    suspend().await.unwrap();
}

/// A prepared workflow for a tenant of its own.
struct Case<'a> {
    fixture: &'a Fixture,
    admin: Kubectl,
    alice: &'a SignedIn,
    group: Group,
    tenant: String,
    workflow: Workflow,
}

impl<'a> Case<'a> {
    async fn prepare(
        fixture: &'a Fixture,
        alice: &'a SignedIn,
        group: Group,
        tenant: String,
        workflow: Workflow,
    ) -> Result<Self> {
        let admin = fixture.world.admin_kubectl()?;
        let case = Self { fixture, admin, alice, group, tenant, workflow };
        if !matches!(workflow, NewTenant | BindOwners) {
            case.apply(&case.spec()).await?;
            fixture.create_namespace(&case.tenant, &case.namespace()).await?;
            case.until("rolebinding", &case.binding("admin"), |it| !it.is_null()).await?;
            case.until("resourcequota", "tenant-quota-0", |it| !it.is_null()).await?;
            case.until_status().await?;
        }
        Ok(case)
    }

    fn namespace(&self) -> String {
        format!("{}-a", self.tenant)
    }

    fn binding(&self, role: &str) -> String {
        format!("tenant-{}-{role}", self.tenant)
    }

    fn spec(&self) -> Value {
        let roles = match self.workflow {
            Create(role) => json!(["admin", role]),
            _ => json!(["admin"]),
        };
        json!({
            "owners": [{"kind": "User", "name": self.alice.email, "clusterRoles": roles}],
            "resourceQuotas": {"scope": "Namespace", "items": [{"hard": {"pods": "4"}}]},
            "limitRanges": {"items": [{"limits": [{"type": "Pod", "max": {"cpu": "4"}}]}]},
        })
    }

    /// The specification that begins the workflow.
    fn changed_spec(&self) -> Value {
        let mut spec = self.spec();
        match self.workflow {
            Bind(role) => spec["owners"][0]["clusterRoles"] = json!(["admin", role]),
            ChangeBinding => {
                let bob = json!({"kind": "User", "name": "bob", "clusterRoles": ["admin"]});
                spec["owners"].as_array_mut().into_iter().for_each(|it| it.push(bob.clone()));
            }
            ChangeQuota => spec["resourceQuotas"]["items"][0]["hard"]["pods"] = json!("5"),
            RemoveQuota => spec["resourceQuotas"] = json!({}),
            ChangeLimits => {
                spec["limitRanges"]["items"][0]["limits"][0]["max"]["cpu"] = json!("5");
            }
            RemoveLimits => spec["limitRanges"] = json!({}),
            Watch(_) | BindOwners | Close | NewTenant | Join | Create(_) => {}
        }
        spec
    }

    async fn apply(&self, spec: &Value) -> Result<()> {
        let object = json!({
            "apiVersion": self.group.1, "kind": "Tenant", "metadata": {"name": self.tenant},
            "spec": spec,
        });
        with_object(&self.admin, &["apply"], object.to_string()).await.success().map(drop)
    }

    async fn object(&self, namespace: &str, kind: &str, name: &str) -> Result<Value> {
        let args = [kind, name, "-n", namespace];
        Ok(crate::object(&self.fixture.world, &args).await?.unwrap_or_default())
    }

    /// Waits until an object in the namespace, `null` if there is none, satisfies a condition.
    async fn until(&self, kind: &str, name: &str, holds: impl Fn(&Value) -> bool) -> Result<()> {
        let namespace = self.namespace();
        probe::until(&format!("{kind} {name}"), RECONCILE_TIMEOUT, || async {
            let object = self.object(&namespace, kind, name).await?;
            Ok(if holds(&object) { Probe::Ready(()) } else { Probe::NotYet(object.to_string()) })
        })
        .await
    }

    async fn tenant(&self) -> Result<Value> {
        Ok(crate::object(&self.fixture.world, &[self.group.0, &self.tenant])
            .await?
            .unwrap_or_default())
    }

    async fn until_status(&self) -> Result<()> {
        probe::until("the status", RECONCILE_TIMEOUT, || async {
            let tenant = self.tenant().await?;
            let is_so = tenant["status"]["state"] == "Active";
            Ok(if is_so { Probe::Ready(()) } else { Probe::NotYet(tenant.to_string()) })
        })
        .await
    }

    /// Begins the workflow; it may be repeated.
    async fn begin(&self) -> Result<()> {
        match self.workflow {
            Close => {
                let keep = "tenant-broker.io/on-delete=keep-namespaces";
                let annotate = ["annotate", self.group.0, &self.tenant, "--overwrite", keep];
                self.admin.run(annotate).await?.success()?;
                let delete = ["delete", self.group.0, &self.tenant];
                self.admin.run(delete).await?.success().map(drop)
            }
            _ => self.apply(&self.changed_spec()).await,
        }
    }

    /// Whether the workflow has ended as it should.
    async fn is_done(&self) -> Result<bool> {
        let (namespace, home) = (self.namespace(), format!("tenant-{}", self.tenant));
        Ok(match self.workflow {
            Bind(role) => {
                !self.object(&namespace, "rolebinding", &self.binding(role)).await?.is_null()
            }
            BindOwners => {
                !self.object(&home, "rolebinding", &self.binding("tenant-owner")).await?.is_null()
            }
            ChangeBinding => {
                let binding =
                    self.object(&namespace, "rolebinding", &self.binding("admin")).await?;
                binding["subjects"].as_array().is_some_and(|subjects| subjects.len() == 2)
            }
            ChangeQuota => {
                let quota = self.object(&namespace, "resourcequota", "tenant-quota-0").await?;
                quota["spec"]["hard"]["pods"] == "5"
            }
            RemoveQuota => {
                self.object(&namespace, "resourcequota", "tenant-quota-0").await?.is_null()
            }
            ChangeLimits => {
                let limits = self.object(&namespace, "limitrange", "tenant-limits-0").await?;
                limits["spec"]["limits"][0]["max"]["cpu"] == "5"
            }
            RemoveLimits => {
                self.object(&namespace, "limitrange", "tenant-limits-0").await?.is_null()
            }
            Close => {
                self.object(&namespace, "rolebinding", &self.binding("admin")).await?.is_null()
            }
            NewTenant => self.tenant().await?["status"]["state"] == "Active",
            Join => self.alice.at(0).join_tenant(&self.tenant).await.is_ok(),
            Watch(_) | Create(_) => bail!("it is not a change of the Tenant"),
        })
    }

    /// Runs the workflow without the right, and waits until the broker says that it is refused.
    async fn is_refused(&self) -> Result<()> {
        let broker = self.fixture.world.broker();
        let before = broker.log()?.len();
        match self.workflow {
            Watch(_) => {
                broker.stop().await?;
                broker.start().await?;
            }
            Join => {
                let joined = self.alice.at(0).join_tenant(&self.tenant).await;
                ensure!(joined.is_err(), "the person became a member");
                return Ok(());
            }
            Create(_) => {
                let name = format!("{}-b", self.tenant);
                self.alice.at(0).create_tenant_namespace(&self.tenant, &name).await?;
                return probe::until("the refusal", RECONCILE_TIMEOUT, || async {
                    let is_told = self.is_read_refused(&name)?;
                    Ok(if is_told { Probe::Ready(()) } else { Probe::NotYet(String::new()) })
                })
                .await;
            }
            _ => self.begin().await?,
        }
        probe::until("the refusal", RECONCILE_TIMEOUT, || async {
            let log = broker.log()?;
            let mut lines = log.get(before..).unwrap_or_default().lines();
            let is_told = match self.workflow {
                Watch(kind) => {
                    let is_of = |line: &str| line.contains(kind) && line.contains(self.api_group());
                    lines.any(|line| {
                        let is_failed = line.contains("watch for tenants failed")
                            || line.contains("does not serve this kind to the broker");
                        is_failed && is_of(line)
                    })
                }
                _ => lines.any(|line| {
                    line.contains("reconciling a tenant failed") && line.contains(&self.tenant)
                }),
            };
            let is_told = is_told || self.has_condition("ApplyFailed").await?;
            if !matches!(self.workflow, Watch(_)) && !is_told {
                ensure!(!self.is_done().await?, "it is done without the right");
            }
            Ok(if is_told { Probe::Ready(()) } else { Probe::NotYet(String::new()) })
        })
        .await
    }

    /// Whether the broker was not allowed to read a ClusterRole when it created this namespace.
    fn is_read_refused(&self, namespace: &str) -> Result<bool> {
        let log = self.fixture.world.broker().log()?;
        let is_about = |line: &str| {
            line.contains("rights in a new namespace may not be in force yet")
                && line.contains(namespace)
                && line.contains("the cluster refused")
        };
        Ok(log.lines().any(is_about))
    }

    /// The API group in the log lines of a watch.
    fn api_group(&self) -> &str {
        match self.workflow {
            Watch("Tenant") => self.group.1.split('/').next().unwrap_or_default(),
            _ => "",
        }
    }

    async fn has_condition(&self, kind: &str) -> Result<bool> {
        let tenant = self.tenant().await?;
        let conditions = tenant["status"]["conditions"].as_array();
        Ok(conditions.into_iter().flatten().any(|condition| condition["type"] == kind))
    }

    /// Runs the workflow with the right.
    async fn succeeds(&self) -> Result<()> {
        if let Watch(kind) = self.workflow {
            return self.is_noticed(kind).await;
        }
        if let Create(_) = self.workflow {
            let name = format!("{}-c", self.tenant);
            self.alice.at(0).create_tenant_namespace(&self.tenant, &name).await?;
            ensure!(!self.is_read_refused(&name)?, "a ClusterRole was not read");
            return Ok(());
        }
        probe::until("the end of the workflow", RECONCILE_TIMEOUT, || async {
            let is_done = self.is_done().await?;
            Ok(if is_done { Probe::Ready(()) } else { Probe::NotYet(String::new()) })
        })
        .await
    }

    /// Changes an object of the kind, and waits until the broker has noticed.
    async fn is_noticed(&self, kind: &str) -> Result<()> {
        let delete = async |name: &str| {
            let namespace = self.namespace();
            let args = ["delete", name, "-n", &namespace];
            self.admin.run(args).await?.success().map(drop)
        };
        match kind {
            "Tenant" => {
                self.apply(&json!({"owners": [{"kind": "User", "name": "bob"}]})).await?;
                let name = self.binding(DELETER);
                self.until("rolebinding", &name, |it| !it.is_null()).await
            }
            "Namespace" => {
                let name = format!("{}-later", self.tenant);
                self.fixture.create_namespace(&self.tenant, &name).await?;
                let binding = self.binding("admin");
                probe::until("the binding", RECONCILE_TIMEOUT, || async {
                    let binding = self.object(&name, "rolebinding", &binding).await?;
                    let is_there = !binding.is_null();
                    Ok(if is_there { Probe::Ready(()) } else { Probe::NotYet(String::new()) })
                })
                .await
            }
            "RoleBinding" => {
                let name = self.binding("admin");
                delete(&format!("rolebinding/{name}")).await?;
                self.until("rolebinding", &name, |it| !it.is_null()).await
            }
            "ResourceQuota" => {
                delete(QUOTA).await?;
                self.until("resourcequota", "tenant-quota-0", |it| !it.is_null()).await
            }
            "LimitRange" => {
                delete(LIMITS).await?;
                self.until("limitrange", "tenant-limits-0", |it| !it.is_null()).await
            }
            other => bail!("no watch of {other}"),
        }
    }
}
