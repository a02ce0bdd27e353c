//! Resumption of a suspended workspace, in the order of the design's decision D5.

use tenant_shared::{Suspension, TOKEN_CACHE_SECONDS, WorkspaceStatus};

use super::{
    WorkspaceError, WorkspaceRow, Workspaces,
    audit_events::admin_event,
    progress::{Steps, resumption_steps},
    state::{Event, WorkspaceKind},
    store,
};
use crate::{
    access::{Permit, SuspendWorkspaces},
    audit::{self, Action},
    cluster::NamespaceOwnership,
    identity::lock_if_active,
};

/// TTL of the API servers' cache of accepted tokens, in milliseconds. An old token would work again
/// if rights were restored earlier.
pub(crate) const TOKEN_CACHE_MS: i64 = TOKEN_CACHE_SECONDS as i64 * 1000;

impl Workspaces {
    /// Resumes a suspended workspace with a new ServiceAccount, so that no old token works again.
    ///
    /// # Errors
    /// The suspension is too recent, the workspace is not suspended, its owner is suspended, or the
    /// database failed.
    #[tracing::instrument(level = "debug", skip_all, fields(workspace_id = %permit.resource().id))]
    pub async fn resume(
        &self,
        permit: &Permit<SuspendWorkspaces, WorkspaceRow>,
        reason: Option<String>,
    ) -> Result<Suspension, WorkspaceError> {
        let (workspace, mut steps) = (permit.resource(), Steps::default());
        workspace.require_member()?;
        match workspace.status() {
            WorkspaceStatus::Suspended => {
                self.require_expired_token_cache(workspace)?;
                let event = admin_event(permit, Action::ResumeWorkspace, reason);
                steps.run("record", self.begin_resumption(workspace, event)).await?;
            }
            WorkspaceStatus::Resuming | WorkspaceStatus::Provisioned => {}
            status => return Err(WorkspaceError::NotReady(status)),
        }
        let resuming =
            store::by_id(&self.db, workspace.id).await?.ok_or(sqlx::Error::RowNotFound)?;
        let rest = if resuming.status() == WorkspaceStatus::Resuming {
            self.restore_access(&resuming, &mut steps).await
        } else {
            Ok(())
        };
        self.metrics.action(Action::ResumeWorkspace.as_str(), "success");
        let all = resumption_steps(resuming.kind());
        self.suspension_report(&resuming, steps, all, rest).await
    }

    /// Refuses while API servers may still accept a token from before the suspension.
    ///
    /// # Errors
    /// [`WorkspaceError::TooEarly`].
    pub(super) fn require_expired_token_cache(
        &self,
        suspended: &WorkspaceRow,
    ) -> Result<(), WorkspaceError> {
        let left = suspended.status_changed_at + TOKEN_CACHE_MS - self.clock.now_ms();
        if left > 0 {
            let seconds = u64::try_from(left).unwrap_or(0).div_ceil(1000);
            return Err(WorkspaceError::TooEarly(seconds));
        }
        Ok(())
    }

    /// Records the decision to resume a workspace whose owner is active.
    async fn begin_resumption(
        &self,
        workspace: &WorkspaceRow,
        entry: audit::Event,
    ) -> Result<(), WorkspaceError> {
        let mut tx = self.db.begin().await?;
        // The lock orders this against a suspension of the owner: an earlier one is seen here, and
        // a later one suspends the workspace again.
        if !lock_if_active(&mut tx, workspace.user_id).await? {
            return Err(WorkspaceError::OwnerSuspended(workspace.user_id));
        }
        self.advance_and_record_in(&mut tx, workspace, Event::Resume, entry).await?;
        Ok(tx.commit().await?)
    }

    /// Removes the label of a suspended workspace from its namespace and creates the objects again.
    ///
    /// # Errors
    /// The first step that failed; the later ones were not tried.
    pub(super) async fn restore_access(
        &self,
        workspace: &WorkspaceRow,
        steps: &mut Steps,
    ) -> Result<(), WorkspaceError> {
        if workspace.kind() == WorkspaceKind::Personal {
            steps.run("unlabel_namespace", self.unlabel_namespace(workspace)).await?;
        }
        steps
            .run("create_objects", async { self.finish_provisioning(workspace).await.map(drop) })
            .await
    }

    /// Removes the label of a suspended workspace from its namespace.
    async fn unlabel_namespace(&self, workspace: &WorkspaceRow) -> Result<(), WorkspaceError> {
        let (cluster, namespace) = (self.cluster_of(workspace)?, workspace.k8s_namespace.as_str());
        let recorded = workspace.recorded_uids();
        match cluster.namespace_ownership(namespace, workspace.id, recorded).await? {
            NamespaceOwnership::Managed { uid } => {
                Ok(cluster.mark_suspended(namespace, Some(&uid), false).await?)
            }
            // The workspace was suspended before its namespace was created.
            NamespaceOwnership::Missing => Ok(()),
            NamespaceOwnership::Relabelled { .. } => Err(WorkspaceError::relabelled(workspace)),
            NamespaceOwnership::Foreign => {
                Err(WorkspaceError::ForeignNamespace(namespace.to_owned()))
            }
        }
    }
}
