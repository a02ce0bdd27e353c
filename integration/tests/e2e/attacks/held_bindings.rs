//! A tenant that prepares for a suspension: bindings that cannot be deleted at once. RBAC grants
//! through a binding that is being deleted, so each of them would outlive the suspension.

use std::time::Duration;

use integration::api::Api;
use integration::kubectl::Kubectl;
use integration::measure::process_memory::PeakMemory;
use integration::person::Person;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Map, Value, json};
use tenant_shared::{StepResult, SuspendRequest, Suspension, WorkspaceStatus};
use uuid::Uuid;

use super::{are_refused, is_refused};

const WAIT_TIMEOUT: Duration = Duration::from_mins(1);
/// Memory that a suspension may need. Parsed, a list of these bindings takes more.
const MAX_GROWTH_MIB: f64 = 60.0;
const OBJECTS: &str = "tenant-guard-objects";
const HOLD: &str = r#"{"metadata":{"finalizers":["attacker.example.com/hold"]}}"#;
const CREATE: [&str; 3] = ["create", "-f", "-"];
const REPLACE: [&str; 3] = ["replace", "-f", "-"];

/// A tenant with a ServiceAccount of its own, which is the subject of every binding of these tests.
struct PreparedTenant {
    world: World,
    mallory: Person,
    operator: Api,
    id: Uuid,
    namespace: String,
    extra_account: String,
}

impl PreparedTenant {
    async fn start() -> Self {
        let world = World::builder().setting("sweep_seconds", 1).start().await.unwrap();
        let mallory = world.person("mallory").await.unwrap();
        let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
        mallory.login(&[]).await.unwrap().success().unwrap();
        let namespace = mallory.namespace();
        let id = mallory.api().await.unwrap().workspaces(false).await.unwrap().items[0].id;
        let account = ["create", "serviceaccount", "extra"];
        mallory.kubectl().run(account).await.unwrap().success().unwrap();
        let extra_account = format!("system:serviceaccount:{namespace}:extra");
        Self { world, mallory, operator, id, namespace, extra_account }
    }

    fn binding(&self, name: &str, metadata: &Value) -> Value {
        let mut binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": self.namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "extra", "namespace": self.namespace}]});
        for (key, value) in metadata.as_object().unwrap() {
            binding["metadata"][key] = value.clone();
        }
        binding
    }

    /// Creates an object as an administrator, whom no policy refuses: as if it were older than the
    /// policies.
    async fn make_as_admin(&self, object: &Value) {
        let admin = self.admin();
        admin.run_with_input(CREATE, object.to_string()).await.unwrap().success().unwrap();
    }

    fn admin(&self) -> Kubectl {
        self.world.admin_kubectl().unwrap()
    }

    /// Runs this command in the namespace.
    async fn as_admin(&self, args: &[&str]) {
        let args = args.iter().copied().chain(["-n", &self.namespace]);
        self.admin().run(args).await.unwrap().success().unwrap();
    }

    /// Whether RBAC lets the tenant's own account read Secrets.
    async fn can_still_read_secrets(&self) -> bool {
        let args = ["get", "secrets", "--as", &self.extra_account, "-n", &self.namespace];
        self.admin().run(args).await.unwrap().status.success()
    }

    async fn suspend(&self) -> Suspension {
        self.operator.suspend(self.id, &SuspendRequest::default()).await.unwrap()
    }

    /// Checks that everything is deleted when `suspend` returns, and that the workspace can be
    /// resumed later.
    async fn is_suspended_and_comes_back(&self) {
        let suspension = self.suspend().await;
        assert_eq!(suspension.status, WorkspaceStatus::Suspended, "{suspension:#?}");
        assert!(suspension.steps.iter().all(|step| step.result == StepResult::Done));
        assert!(!self.can_still_read_secrets().await, "the extra account can still read Secrets");
        for kind in ["rolebindings", "serviceaccount/sa-tenant-admin"] {
            let there = super::super::object(&self.world, &[kind, "-n", &self.namespace]).await;
            assert!(there.unwrap().is_none(), "{kind}");
        }
        let resumed = probe::until("the resumption", WAIT_TIMEOUT, || async {
            Ok(match self.operator.resume(self.id, &SuspendRequest::default()).await {
                Ok(resumed) => Probe::Ready(resumed),
                Err(error) => Probe::NotYet(error.to_string()),
            })
        });
        assert_eq!(resumed.await.unwrap().status, WorkspaceStatus::Provisioned);
        self.mallory.api().await.unwrap().credential(self.id).await.unwrap();
    }
}

