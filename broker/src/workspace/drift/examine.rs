//! Examination of one workspace: its drift is recorded, and repaired where the broker may do so
//! ([`super::repair`]).
//!
//! | drift | action |
//! |---|---|
//! | RoleBinding missing or altered | recreated, because it decides who has rights |
//! | ServiceAccount missing, foreign or replaced | recreated; a foreign one is never adopted |
//! | ResourceQuota, LimitRange, NetworkPolicy missing | recreated |
//! | ResourceQuota, LimitRange, NetworkPolicy altered | reported: an operator may intend it |
//! | ResourceQuota, LimitRange of an older version of the broker | none: a workspace keeps them |
//! | Namespace missing or not ours | reported; the workspace is failed until the next `init` |
//! | pod security altered, suspended label set by hand | reported: the broker may not weaken them |
//! | suspended: label missing, any RoleBinding, the ServiceAccount | access is revoked again |
//!
//! A membership in a tenant has a ServiceAccount only ([`super::membership`]).

use k8s_openapi::api::core::v1::Namespace;
use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use super::{record::Finding, repair::Repair};
use crate::{
    cluster::{
        Cluster, ClusterError, Compared, Difference, NamespaceOwnership, Object, ObjectComparison,
        is_marked_suspended,
    },
    tier::Tier,
    workspace::{
        WorkspaceError, WorkspaceRow, Workspaces, objects,
        state::WorkspaceKind,
        store::{self, drift},
    },
};

/// Whether the namespace of a provisioned workspace matches its desired state.
pub(super) fn namespace_matches(there: &Namespace, wanted: &Namespace) -> bool {
    there.compare(wanted).is_none() && !is_marked_suspended(there)
}

/// The drift of one workspace.
#[derive(Default)]
pub(super) struct Examination {
    findings: Vec<Finding>,
    /// The repairs for those findings that the broker may repair.
    repairs: Vec<Repair>,
    /// Whether the namespace is missing or not ours.
    lost: bool,
}

impl Examination {
    pub(super) fn add_finding(&mut self, kind: &'static str, difference: Difference) -> Finding {
        let finding = Finding { kind, difference };
        self.findings.push(finding);
        finding
    }

    fn plan_repair(&mut self, object: Object, difference: Difference, uid: String) {
        let finding = self.add_finding(object.kind(), difference);
        self.repairs.push(Repair { finding, object, uid });
    }
}

impl Workspaces {
    /// Examines a workspace, records its drift and repairs it.
    pub(super) async fn examine(&self, id: Uuid) -> Result<(), WorkspaceError> {
        let Some(workspace) = store::by_id(&self.db, id).await? else { return Ok(()) };
        if !drift::is_steady(workspace.status()) {
            return Ok(());
        }
        if workspace.kind() == WorkspaceKind::Membership {
            return self.examine_membership(&workspace).await;
        }
        let Some(tier) = self.tiers.get(&workspace.tier) else {
            let tier = &workspace.tier;
            tracing::warn!(workspace_id = %id, tier, "the tier is no longer configured");
            return Ok(());
        };
        let wanted = objects::desired(id, &workspace.k8s_namespace, &workspace.tier, tier);
        let examination = match workspace.status() {
            WorkspaceStatus::Suspended => self.examine_suspended(&workspace, &wanted).await?,
            _ => self.examine_working(&workspace, wanted, tier).await?,
        };
        self.record_and_repair(&workspace, examination).await
    }

    /// Records the drift that was found, and repairs it.
    pub(super) async fn record_and_repair(
        &self,
        workspace: &WorkspaceRow,
        examination: Examination,
    ) -> Result<(), WorkspaceError> {
        // During a rotation the broker itself replaces the ServiceAccount. It cannot do so in a
        // namespace that is lost.
        if workspace.is_rotating() && !examination.lost {
            return Ok(());
        }
        // The broker changes the row of a workspace before its objects. If the row is unchanged,
        // the differences are not caused by an operation in flight.
        let now = store::by_id(&self.db, workspace.id).await?;
        if now.is_none_or(|now| {
            (now.status(), now.status_changed_at, &now.k8s_sa_uid)
                != (workspace.status(), workspace.status_changed_at, &workspace.k8s_sa_uid)
        }) {
            return Ok(());
        }
        self.record_findings(workspace, &examination.findings, examination.lost).await?;
        match workspace.status() {
            WorkspaceStatus::Suspended => {
                self.repair_suspended(workspace, &examination.findings).await
            }
            _ => self.repair(workspace, examination.repairs).await,
        }
    }

    async fn examine_working(
        &self,
        workspace: &WorkspaceRow,
        wanted: Vec<Object>,
        tier: &Tier,
    ) -> Result<Examination, WorkspaceError> {
        let cluster = self.cluster_of(workspace)?;
        let mut examination = Examination::default();
        let mut may_write = true;
        for object in wanted {
            if matches!(object, Object::Namespace(_)) {
                may_write =
                    self.examine_namespace(cluster, workspace, &object, &mut examination).await?;
                if examination.lost {
                    return Ok(examination);
                }
            } else {
                examine_object(cluster, workspace, Some(tier), object, &mut examination).await?;
            }
        }
        if !may_write {
            // Somebody suspended the workspace by hand, so no access is restored.
            examination.repairs.clear();
        }
        Ok(examination)
    }

