//! Repair of the drift of one workspace.

use tenant_shared::WorkspaceStatus;

use super::record::Finding;
use crate::{
    base::error_chain,
    cluster::{ClusterError, Difference, Object},
    workspace::{WorkspaceError, WorkspaceRow, Workspaces, store},
};

/// A repair that the broker may do.
pub(super) struct Repair {
    /// The difference that it removes.
    pub(super) finding: Finding,
    /// The desired object.
    pub(super) object: Object,
    /// Uid of the object that has the name now; empty if there is none.
    pub(super) uid: String,
}

impl Workspaces {
    /// Revokes the access that was found in a suspended workspace.
    pub(super) async fn repair_suspended(
        &self,
        workspace: &WorkspaceRow,
        findings: &[Finding],
    ) -> Result<(), WorkspaceError> {
        let is_ours_to_do = |finding: &&Finding| {
            matches!(finding.difference, Difference::SuspendedLabel | Difference::Unexpected)
        };
        if !findings.iter().any(|finding| is_ours_to_do(&finding)) {
            return Ok(());
        }
        self.revoke_regained_access(workspace).await?;
        for finding in findings.iter().filter(is_ours_to_do) {
            self.record_repair(workspace, *finding).await?;
        }
        Ok(())
    }

    /// Repairs the objects of a provisioned workspace.
    pub(super) async fn repair(
        &self,
        workspace: &WorkspaceRow,
        repairs: Vec<Repair>,
    ) -> Result<(), WorkspaceError> {
        let mut failed = None;
        let mut did_something = false;
        for repair in repairs {
            did_something = true;
            if let Err(error) = self.repair_one(workspace, &repair).await {
                let kind = repair.finding.kind;
                tracing::warn!(
                    workspace_id = %workspace.id, kind, error = error_chain(&error),
                    "drift repair failed"
                );
                failed = Some(error);
            }
        }
        if did_something {
            self.undo_if_suspended(workspace).await?;
        }
        failed.map_or(Ok(()), Err)
    }

    async fn repair_one(
        &self,
        workspace: &WorkspaceRow,
        repair: &Repair,
    ) -> Result<(), WorkspaceError> {
        let cluster = self.cluster_of(workspace)?;
        if !repair.uid.is_empty() {
            match cluster.delete_with_uid(&repair.object, &repair.uid).await {
                // It was replaced again; the next round examines the new object.
                Err(ClusterError::Conflict(_)) => return Ok(()),
                other => other?,
            }
        }
        if matches!(repair.object, Object::RoleBinding(_)) {
            // The quota may have been recreated a moment ago.
            self.wait_for_quota(workspace).await?;
        }
        let made = cluster.create_or_verify(&repair.object).await?;
        if !matches!(repair.object, Object::ServiceAccount(_)) {
            return Ok(self.record_repair(workspace, repair.finding).await?);
        }
        // Somebody else created an account first. It is not adopted; the next round finds it.
        if !made.created {
            return Ok(());
        }
        let old = workspace.k8s_sa_uid.as_deref().unwrap_or_default();
        let mut tx = self.db.begin().await?;
        if store::replace_lost_service_account(&mut tx, workspace.id, old, &made.uid).await? {
            self.record_repair_in(&mut tx, workspace, repair.finding).await?;
        }
        Ok(tx.commit().await?)
    }

    /// Revokes the access that repairs restored, if the workspace was suspended meanwhile.
    async fn undo_if_suspended(&self, workspace: &WorkspaceRow) -> Result<(), WorkspaceError> {
        let now = store::by_id(&self.db, workspace.id).await?.ok_or(sqlx::Error::RowNotFound)?;
        match now.status() {
            WorkspaceStatus::Suspending | WorkspaceStatus::Suspended => {
                self.revoke_regained_access(&now).await
            }
            _ => Ok(()),
        }
    }
}
