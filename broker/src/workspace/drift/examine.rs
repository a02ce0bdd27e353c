//! One workspace, looked at: what is wrong is put on record, and set right where the broker may.
//!
//! | what | what follows |
//! |---|---|
//! | RoleBinding gone or altered | made anew: it decides who has rights |
//! | ServiceAccount gone, foreign or another one | made anew; the one that is there is never adopted |
//! | ResourceQuota, LimitRange, NetworkPolicy gone | made anew |
//! | ResourceQuota, LimitRange, NetworkPolicy altered | reported: that may be an operator's wish |
//! | ResourceQuota, LimitRange as an older version made them | nothing: a workspace keeps them |
//! | Namespace gone or not ours | reported; the workspace has failed until its owner asks again |
//! | pod security altered, suspended label by hand | reported: the broker must not weaken these, so it may not write them |
//! | suspended: label gone, any RoleBinding, the ServiceAccount | taken away again |

use k8s_openapi::api::core::v1::Namespace;
use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use super::record::Finding;
use crate::{
    cluster::{
        ClusterError, Compared, Difference, NamespaceStanding, Object, Seen, is_marked_suspended,
    },
    config::Tier,
    problem::chain,
    workspace::{
        Found, WorkspaceError, Workspaces, objects,
        store::{self, drift},
    },
};

/// Whether a namespace of a workspace that works is as it has to be.
pub(super) fn namespace_is_right(there: &Namespace, wanted: &Namespace) -> bool {
    there.compare(wanted).is_none() && !is_marked_suspended(there)
}

/// What a look at a workspace brought.
#[derive(Default)]
struct Look {
    findings: Vec<Finding>,
    /// What of it can be set right.
    repairs: Vec<Repair>,
    /// The namespace is not there, or not ours.
    lost: bool,
}

struct Repair {
    finding: Finding,
    object: Object,
    /// Uid of what is in the place; empty if nothing is.
    uid: String,
}

impl Look {
    fn report(&mut self, kind: &'static str, difference: Difference) -> Finding {
        let finding = Finding { kind, difference };
        self.findings.push(finding);
        finding
    }

    fn repair(&mut self, object: Object, difference: Difference, uid: String) {
        let finding = self.report(object.kind(), difference);
        self.repairs.push(Repair { finding, object, uid });
    }
}

impl Workspaces {
    /// Looks at a workspace and does what follows.
    pub(super) async fn examine(&self, id: Uuid) -> Result<(), WorkspaceError> {
        let Some(found) = store::by_id(&self.db, id).await? else { return Ok(()) };
        // A ServiceAccount that is being replaced is nobody's doing but ours.
        if !drift::is_settled(found.status()) || found.is_rotating() {
            return Ok(());
        }
        let Some(tier) = self.tiers.get(&found.tier) else {
            tracing::warn!(workspace = %id, tier = found.tier, "the tier is configured no more");
            return Ok(());
        };
        let wanted = objects::desired(id, &found.k8s_namespace, &found.tier, tier);
        let look = match found.status() {
            WorkspaceStatus::Suspended => self.look_at_suspended(&found, &wanted).await?,
            _ => self.look_at_working(&found, wanted, tier).await?,
        };
        // Every change of a workspace is in its row before it is in the cluster: if the row is as it
        // was, what was seen is nobody's work under way.
        let now = store::by_id(&self.db, id).await?;
        if now.is_none_or(|now| {
            (now.status(), now.status_changed_at, &now.k8s_sa_uid)
                != (found.status(), found.status_changed_at, &found.k8s_sa_uid)
        }) {
            return Ok(());
        }
        self.record_findings(&found, &look.findings, look.lost).await?;
        match found.status() {
            WorkspaceStatus::Suspended => self.suspend_again(&found, &look).await,
            _ => self.repair(&found, look.repairs).await,
        }
    }

    async fn look_at_working(
        &self,
        found: &Found,
        wanted: Vec<Object>,
        tier: &Tier,
    ) -> Result<Look, WorkspaceError> {
        let mut look = Look::default();
        let mut may_write = true;
        for object in wanted {
            let kind = object.kind();
            let Seen { difference, uid } = self.cluster.see(&object).await?;
            match (&object, difference) {
                (Object::Namespace(_), difference) => {
                    if let Some(difference) = difference {
                        look.report(kind, difference);
                        look.lost = difference != Difference::PodSecurity;
                    }
                    if look.lost {
                        return Ok(look);
                    }
                    self.keep_namespace_uid(found, &uid).await?;
                    if self.cluster.is_marked_suspended(&found.k8s_namespace).await? {
                        look.report(kind, Difference::SuspendedLabel);
                        may_write = false;
                    }
                }
                (Object::ServiceAccount(_), None) if found.k8s_sa_uid.as_ref() == Some(&uid) => {}
                (Object::ServiceAccount(_), None) => {
                    look.repair(object, Difference::Replaced, uid);
                }
                (_, None) => {}
                (
                    Object::ResourceQuota(_) | Object::LimitRange(_) | Object::NetworkPolicy(_),
                    Some(difference),
                ) if difference != Difference::Missing => {
                    if !self.is_of_older_version(&object, tier).await? {
                        look.report(kind, difference);
                    }
                }
                // Ours, without its labels: a new one would end every token of the tenant.
                (Object::ServiceAccount(_), Some(difference @ Difference::Foreign))
                    if found.k8s_sa_uid.as_ref() == Some(&uid) =>
                {
                    look.report(kind, difference);
                }
                (_, Some(difference @ Difference::Terminating)) => {
                    look.report(kind, difference);
                }
                (_, Some(difference)) => look.repair(object, difference, uid),
            }
        }
        if !may_write {
            // Somebody used the kill switch by hand: nothing is given back.
            look.repairs.clear();
        }
        Ok(look)
    }

