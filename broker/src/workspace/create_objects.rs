//! Creation of the objects of a workspace in its cluster, for `init` and `resume`.

use tenant_shared::WorkspaceStatus;

use super::{WorkspaceRow, Workspaces, objects, store::ObjectUids};
use crate::{
    cluster::{Cluster, ClusterError, EnsuredObject, Object},
    tier::Tier,
};

impl Workspaces {
    /// Creates the objects in order.
    pub(super) async fn create_objects(
        &self,
        workspace: &WorkspaceRow,
    ) -> Result<ObjectUids, ClusterError> {
        let tier = self.tiers.get(&workspace.tier).ok_or_else(|| {
            ClusterError::Conflict(format!("the tier {} is no longer configured", workspace.tier))
        })?;
        let cluster = self.cluster_of(workspace)?;
        let mut made = ObjectUids::default();
        for object in
            objects::desired(workspace.id, &workspace.k8s_namespace, &workspace.tier, tier)
        {
            if matches!(object, Object::RoleBinding(_)) {
                self.wait_for_quota(workspace).await?;
            }
            let outcome = match workspace.status() {
                WorkspaceStatus::Resuming => cluster.create_or_accept(&object).await?,
                _ => create_object(cluster, &object, tier).await?,
            };
            tracing::debug!(
                workspace_id = %workspace.id, kind = outcome.kind, created = outcome.created,
                "object of a workspace created or found"
            );
            match object {
                Object::Namespace(_) => made.namespace = outcome.uid,
                Object::ServiceAccount(_) => made.service_account = outcome.uid,
                _ => {}
            }
        }
        Ok(made)
    }

    /// Waits until the API server enforces the quota, so that nobody has rights before that.
    pub(super) async fn wait_for_quota(
        &self,
        workspace: &WorkspaceRow,
    ) -> Result<(), ClusterError> {
        let cluster = self.cluster_of(workspace)?;
        cluster.wait_for_quota(&workspace.k8s_namespace, objects::QUOTA_NAME).await
    }
}

/// Creates an object. One that an older version of the broker created for this tier is accepted.
async fn create_object(
    cluster: &Cluster,
    object: &Object,
    tier: &Tier,
) -> Result<EnsuredObject, ClusterError> {
    let refused = match cluster.create_or_verify(object).await {
        Err(refused @ ClusterError::Conflict(_)) => refused,
        other => return other,
    };
    match objects::older_version_of(object, tier) {
        Some(older) => cluster.create_or_verify(&older).await.map_err(|_| refused),
        None => Err(refused),
    }
}
