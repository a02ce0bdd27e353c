//! Proof that a workspace is provisioned, for the issuance of credentials.

use std::sync::Arc;

use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use super::{WorkspaceError, WorkspaceRow, Workspaces};
use crate::access::{Permit, UseWorkspace};

/// Proof that a user may use a workspace and that the workspace is provisioned. Credentials are
/// issued only against this proof.
#[derive(Clone, Debug)]
pub struct Active {
    permit: Permit<UseWorkspace, WorkspaceRow>,
    service_account_uid: Arc<str>,
}

impl Active {
    /// The permit that it was made with; it names the caller and the workspace.
    pub fn permit(&self) -> &Permit<UseWorkspace, WorkspaceRow> {
        &self.permit
    }

    /// Identifier of the workspace.
    pub fn workspace_id(&self) -> Uuid {
        self.permit.resource().id
    }

    /// Name of the workspace's namespace in the cluster; of a membership, the home of its tenant.
    pub fn namespace(&self) -> &str {
        self.permit.resource().namespace()
    }

    /// Name of the ServiceAccount that tokens are requested for.
    pub fn service_account(&self) -> &str {
        self.permit.resource().service_account()
    }

    /// Uid of the ServiceAccount that tokens are requested for.
    pub fn service_account_uid(&self) -> &Arc<str> {
        &self.service_account_uid
    }
}

impl Workspaces {
    /// Proof that the workspace is provisioned.
    ///
    /// # Errors
    /// The workspace or its tenant is suspended, the workspace is not ready, its user left the tenant,
    /// or its ServiceAccount is being replaced.
    pub fn active(
        &self,
        permit: &Permit<UseWorkspace, WorkspaceRow>,
    ) -> Result<Active, WorkspaceError> {
        let workspace = permit.resource();
        workspace.require_member()?;
        match (workspace.status(), &workspace.k8s_sa_uid) {
            (WorkspaceStatus::Provisioned, Some(uid)) => {
                Ok(Active { permit: permit.clone(), service_account_uid: uid.as_str().into() })
            }
            (WorkspaceStatus::Suspended | WorkspaceStatus::Suspending, _) => {
                Err(WorkspaceError::Suspended)
            }
            (WorkspaceStatus::Provisioned, None) => Err(workspace
                .inactive_tenant()
                .map_or(WorkspaceError::Rotating, WorkspaceError::TenantNotActive)),
            (status, _) => Err(WorkspaceError::NotReady(status)),
        }
    }
}