#[tokio::test]
async fn a_tenant_gives_its_bindings_no_finalizers_and_no_owners() {
    let prepared = PreparedTenant::start().await;
    let kubectl = prepared.mallory.kubectl();
    let plain = prepared.binding("extra", &json!({}));
    kubectl.run_with_input(CREATE, plain.to_string()).await.unwrap().success().unwrap();
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "controller": true,
        "uid": "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "blockOwnerDeletion": true}]);
    let patch_owner = json!({"metadata": {"ownerReferences": owner}}).to_string();
    let patch = |patch| ["patch", "rolebinding", "extra", "--type=merge", "-p", patch];
    are_refused(kubectl, &[(&patch(HOLD), OBJECTS), (&patch(&patch_owner), OBJECTS)]).await;
    for metadata in
        [json!({"finalizers": ["attacker.example.com/hold"]}), json!({"ownerReferences": owner})]
    {
        is_refused(kubectl, &CREATE, &prepared.binding("held", &metadata), OBJECTS).await;
    }
    // Nor by deletion: the API server's own finalizer is the only one that it can get, and the API
    // server accepts no other one afterwards.
    let foreground = ["delete", "rolebinding", "extra", "--cascade=foreground", "--wait=false"];
    kubectl.run(foreground).await.unwrap().success().unwrap();
    are_refused(kubectl, &[(&patch(HOLD), "no new finalizers can be added")]).await;
    prepared.is_suspended_and_comes_back().await;
}

/// All kinds of held bindings: with a finalizer, terminating, with a blocking dependent, and from
/// before the policies.
#[tokio::test]
async fn no_binding_keeps_a_suspension_from_completing() {
    let prepared = PreparedTenant::start().await;
    let held = json!({"finalizers": ["attacker.example.com/hold"]});
    prepared.make_as_admin(&prepared.binding("held", &held)).await;
    prepared.make_as_admin(&prepared.binding("terminating", &held)).await;
    prepared.as_admin(&["delete", "rolebinding", "terminating", "--wait=false"]).await;
    prepared.make_as_admin(&prepared.binding("orphaning", &json!({}))).await;
    let orphan = ["delete", "rolebinding", "orphaning", "--cascade=orphan", "--wait=false"];
    prepared.as_admin(&orphan).await;

    // The API server itself adds the finalizer, and a dependent keeps the garbage collector from
    // removing it.
    prepared.make_as_admin(&prepared.binding("foreground", &json!({}))).await;
    let foreground = ["rolebinding", "foreground", "-n", &prepared.namespace];
    let there = super::super::object(&prepared.world, &foreground);
    let uid = there.await.unwrap().unwrap()["metadata"]["uid"].clone();
    let dependent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "dependent", "namespace": prepared.namespace,
        "finalizers": ["attacker.example.com/hold"],
        "ownerReferences": [{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "name": "foreground", "uid": uid, "blockOwnerDeletion": true}]}});
    let kubectl = prepared.mallory.kubectl();
    kubectl.run_with_input(CREATE, dependent.to_string()).await.unwrap().success().unwrap();
    let foreground =
        ["delete", "rolebinding", "foreground", "--cascade=foreground", "--wait=false"];
    kubectl.run(foreground).await.unwrap().success().unwrap();
    assert!(
        prepared.can_still_read_secrets().await,
        "RBAC grants through a binding that is being deleted"
    );
    prepared.is_suspended_and_comes_back().await;
}

