//! Drift: the broker finds objects that an administrator deleted or altered in a workspace, repairs
//! those that it may, and records it once.

use std::time::Duration;

use http::StatusCode;
use integration::api::Api;
use integration::person::Person;
use integration::probe::{self, Probe};
use integration::world::{World, WorldBuilder};
use rustix::process::Signal;
use serde_json::Value;
use tenant_shared::{Code, SuspendRequest, WorkspaceStatus};

const REPAIR_TIMEOUT: Duration = Duration::from_mins(1);

/// Builds a world in which the broker checks for drift every second.
pub(crate) fn checking_every_second() -> WorldBuilder {
    World::builder().setting("drift_seconds", 1).setting("sweep_seconds", 1)
}

/// A person with a workspace whose objects the test changes.
struct DriftedWorkspace {
    world: World,
    alice: Person,
    api: Api,
    admin: Api,
    id: uuid::Uuid,
}

impl DriftedWorkspace {
    async fn start(builder: WorldBuilder) -> Self {
        let world = builder.start().await.unwrap();
        let alice = world.person("alice").await.unwrap();
        let api = alice.api().await.unwrap();
        let (workspace, _) = api.init("basic").await.unwrap();
        let operator = world.administrator("operator").await.unwrap();
        let admin = operator.api().await.unwrap();
        Self { world, alice, api, admin, id: workspace.id }
    }

    /// Runs this command as an administrator, in the workspace's namespace.
    async fn kubectl(&self, args: &[&str]) {
        let namespace = self.alice.namespace();
        let args = args.iter().copied().chain(["-n", &namespace]);
        self.world.admin_kubectl().unwrap().run(args).await.unwrap().success().unwrap();
    }

    /// Labels the namespace as an administrator.
    async fn label(&self, label: &str) {
        let namespace = self.alice.namespace();
        self.kubectl(&["label", "--overwrite", "namespace", &namespace, label]).await;
    }

    /// Creates an object as an administrator.
    async fn make(&self, object: &Value) {
        let file = self.world.folder().join("object.json");
        std::fs::write(&file, object.to_string()).unwrap();
        self.kubectl(&["create", "-f", file.to_str().unwrap()]).await;
    }

    async fn object(&self, kind: &str, name: &str) -> Option<Value> {
        super::object(&self.world, &[kind, name, "-n", &self.alice.namespace()]).await.unwrap()
    }

    /// Returns the reasons in the audit trail of this action, newest first.
    async fn audited(&self, action: &str) -> Vec<String> {
        let query = format!("workspace_id={}&action={action}&limit=100", self.id);
        let page = self.admin.audit_logs(&query).await.unwrap();
        page.items.into_iter().map(|entry| entry.reason.unwrap_or_default()).collect()
    }

    /// Waits until an action was recorded `count` times, and returns the reasons.
    async fn recorded(&self, action: &str, count: usize) -> Vec<String> {
        probe::until(&format!("{action} {count} times"), REPAIR_TIMEOUT, || async {
            let there = self.audited(action).await;
            Ok(if there.len() >= count {
                Probe::Ready(there)
            } else {
                Probe::NotYet(format!("{there:?}\n{}", self.world.broker().log()?))
            })
        })
        .await
        .unwrap()
    }

    /// Waits until the broker has completed `count` further rounds of checks.
    async fn rounds(&self, count: u64) {
        let done = async || {
            metric(&self.world, "tenant_broker_drift_rounds_total{outcome=\"done\"}").await
        };
        let before = done().await;
        probe::until("rounds", REPAIR_TIMEOUT, || async {
            let now = done().await;
            Ok(if now >= before + count {
                Probe::Ready(())
            } else {
                Probe::NotYet(now.to_string())
            })
        })
        .await
        .unwrap();
    }

    async fn shows(&self, name: &str, wanted: u64) {
        probe::until(name, REPAIR_TIMEOUT, || async {
            let number = metric(&self.world, name).await;
            Ok(if number == wanted { Probe::Ready(()) } else { Probe::NotYet(number.to_string()) })
        })
        .await
        .unwrap();
    }

    async fn status(&self) -> WorkspaceStatus {
        self.api.workspace(self.id).await.unwrap().status
    }