    /// Examines the namespace of a provisioned workspace. Returns whether the broker may repair the
    /// objects in it.
    async fn examine_namespace(
        &self,
        cluster: &Cluster,
        workspace: &WorkspaceRow,
        wanted: &Object,
        examination: &mut Examination,
    ) -> Result<bool, WorkspaceError> {
        let kind = wanted.kind();
        let ObjectComparison { difference, uid } = cluster.get_and_compare(wanted).await?;
        if let Some(difference) = difference {
            examination.add_finding(kind, difference);
            examination.lost = difference != Difference::PodSecurity;
        }
        if examination.lost {
            return Ok(false);
        }
        self.store_namespace_uid(workspace, &uid).await?;
        let is_suspended = cluster.is_marked_suspended(&workspace.k8s_namespace).await?;
        if is_suspended {
            examination.add_finding(kind, Difference::SuspendedLabel);
        }
        Ok(!is_suspended)
    }

    async fn examine_suspended(
        &self,
        workspace: &WorkspaceRow,
        wanted: &[Object],
    ) -> Result<Examination, WorkspaceError> {
        let mut examination = Examination::default();
        let (cluster, namespace) = (self.cluster_of(workspace)?, workspace.k8s_namespace.as_str());
        // Only the first object, the namespace, has to exist.
        let Some(wanted) = wanted.first() else { return Ok(examination) };
        let kind = wanted.kind();
        let ObjectComparison { difference, uid } = cluster.get_and_compare(wanted).await?;
        if let Some(difference) = difference {
            // A workspace that was suspended before its objects were created has no namespace.
            if difference == Difference::Missing
                && workspace.k8s_sa_uid.is_none()
                && workspace.k8s_namespace_uid.is_none()
            {
                return Ok(examination);
            }
            examination.add_finding(kind, difference);
            // Without our label the policies no longer apply, so rights can be granted there again.
            let is_relabelled = difference == Difference::Foreign
                && matches!(
                    cluster
                        .namespace_ownership(namespace, workspace.id, workspace.recorded_uids())
                        .await?,
                    NamespaceOwnership::Relabelled { .. }
                );
            if difference != Difference::PodSecurity && !is_relabelled {
                return Ok(examination);
            }
        } else {
            self.store_namespace_uid(workspace, &uid).await?;
        }
        if !cluster.is_marked_suspended(namespace).await? {
            examination.add_finding(kind, Difference::SuspendedLabel);
        }
        if cluster.has_role_bindings(namespace).await? {
            examination.add_finding("RoleBinding", Difference::Unexpected);
        }
        let name = workspace.service_account();
        if cluster.service_account_uid(namespace, name).await?.is_some() {
            examination.add_finding("ServiceAccount", Difference::Unexpected);
        }
        Ok(examination)
    }

    /// Stores the uid of a namespace that is ours. Rows of earlier versions have none, and a
    /// restored backup has another one.
    pub(super) async fn store_namespace_uid(
        &self,
        workspace: &WorkspaceRow,
        uid: &str,
    ) -> sqlx::Result<()> {
        if workspace.k8s_namespace_uid.as_deref() == Some(uid) {
            return Ok(());
        }
        store::set_namespace_uid(&self.db, workspace, uid).await
    }
}

/// Examines an object of a provisioned workspace. Objects that depend on the tier need it, because
/// those of older versions are kept.
pub(super) async fn examine_object(
    cluster: &Cluster,
    workspace: &WorkspaceRow,
    tier: Option<&Tier>,
    object: Object,
    examination: &mut Examination,
) -> Result<(), ClusterError> {
    let kind = object.kind();
    let ObjectComparison { difference, uid } = cluster.get_and_compare(&object).await?;
    let is_recorded_account = workspace.k8s_sa_uid.as_ref() == Some(&uid);
    match (&object, difference) {
        (Object::ServiceAccount(_), None) if !is_recorded_account => {
            examination.plan_repair(object, Difference::Replaced, uid);
        }
        (_, None) => {}
        (
            Object::ResourceQuota(_) | Object::LimitRange(_) | Object::NetworkPolicy(_),
            Some(difference),
        ) if difference != Difference::Missing => {
            if !matches_older_version(cluster, &object, tier).await? {
                examination.add_finding(kind, difference);
            }
        }
        // Our account without its labels is kept, because a new one would revoke all tokens.
        (Object::ServiceAccount(_), Some(difference @ Difference::Foreign))
            if is_recorded_account =>
        {
            examination.add_finding(kind, difference);
        }
        (_, Some(difference @ Difference::Terminating)) => {
            examination.add_finding(kind, difference);
        }
        (_, Some(difference)) => examination.plan_repair(object, difference, uid),
    }
    Ok(())
}

/// Whether the object is as an older version of the broker created it for this tier.
async fn matches_older_version(
    cluster: &Cluster,
    wanted: &Object,
    tier: Option<&Tier>,
) -> Result<bool, ClusterError> {
    match tier.and_then(|tier| objects::older_version_of(wanted, tier)) {
        Some(older) => Ok(cluster.get_and_compare(&older).await?.difference.is_none()),
        None => Ok(false),
    }
}