/// The API server accepts nearly any name for RBAC objects. A path that contains it unescaped names
/// another object, or none.
#[tokio::test]
async fn a_binding_is_deleted_whatever_its_name() {
    let prepared = PreparedTenant::start().await;
    for name in ["x", "x?y", "x#y", "a b", "ü", "a;b&c=d", "rb-tenant-admin?"] {
        let held = json!({"finalizers": ["attacker.example.com/hold"]});
        prepared.make_as_admin(&prepared.binding(name, &held)).await;
    }
    prepared.is_suspended_and_comes_back().await;
}

#[tokio::test]
async fn an_account_with_a_finalizer_is_deleted() {
    let prepared = PreparedTenant::start().await;
    prepared.as_admin(&["patch", "serviceaccount", "sa-tenant-admin", "-p", HOLD]).await;
    prepared.is_suspended_and_comes_back().await;
}

#[tokio::test]
async fn a_hundred_bindings_of_which_finalizers_hold_twenty_are_all_deleted() {
    let prepared = PreparedTenant::start().await;
    let quota = r#"{"spec":{"hard":{"count/rolebindings.rbac.authorization.k8s.io":"5000"}}}"#;
    prepared.as_admin(&["patch", "quota", "tenant-quota", "-p", quota]).await;
    let all: Vec<Value> = (0..100)
        .map(|number| {
            let metadata = if number % 5 == 0 {
                json!({"finalizers": ["attacker.example.com/hold", "attacker.example.com/other"]})
            } else {
                json!({})
            };
            prepared.binding(&format!("extra-{number}"), &metadata)
        })
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": all});
    prepared.make_as_admin(&list).await;
    prepared.is_suspended_and_comes_back().await;
}

/// Server-side apply under many names of managers makes objects large that have few fields. Parsed, their
/// `managedFields` take about fifteen times as much memory as they have bytes.
#[tokio::test]
async fn bindings_with_large_managed_fields_do_not_exhaust_the_memory_of_a_suspension() {
    let prepared = PreparedTenant::start().await;
    let labels: Map<String, Value> =
        (0..60).map(|number| (format!("label-{number}"), json!("x"))).collect();
    let fields: Map<String, Value> =
        labels.keys().map(|label| (format!("f:{label}"), json!({}))).collect();
    let managed: Vec<Value> = (0..500)
        .map(|number| {
            json!({"manager": format!("manager-{number}"), "operation": "Apply",
                "apiVersion": "rbac.authorization.k8s.io/v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:labels": fields}}})
        })
        .collect();
    let plain = json!({"labels": labels});
    let large = json!({"labels": labels, "managedFields": managed});
    let kubectl = prepared.mallory.kubectl();
    for number in 0..8 {
        let name = format!("large-{number}");
        prepared.make_as_admin(&prepared.binding(&name, &plain)).await;
        // The API server takes them over from updates only.
        let binding = prepared.binding(&name, &large);
        if number == 0 {
            is_refused(kubectl, &REPLACE, &binding, OBJECTS).await;
        }
        let replaced = prepared.admin().run_with_input(REPLACE, binding.to_string()).await;
        replaced.unwrap().success().unwrap();
        // The API server adds its own finalizer, so the response to its removal has the object.
        let held = ["delete", "rolebinding", &*name, "--cascade=foreground", "--wait=false"];
        if number % 2 == 0 {
            kubectl.run(held).await.unwrap().success().unwrap();
        }
    }
    let args = ["get", "rolebinding", "large-1", "--show-managed-fields", "-o", "json"];
    let created = kubectl.run(args).await.unwrap().success().unwrap();
    assert!(created.stdout.len() > 500_000, "{}", created.stdout.len());
    let memory = PeakMemory::of(prepared.world.broker().pid().unwrap()).unwrap();
    // The API server takes long for each of them.
    let suspended = probe::until("the suspension", WAIT_TIMEOUT, || async {
        let suspension = prepared.suspend().await;
        let is_done = suspension.status == WorkspaceStatus::Suspended;
        Ok(if is_done { Probe::Ready(()) } else { Probe::NotYet(format!("{suspension:?}")) })
    });
    suspended.await.unwrap();
    prepared.is_suspended_and_comes_back().await;
    let grown = memory.grown_mib().unwrap();
    assert!(grown < MAX_GROWTH_MIB, "the broker needed {grown} MiB more");
}
