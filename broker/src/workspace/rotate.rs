//! Rotation of a workspace's ServiceAccount, which revokes all tokens of the old one.
//!
//! The uid of the old account is recorded first; after that commit no token is issued for it. Then
//! the account is deleted and created again with the same name, so that the RoleBinding stays
//! valid. A token contains the uid of its ServiceAccount, so an old token never works again, except
//! for the API server's token cache: a token that it accepted before is accepted for ten seconds
//! more.

use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use super::{
    Steps, WorkspaceError, WorkspaceRow, Workspaces, membership::require_home, objects,
    state::WorkspaceKind, store,
};
use crate::{
    access::{Permit, UseWorkspace},
    audit::{self, Action},
    base::db::Tx,
    cluster::{Cluster, Object},
    tenant::lock_active_tenant,
};

/// Steps of a rotation after the decision is on record.
pub(crate) const ROTATION_STEPS: [&str; 3] =
    ["delete_service_account", "create_service_account", "finish"];

impl Workspaces {
    /// Retires the ServiceAccount with this uid in the caller's transaction; `false` if tokens are
    /// not requested for it. After the commit no token is issued until
    /// [`Workspaces::continue_rotation`] or the sweep has created another account.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn begin_rotation(
        &self,
        tx: &mut Tx,
        workspace: Uuid,
        uid: &str,
    ) -> sqlx::Result<bool> {
        store::retire_service_account(tx, &self.clock, workspace, uid).await
    }

    /// Finishes a rotation of this workspace that was begun, if there is one. Concurrent calls are
    /// safe: only the ServiceAccount with the old uid is deleted, and all calls find the same new
    /// one.
    ///
    /// # Errors
    /// The cluster or the database failed, and the sweep will finish the rotation; or the workspace
    /// was suspended meanwhile.
    pub(crate) async fn continue_rotation(
        &self,
        workspace: Uuid,
        steps: &mut Steps,
    ) -> Result<(), WorkspaceError> {
        match store::by_id(&self.db, workspace).await? {
            Some(workspace) => self.rotate(&workspace, steps).await,
            None => Ok(()),
        }
    }

    /// Like [`Workspaces::continue_rotation`], for a row that was read before.
    pub(super) async fn rotate(
        &self,
        workspace: &WorkspaceRow,
        steps: &mut Steps,
    ) -> Result<(), WorkspaceError> {
        let identified;
        let workspace = if workspace.is_rotating() && workspace.has_unknown_account() {
            identified = Box::pin(self.identify_account(workspace)).await?;
            &identified
        } else {
            workspace
        };
        let Some(retired) = workspace.retired_sa_uid.as_deref().filter(|_| workspace.is_rotating())
        else {
            return Ok(());
        };
        let (cluster, namespace) = (self.cluster_of(workspace)?, workspace.k8s_namespace.as_str());
        let name = workspace.service_account();
        let deleted = Box::pin(cluster.delete_service_account(namespace, name, Some(retired)));
        steps.run("delete_service_account", deleted).await?;
        let made = make_service_account(cluster, workspace, retired);
        let uid = steps.run("create_service_account", made).await?;
        steps.run("finish", self.finish_rotation(workspace, retired, &uid)).await
    }

    /// Finishes a rotation if there is one, then reads the workspace and authorizes the action
    /// again.
    ///
    /// # Errors
    /// Like [`Workspaces::continue_rotation`] and [`Workspaces::authorize`].
    pub(crate) async fn complete_rotation(
        &self,
        permit: Permit<UseWorkspace, WorkspaceRow>,
    ) -> Result<Permit<UseWorkspace, WorkspaceRow>, WorkspaceError> {
        let workspace = permit.resource();
        if !workspace.is_rotating() {
            return Ok(permit);
        }
        self.rotate(workspace, &mut Steps::default()).await?;
        self.authorize(permit.caller(), workspace.id).await
    }

    /// Deletes an account of a member that was made while the tenant was suspended. Since then another
    /// call may have recorded it for a resumed tenant: then a rotation makes another one.
    ///
    /// # Errors
    /// The cluster or the database failed.
    pub(super) async fn undo_account(
        &self,
        workspace: &WorkspaceRow,
        uid: &str,
    ) -> Result<(), WorkspaceError> {
        let (home, account) = (workspace.namespace(), workspace.service_account());
        self.cluster_of(workspace)?.delete_service_account(home, account, Some(uid)).await?;
        let mut tx = self.db.begin().await?;
        store::retire_service_account(&mut tx, &self.clock, workspace.id, uid).await?;
        Ok(tx.commit().await?)
    }

    async fn finish_rotation(
        &self,
        workspace: &WorkspaceRow,
        retired: &str,
        uid: &str,
    ) -> Result<(), WorkspaceError> {
        let mut tx = self.db.begin().await?;
        // A suspension of the tenant that began before the account existed did not find it.
        if let Some(tenant) = workspace.tenant_name()
            && !lock_active_tenant(&mut tx, workspace.tenant_id).await?
        {
            drop(tx);
            self.undo_account(workspace, uid).await?;
            return Err(WorkspaceError::TenantNotActive(tenant));
        }
        if store::replace_service_account(&mut tx, workspace.id, retired, uid).await? {
            let event = audit::Event {
                workspace_id: Some(workspace.id),
                ..audit::Event::success(Action::ServiceAccountReplaced)
            };
            audit::record(&mut tx, &self.clock, event).await?;
            tx.commit().await?;
            self.metrics.action(Action::ServiceAccountReplaced.as_str(), "success");
            return Ok(());
        }
        drop(tx);
        let now = store::by_id(&self.db, workspace.id).await?.ok_or(sqlx::Error::RowNotFound)?;
        match now.status() {
            WorkspaceStatus::Suspending | WorkspaceStatus::Suspended => {
                // The workspace was suspended meanwhile, so access is revoked again, including the
                // new account.
                self.revoke_regained_access(&now).await?;
                Err(WorkspaceError::Suspended)
            }
            // Another replica finished the rotation.
            _ => Ok(()),
        }
    }
}

/// Creates the ServiceAccount that replaces a retired one, and returns its uid.
async fn make_service_account(
    cluster: &Cluster,
    workspace: &WorkspaceRow,
    retired: &str,
) -> Result<String, WorkspaceError> {
    if workspace.kind() == WorkspaceKind::Membership {
        require_home(cluster, workspace).await?;
    }
    let account = objects::account_of(workspace);
    let outcome = cluster.create_or_verify(&Object::ServiceAccount(Box::new(account))).await?;
    if outcome.uid == retired {
        // Somebody added a finalizer, so the object stays until that is removed.
        return Err(WorkspaceError::Conflict("the old ServiceAccount still exists".to_owned()));
    }
    Ok(outcome.uid)
}