    async fn reaches(&self, wanted: WorkspaceStatus) {
        probe::until("the status", REPAIR_TIMEOUT, || async {
            let status = self.api.workspace(self.id).await?.status;
            Ok(if status == wanted {
                Probe::Ready(())
            } else {
                Probe::NotYet(format!("{status:?}"))
            })
        })
        .await
        .unwrap();
    }
}

/// Returns the sum of a metric over all brokers of a world; 0 if it is absent.
async fn metric(world: &World, name: &str) -> u64 {
    let mut sum = 0;
    for broker in world.brokers() {
        let Ok(text) = broker.metrics().await else { continue };
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        sum += line.map_or(0, |number| number.parse::<u64>().unwrap());
    }
    sum
}

const RECREATED: [(&str, &str, &str); 4] = [
    ("resourcequota", "tenant-quota", "ResourceQuota"),
    ("limitrange", "tenant-limits", "LimitRange"),
    ("serviceaccount", "sa-tenant-admin", "ServiceAccount"),
    ("rolebinding", "rb-tenant-admin", "RoleBinding"),
];

#[tokio::test]
async fn deleted_objects_are_recreated_and_audited_once() {
    let broken = DriftedWorkspace::start(checking_every_second()).await;
    for (number, (resource, name, kind)) in RECREATED.into_iter().enumerate() {
        broken.kubectl(&["delete", resource, name]).await;
        let repaired = broken.recorded("DriftRepaired", number + 1).await;
        assert_eq!(repaired[0], format!("{kind} does not exist"));
        assert!(broken.object(resource, name).await.is_some(), "{kind}");
        let counter = format!("tenant_broker_drift_total{{kind=\"{kind}\",what=\"missing\"}}");
        assert_eq!(metric(&broken.world, &counter).await, 1);
    }
    broken.rounds(2).await;
    assert_eq!(broken.audited("DriftFound").await.len(), RECREATED.len());
    assert_eq!(broken.audited("DriftRepaired").await.len(), RECREATED.len());
    assert!(broken.audited("DriftEnded").await.is_empty());
    let workspace = broken.api.workspace(broken.id).await.unwrap();
    assert!(workspace.drift.is_empty(), "{workspace:?}");
    // The account is a new one, created by the broker.
    broken.api.credential(broken.id).await.unwrap();
    broken.alice.login(&[]).await.unwrap().success().unwrap();
    broken.alice.kubectl().run(["get", "secrets"]).await.unwrap().success().unwrap();
}

