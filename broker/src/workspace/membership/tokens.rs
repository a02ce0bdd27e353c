//! Tokens of all members of a tenant, for its suspension and resumption. The statuses of the
//! memberships stay as they are, so a resumption resumes no member whom an administrator suspended.

use std::collections::BTreeSet;

use futures_util::{StreamExt as _, stream};
use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use crate::{
    base::error_chain,
    workspace::{WorkspaceError, WorkspaceRow, Workspaces, progress::Steps, store::membership},
};

/// ServiceAccounts that are deleted concurrently.
const MAX_CONCURRENT: usize = 8;

impl Workspaces {
    /// Revokes the tokens of all members of a suspended tenant: deletes their ServiceAccounts, and
    /// closes their streams. No token is issued, and no ServiceAccount is made, until
    /// [`Self::allow_tokens_of_members`]. Idempotent. Call it after the home was labelled as
    /// suspended, because a provisioning that is in flight may otherwise make another account.
    ///
    /// # Errors
    /// The database failed, a ServiceAccount could not be deleted, or the gateway did not confirm
    /// that streams are closed. All were tried; call it again.
    pub async fn revoke_tokens_of_members(&self, tenant: Uuid) -> Result<(), WorkspaceError> {
        let mut tx = self.db.begin().await?;
        membership::retire_accounts(&mut tx, &self.clock, tenant).await?;
        tx.commit().await?;
        let notification = self.notifier.notify();
        let members = membership::rows_of(&self.db, tenant).await?;
        let deleted = stream::iter(members)
            .map(|member| async move { self.delete_member_account(&member).await })
            .buffer_unordered(MAX_CONCURRENT)
            .collect::<Vec<_>>();
        let (deleted, closed) = tokio::join!(deleted, notification.acknowledged());
        deleted.into_iter().collect::<Result<(), _>>()?;
        Ok(closed?)
    }

    /// Names of the ServiceAccounts of all members of a tenant, also of those that do not exist now.
    ///
    /// # Errors
    /// The database failed.
    pub async fn accounts_of_members(&self, tenant: Uuid) -> sqlx::Result<BTreeSet<String>> {
        let members = membership::rows_of(&self.db, tenant).await?;
        Ok(members.iter().map(|member| member.service_account().to_owned()).collect())
    }

    /// Schedules new ServiceAccounts for the members of a resumed tenant. Call it after the home
    /// lost the label of a suspended one.
    ///
    /// # Errors
    /// The database failed.
    pub async fn allow_tokens_of_members(&self, tenant: Uuid) -> sqlx::Result<()> {
        let mut tx = self.db.begin().await?;
        membership::replace_accounts(&mut tx, &self.clock, tenant).await?;
        tx.commit().await
    }

    /// Makes the ServiceAccounts of the members of an active tenant that [`Self::allow_tokens_of_members`]
    /// scheduled. The sweep makes those that cannot be made here.
    ///
    /// # Errors
    /// The database failed.
    pub async fn make_accounts_of_members(&self, tenant: Uuid) -> sqlx::Result<()> {
        let members = membership::rows_of(&self.db, tenant).await?;
        stream::iter(members)
            .map(|member| async move { self.make_member_account(&member).await })
            .buffer_unordered(MAX_CONCURRENT)
            .collect::<()>()
            .await;
        Ok(())
    }

    async fn make_member_account(&self, member: &WorkspaceRow) {
        if let Err(error) = Box::pin(self.rotate(member, &mut Steps::default())).await {
            tracing::info!(
                workspace_id = %member.id, error = error_chain(&error),
                "the ServiceAccount of a member is left to the sweep"
            );
        }
    }

    /// Deletes the ServiceAccount of a member, unless the sweep does so for a suspension.
    async fn delete_member_account(&self, member: &WorkspaceRow) -> Result<(), WorkspaceError> {
        let uid = match member.status() {
            WorkspaceStatus::Provisioned if member.has_unknown_account() => None,
            WorkspaceStatus::Provisioned => member.retired_sa_uid.as_deref(),
            WorkspaceStatus::Provisioning | WorkspaceStatus::Resuming => None,
            WorkspaceStatus::Suspending | WorkspaceStatus::Suspended | WorkspaceStatus::Failed => {
                return Ok(());
            }
        };
        let cluster = self.cluster_of(member)?;
        let (home, account) = (member.namespace(), member.service_account());
        Ok(cluster.delete_service_account(home, account, uid).await?)
    }
}
