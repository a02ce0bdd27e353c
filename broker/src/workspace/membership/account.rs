//! The ServiceAccount of a membership.

use tenant_shared::WorkspaceStatus;

use crate::{
    cluster::{Cluster, HomeState, Object},
    workspace::{WorkspaceError, WorkspaceRow, Workspaces, objects, store::ObjectUids},
};

impl Workspaces {
    /// Creates the ServiceAccount of a membership in the home of its tenant.
    ///
    /// # Errors
    /// The home does not exist or is not the tenant's, the tenant is suspended, the account is not
    /// ours, or the cluster failed.
    pub(in crate::workspace) async fn create_member_account(
        &self,
        workspace: &WorkspaceRow,
    ) -> Result<ObjectUids, WorkspaceError> {
        let cluster = self.cluster_of(workspace)?;
        let namespace = require_home(cluster, workspace).await?;
        let account = Object::ServiceAccount(Box::new(objects::account_of(workspace)));
        let made = match workspace.status() {
            // A suspension deleted the account before, so that another one has another uid.
            WorkspaceStatus::Resuming => cluster.create_or_accept(&account).await?,
            _ => cluster.create_or_verify(&account).await?,
        };
        tracing::debug!(
            workspace_id = %workspace.id, kind = made.kind, created = made.created, "object of a workspace created or found"
        );
        Ok(ObjectUids { namespace, service_account: made.uid })
    }
}

/// Checks that the home of a membership's tenant may get a ServiceAccount, and returns its uid.
///
/// # Errors
/// See [`Workspaces::create_member_account`].
pub(in crate::workspace) async fn require_home(
    cluster: &Cluster,
    workspace: &WorkspaceRow,
) -> Result<String, WorkspaceError> {
    let home = workspace.namespace();
    let tenant = workspace.tenant_name().unwrap_or_default();
    match cluster.home_state(home, &tenant).await? {
        HomeState::Ready { uid } => Ok(uid),
        HomeState::Suspended => Err(WorkspaceError::TenantNotActive(tenant)),
        HomeState::Missing => Err(WorkspaceError::NoHome(home.to_owned())),
        HomeState::Foreign => Err(WorkspaceError::Conflict(format!(
            "the Namespace {home} does not have the labels of the home of tenant {tenant}"
        ))),
    }
}