    /// Whether what is there is what an older version of the broker made for this tier.
    async fn is_of_older_version(
        &self,
        wanted: &Object,
        tier: &Tier,
    ) -> Result<bool, ClusterError> {
        match objects::of_older_version(wanted, tier) {
            Some(older) => Ok(self.cluster.see(&older).await?.difference.is_none()),
            None => Ok(false),
        }
    }

    async fn look_at_suspended(
        &self,
        found: &Found,
        wanted: &[Object],
    ) -> Result<Look, WorkspaceError> {
        let mut look = Look::default();
        let (cluster, namespace) = (&self.cluster, found.k8s_namespace.as_str());
        // The namespace comes first; of the others none has to be there.
        let Some(wanted) = wanted.first() else { return Ok(look) };
        let kind = wanted.kind();
        let Seen { difference, uid } = cluster.see(wanted).await?;
        if let Some(difference) = difference {
            // One that was suspended before anything was made has no namespace, and needs none.
            if difference == Difference::Missing && found.k8s_sa_uid.is_none() {
                return Ok(look);
            }
            look.report(kind, difference);
            // Whoever took our label off lets others give rights there again.
            let is_relabelled = difference == Difference::Foreign
                && matches!(
                    cluster.namespace_standing(namespace, found.id, found.recorded_uids()).await?,
                    NamespaceStanding::Relabelled { .. }
                );
            if difference != Difference::PodSecurity && !is_relabelled {
                return Ok(look);
            }
        } else {
            self.keep_namespace_uid(found, &uid).await?;
        }
        if !cluster.is_marked_suspended(namespace).await? {
            look.report(kind, Difference::SuspendedLabel);
        }
        if cluster.has_role_bindings(namespace).await? {
            look.report("RoleBinding", Difference::Unexpected);
        }
        if cluster.service_account_uid(namespace).await?.is_some() {
            look.report("ServiceAccount", Difference::Unexpected);
        }
        Ok(look)
    }

    /// Keeps the uid of a namespace that is ours: workspaces of earlier versions have none on record, and a
    /// backup that was restored has another one.
    async fn keep_namespace_uid(&self, found: &Found, uid: &str) -> sqlx::Result<()> {
        if found.k8s_namespace_uid.as_deref() == Some(uid) {
            return Ok(());
        }
        store::set_namespace_uid(&self.db, found, uid).await
    }

    async fn suspend_again(&self, found: &Found, look: &Look) -> Result<(), WorkspaceError> {
        let is_ours_to_do = |finding: &&Finding| {
            matches!(finding.difference, Difference::SuspendedLabel | Difference::Unexpected)
        };
        if !look.findings.iter().any(|finding| is_ours_to_do(&finding)) {
            return Ok(());
        }
        self.revoke_again(found).await?;
        for finding in look.findings.iter().filter(is_ours_to_do) {
            self.record_repair(found, *finding).await?;
        }
        Ok(())
    }

    async fn repair(&self, found: &Found, repairs: Vec<Repair>) -> Result<(), WorkspaceError> {
        let mut failed = None;
        let mut did_something = false;
        for repair in repairs {
            did_something = true;
            if let Err(error) = self.repair_one(found, &repair).await {
                let kind = repair.finding.kind;
                tracing::warn!(workspace = %found.id, kind, error = chain(&error), "drift stays");
                failed = Some(error);
            }
        }
        if did_something {
            self.undo_if_suspended(found).await?;
        }
        failed.map_or(Ok(()), Err)
    }

    async fn repair_one(&self, found: &Found, repair: &Repair) -> Result<(), WorkspaceError> {
        if !repair.uid.is_empty() {
            match self.cluster.delete_this(&repair.object, &repair.uid).await {
                // It is another one already: the next round looks at that.
                Err(ClusterError::Conflict(_)) => return Ok(()),
                other => other?,
            }
        }
        let made = self.cluster.create_or_verify(&repair.object).await?;
        if !matches!(repair.object, Object::ServiceAccount(_)) {
            return Ok(self.record_repair(found, repair.finding).await?);
        }
        // Somebody was faster: theirs is not adopted, the next round finds it.
        if !made.created {
            return Ok(());
        }
        let old = found.k8s_sa_uid.as_deref().unwrap_or_default();
        let mut tx = self.db.begin().await?;
        if store::replace_lost_service_account(&mut tx, found.id, old, &made.uid).await? {
            self.record_repair_in(&mut tx, found, repair.finding).await?;
        }
        Ok(tx.commit().await?)
    }

    /// What was made while the kill switch ran goes again.
    async fn undo_if_suspended(&self, found: &Found) -> Result<(), WorkspaceError> {
        let now = store::by_id(&self.db, found.id).await?.ok_or(sqlx::Error::RowNotFound)?;
        match now.status() {
            WorkspaceStatus::Suspending | WorkspaceStatus::Suspended => {
                self.revoke_again(&now).await
            }
            _ => Ok(()),
        }
    }
}