#[tokio::test]
async fn a_binding_with_other_subjects_is_replaced() {
    let broken = DriftedWorkspace::start(checking_every_second()).await;
    let patch = r#"[{"op": "add", "path": "/subjects/-", "value":
        {"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}}]"#;
    broken.kubectl(&["patch", "rolebinding", "rb-tenant-admin", "--type=json", "-p", patch]).await;
    assert_eq!(broken.recorded("DriftRepaired", 1).await, ["RoleBinding binds somebody else"]);
    let binding = broken.object("rolebinding", "rb-tenant-admin").await.unwrap();
    assert_eq!(binding["subjects"].as_array().unwrap().len(), 1);

    // Another role, and without our labels.
    broken.world.broker().signal(Signal::STOP).unwrap();
    broken.kubectl(&["delete", "rolebinding", "rb-tenant-admin"]).await;
    let create = [
        "create",
        "rolebinding",
        "rb-tenant-admin",
        "--clusterrole=cluster-admin",
        "--user=mallory",
    ];
    broken.kubectl(&create).await;
    broken.world.broker().signal(Signal::CONT).unwrap();
    assert_eq!(
        broken.recorded("DriftRepaired", 2).await[0],
        "RoleBinding exists and is not managed by the broker"
    );
    let binding = broken.object("rolebinding", "rb-tenant-admin").await.unwrap();
    assert_eq!(binding["roleRef"]["name"], "admin");
    assert_eq!(binding["subjects"][0]["name"], "sa-tenant-admin");
}

#[tokio::test]
async fn a_recreated_account_is_not_adopted() {
    let broken = DriftedWorkspace::start(checking_every_second()).await;
    let before = broken.object("serviceaccount", "sa-tenant-admin").await.unwrap();
    broken.world.broker().signal(Signal::STOP).unwrap();
    broken.kubectl(&["delete", "serviceaccount", "sa-tenant-admin"]).await;
    let mut copy = before.clone();
    let metadata = copy["metadata"].as_object_mut().unwrap();
    metadata.retain(|field, _| ["name", "namespace", "labels"].contains(&field.as_str()));
    broken.make(&copy).await;
    let theirs = broken.object("serviceaccount", "sa-tenant-admin").await.unwrap();
    broken.world.broker().signal(Signal::CONT).unwrap();
    let repaired = broken.recorded("DriftRepaired", 1).await;
    assert_eq!(repaired, ["ServiceAccount was recreated by somebody else"]);
    let ours = broken.object("serviceaccount", "sa-tenant-admin").await.unwrap();
    assert_ne!(ours["metadata"]["uid"], before["metadata"]["uid"]);
    assert_ne!(ours["metadata"]["uid"], theirs["metadata"]["uid"]);
    broken.api.credential(broken.id).await.unwrap();
}

#[tokio::test]
async fn changes_that_an_administrator_may_intend_are_reported_and_left() {
    let broken = DriftedWorkspace::start(checking_every_second()).await;
    let more = r#"{"spec": {"hard": {"pods": "99"}}}"#;
    broken.kubectl(&["patch", "resourcequota", "tenant-quota", "-p", more]).await;
    let none = r#"[{"op": "remove", "path": "/spec/limits/0"}]"#;
    broken.kubectl(&["patch", "limitrange", "tenant-limits", "--type=json", "-p", none]).await;
    broken.label("pod-security.kubernetes.io/enforce=privileged").await;
    broken.label("tenant-broker.io/suspended=true").await;
    let mut found = broken.recorded("DriftFound", 4).await;
    found.sort();
    let expected = [
        "LimitRange has another spec",
        "Namespace enforces another pod security level",
        "Namespace has another suspended label than its workspace",
        "ResourceQuota has another spec",
    ];
    assert_eq!(found, expected);
    broken.rounds(2).await;
    assert_eq!(broken.audited("DriftFound").await.len(), 4, "not in every round");
    let drift = broken.api.workspace(broken.id).await.unwrap().drift;
    let mut shown: Vec<_> = drift.iter().map(|it| (it.kind.as_str(), it.what.as_str())).collect();
    shown.sort_unstable();
    let expected = [
        ("LimitRange", "spec"),
        ("Namespace", "pod_security"),
        ("Namespace", "suspended_label"),
        ("ResourceQuota", "spec"),
    ];
    assert_eq!(shown, expected);
    let quota = broken.object("resourcequota", "tenant-quota").await.unwrap();
    assert_eq!(quota["spec"]["hard"]["pods"], "99", "nobody fights over it");
    let open = "tenant_broker_drift_open{kind=\"ResourceQuota\",what=\"spec\"}";
    broken.shows(open, 1).await;
    assert!(broken.audited("DriftRepaired").await.is_empty());
    // The label set by hand is the kill switch of last resort: the broker's own policies respect
    // it.
    let refused = super::refused(broken.api.credential(broken.id).await);
    assert_eq!((refused.status, refused.code()), (StatusCode::BAD_GATEWAY, Code::ClusterRefused));

    broken.label("pod-security.kubernetes.io/enforce=baseline").await;
    broken.label("tenant-broker.io/suspended-").await;
    let less = r#"{"spec": {"hard": {"pods": "20"}}}"#;
    broken.kubectl(&["patch", "resourcequota", "tenant-quota", "-p", less]).await;
    broken.kubectl(&["delete", "limitrange", "tenant-limits"]).await;
    broken.recorded("DriftEnded", 4).await;
    broken.rounds(2).await;
    assert!(broken.api.workspace(broken.id).await.unwrap().drift.is_empty());
    broken.shows(open, 0).await;
    broken.api.credential(broken.id).await.unwrap();
}

#[tokio::test]
async fn a_deleted_or_foreign_namespace_fails_the_workspace() {
    let broken = DriftedWorkspace::start(checking_every_second()).await;
    let namespace = broken.alice.namespace();
    // Without its label the policies no longer match it, and the broker no longer recognizes it.
    broken.label("tenant-broker.io/workspace-").await;
    broken.reaches(WorkspaceStatus::Failed).await;
    assert_eq!(
        broken.audited("DriftFound").await,
        ["Namespace exists and is not managed by the broker"]
    );
    assert_eq!(
        super::refused(broken.api.credential(broken.id).await).code(),
        Code::WorkspaceNotReady
    );
    assert_eq!(super::refused(broken.api.init("basic").await).code(), Code::NamespaceConflict);
    broken.label(&format!("tenant-broker.io/workspace={}", broken.id)).await;
    broken.api.init("basic").await.unwrap();
    broken.recorded("DriftEnded", 1).await;

    broken.kubectl(&["delete", "namespace", &namespace, "--wait=true"]).await;
    broken.reaches(WorkspaceStatus::Failed).await;
    let (workspace, created) = broken.api.init("basic").await.unwrap();
    assert!(created && workspace.id == broken.id);
    broken.api.credential(broken.id).await.unwrap();
    broken.recorded("DriftEnded", 2).await;
    assert_eq!(broken.status().await, WorkspaceStatus::Provisioned);
}

#[tokio::test]
async fn a_suspended_workspace_stays_without_rights() {
    let broken = DriftedWorkspace::start(checking_every_second()).await;
    let suspended = broken.admin.suspend(broken.id, &SuspendRequest::default()).await.unwrap();
    assert_eq!(suspended.status, WorkspaceStatus::Suspended);
    broken.label("tenant-broker.io/suspended-").await;
    let repaired = broken.recorded("DriftRepaired", 1).await;
    assert_eq!(repaired, ["Namespace has another suspended label than its workspace"]);
    let namespace = broken.object("namespace", &broken.alice.namespace()).await.unwrap();
    assert_eq!(namespace["metadata"]["labels"]["tenant-broker.io/suspended"], "true");

    broken
        .kubectl(&["create", "rolebinding", "back", "--clusterrole=admin", "--user=mallory"])
        .await;
    let repaired = broken.recorded("DriftRepaired", 2).await;
    assert_eq!(repaired[0], "RoleBinding exists although the workspace is suspended");
    assert!(broken.object("rolebinding", "back").await.is_none());
    broken.kubectl(&["create", "serviceaccount", "sa-tenant-admin"]).await;
    broken.recorded("DriftRepaired", 3).await;
    assert!(broken.object("serviceaccount", "sa-tenant-admin").await.is_none());
    assert_eq!(broken.status().await, WorkspaceStatus::Suspended);
}

#[tokio::test]
async fn one_of_two_replicas_checks_for_drift() {
    let broken = DriftedWorkspace::start(checking_every_second().postgres().replicas(2)).await;
    for (number, (resource, name, _)) in RECREATED.into_iter().enumerate() {
        broken.kubectl(&["delete", resource, name]).await;
        broken.recorded("DriftRepaired", number + 1).await;
    }
    broken.rounds(2).await;
    assert_eq!(broken.audited("DriftFound").await.len(), RECREATED.len());
    for (_, _, kind) in RECREATED {
        let labels = format!("{{kind=\"{kind}\",what=\"missing\"}}");
        for counter in ["tenant_broker_drift_total", "tenant_broker_drift_repaired_total"] {
            assert_eq!(metric(&broken.world, &format!("{counter}{labels}")).await, 1, "{kind}");
        }
    }
    let rounds = "tenant_broker_drift_rounds_total{outcome=\"done\"}";
    let mut active = 0;
    for broker in broken.world.brokers() {
        active += usize::from(broker.metric(rounds).await.unwrap() > 0.0);
    }
    assert_eq!(active, 1, "the other one waits");
}

#[tokio::test]
async fn drift_is_checked_once_the_cluster_is_reachable_again() {
    let broken = DriftedWorkspace::start(checking_every_second().fault_proxy()).await;
    let failed = "tenant_broker_drift_rounds_total{outcome=\"failed\"}";
    broken.world.proxy().unwrap().down().await;
    broken.kubectl(&["delete", "rolebinding", "rb-tenant-admin"]).await;
    probe::until("a failed round", REPAIR_TIMEOUT, || async {
        let count = metric(&broken.world, failed).await;
        Ok(if count > 0 { Probe::Ready(()) } else { Probe::NotYet(count.to_string()) })
    })
    .await
    .unwrap();
    assert_eq!(broken.status().await, WorkspaceStatus::Provisioned, "silence is no loss");
    assert!(broken.audited("DriftFound").await.is_empty());
    broken.world.proxy().unwrap().up().await.unwrap();
    assert_eq!(broken.recorded("DriftRepaired", 1).await, ["RoleBinding does not exist"]);
}

/// Earlier versions of the broker counted less, and these workspaces still have their quota.
#[tokio::test]
async fn the_quota_of_an_earlier_version_is_no_drift_and_stays() {
    let broken = DriftedWorkspace::start(checking_every_second()).await;
    broken.world.broker().signal(Signal::STOP).unwrap();
    let older = r#"[{"op": "replace", "path": "/spec/hard", "value": {"requests.cpu": "4",
        "limits.memory": "8Gi", "requests.storage": "20Gi", "pods": "20",
        "services.nodeports": "0", "services.loadbalancers": "0", "count/configmaps": "200",
        "count/secrets": "200", "count/rolebindings.rbac.authorization.k8s.io": "20"}}]"#;
    broken.kubectl(&["patch", "resourcequota", "tenant-quota", "--type=json", "-p", older]).await;
    let limits = r#"[{"op": "replace", "path": "/spec/limits/0", "value": {"type": "Container",
        "default": {"cpu": "500m", "memory": "256Mi"},
        "defaultRequest": {"cpu": "50m", "memory": "256Mi"}}}]"#;
    broken.kubectl(&["patch", "limitrange", "tenant-limits", "--type=json", "-p", limits]).await;
    broken.world.broker().signal(Signal::CONT).unwrap();
    broken.rounds(2).await;
    assert!(broken.audited("DriftFound").await.is_empty());

    // The doctor reports them; a suspension and a resumption leave them; a lost workspace gets the
    // new ones.
    let report = broken.world.broker().run(&["doctor"]).await.unwrap();
    assert!(report.stdout.contains("1 are of an earlier version"), "{}", report.stdout);
    broken.admin.suspend(broken.id, &SuspendRequest::default()).await.unwrap();
    broken.reaches(WorkspaceStatus::Suspended).await;
    probe::until("the resumption", REPAIR_TIMEOUT, || async {
        let _ = broken.admin.resume(broken.id, &SuspendRequest::default()).await;
        let status = broken.api.workspace(broken.id).await?.status;
        Ok(if status == WorkspaceStatus::Provisioned {
            Probe::Ready(())
        } else {
            Probe::NotYet(format!("{status:?}"))
        })
    })
    .await
    .unwrap();
    let quota = broken.object("resourcequota", "tenant-quota").await.unwrap();
    assert!(quota["spec"]["hard"]["limits.cpu"].is_null(), "{quota}");

    // One amount that differs from the tier's is drift.
    let more = r#"{"spec": {"hard": {"pods": "99"}}}"#;
    broken.kubectl(&["patch", "resourcequota", "tenant-quota", "-p", more]).await;
    assert_eq!(broken.recorded("DriftFound", 1).await, ["ResourceQuota has another spec"]);
    // Once deleted it is created as this version defines it.
    broken.kubectl(&["delete", "resourcequota", "tenant-quota"]).await;
    broken.recorded("DriftRepaired", 1).await;
    let quota = broken.object("resourcequota", "tenant-quota").await.unwrap();
    assert_eq!(quota["spec"]["hard"]["limits.cpu"], "12", "{quota}");
}

/// In every workspace of a tier that has one, also in workspaces that are older than that setting.
#[tokio::test]
async fn a_missing_network_policy_is_created() {
    let builder = checking_every_second().installed("tiers.basic.network_policy", "deny-ingress");
    let broken = DriftedWorkspace::start(builder).await;
    let name = "tenant-deny-ingress";
    broken.kubectl(&["delete", "networkpolicy", name]).await;
    assert_eq!(broken.recorded("DriftRepaired", 1).await, ["NetworkPolicy does not exist"]);
    assert!(broken.object("networkpolicy", name).await.is_some());
    // An alteration may be an operator's intention, as with a quota.
    let open = r#"{"spec": {"ingress": [{}]}}"#;
    broken.kubectl(&["patch", "networkpolicy", name, "--type=merge", "-p", open]).await;
    assert_eq!(broken.recorded("DriftFound", 2).await[0], "NetworkPolicy has another spec");
    broken.rounds(2).await;
    assert_eq!(broken.audited("DriftRepaired").await.len(), 1);
}
