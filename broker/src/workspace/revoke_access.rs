//! Revocation of all access to a workspace: the steps of a suspension in the cluster, and its
//! completion.

use std::time::Duration;

use tenant_shared::WorkspaceStatus;
use tokio::sync::Notify;
use tracing::Instrument as _;

use super::{
    WorkspaceError, WorkspaceRow, Workspaces,
    audit_events::broker_event,
    progress::{StepAttempt, Steps, run_step},
    state::{Event, WorkspaceKind},
    store::{self, membership},
    suspension_target::SuspensionTarget,
};
use crate::{
    audit::{self, Action},
    base::error_chain,
    cluster::{Cluster, NamespaceOwnership},
};

/// Timeout of the label, of one pass over the RoleBindings and of every other step. It is longer
/// than 10 s, because an admission webhook that is down and has `failurePolicy: Ignore` delays a
/// call by 10 s by default, and a call that is cancelled before that has no effect.
const STEP_TIMEOUT: Duration = Duration::from_secs(12);
/// Timeout of each read before a step: of the namespace, of the ServiceAccount's uid and of the row.
/// The step then begins without the result. Together with two passes over the RoleBindings the
/// reads are shorter than the sweep's timeout for one workspace.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

impl Workspaces {
    /// Revokes rights in a workspace that was suspended already, for example rights that were
    /// granted while the suspension ran.
    pub(super) async fn revoke_regained_access(
        &self,
        workspace: &WorkspaceRow,
    ) -> Result<(), WorkspaceError> {
        Box::pin(self.revoke_in_cluster(workspace, &mut Steps::default())).await
    }

    /// Runs [`Self::revoke_access`] in its own task, because the server drops the request's task
    /// when a client that waited too long for a slow cluster disconnects.
    pub(super) async fn revoke_access_detached(
        &self,
        workspace: &WorkspaceRow,
        steps: &mut Steps,
    ) -> Result<(), WorkspaceError> {
        let (workspaces, workspace, mut ran) =
            (self.clone(), workspace.clone(), std::mem::take(steps));
        let work = async move {
            let rest = Box::pin(workspaces.revoke_access(&workspace, &mut ran)).await;
            (rest, ran)
        };
        let (rest, ran) = tokio::spawn(work.in_current_span())
            .await
            .unwrap_or_else(|_| (Err(WorkspaceError::Interrupted), Steps::default()));
        *steps = ran;
        rest
    }

    /// Revokes all access to a suspending workspace, closes its streams and marks it suspended.
    ///
    /// # Errors
    /// The first step that is open.
    pub(super) async fn revoke_access(
        &self,
        workspace: &WorkspaceRow,
        steps: &mut Steps,
    ) -> Result<(), WorkspaceError> {
        // The streams are closed concurrently, because no Kubernetes API call closes an open
        // stream.
        let notification = self.notifier.notify();
        let (stripped, closed) = tokio::join!(
            Box::pin(self.revoke_in_cluster(workspace, steps)),
            run_step("close_streams", STEP_TIMEOUT, notification.acknowledged())
        );
        self.record_failure(workspace, &closed);
        let closed = steps.add(closed);
        stripped.and(closed)?;
        let event = broker_event(workspace, Action::WorkspaceSuspended);
        steps.run("finish", self.advance_and_record(workspace, Event::RightsGone, event)).await
    }

    /// Revokes a workspace's rights in the cluster. The steps run concurrently, because a cluster
    /// that refuses one must not keep the others from taking effect. Only the RoleBindings are
    /// deleted a second time once the label is set, because then a tenant's loop can no longer
    /// create new ones.
    ///
    /// # Errors
    /// The first step that is open; all were tried.
    async fn revoke_in_cluster(
        &self,
        workspace: &WorkspaceRow,
        steps: &mut Steps,
    ) -> Result<(), WorkspaceError> {
        let cluster = self.cluster_of(workspace)?;
        if workspace.kind() == WorkspaceKind::Membership {
            return self.delete_account_of_membership(cluster, workspace, steps).await;
        }
        let target = self.suspension_target(cluster, workspace).await;
        let labelled = Notify::new();
        let label = async {
            let done =
                run_step("label_namespace", STEP_TIMEOUT, self.label_namespace(workspace, &target))
                    .await;
            labelled.notify_one();
            done
        };
        let unbind = self.delete_role_bindings(cluster, workspace, &target, &labelled);
        let delete_account = self.delete_service_account(cluster, workspace, &target);
        let (label, unbound, account) = tokio::join!(
            label,
            run_step("delete_role_bindings", STEP_TIMEOUT * 2 + READ_TIMEOUT, unbind),
            run_step("delete_service_account", STEP_TIMEOUT, delete_account),
        );
        let mut result = Ok(());
        for tried in [label, unbound, account] {
            self.record_failure(workspace, &tried);
            result = result.and(steps.add(tried));
        }
        self.suspend_again_if_open(workspace, result).await
    }

    /// Deletes the ServiceAccount of a membership, which is all that it has in the cluster. The
    /// RoleBindings of its tenant stay, because they give other members their rights.
    async fn delete_account_of_membership(
        &self,
        cluster: &Cluster,
        workspace: &WorkspaceRow,
        steps: &mut Steps,
    ) -> Result<(), WorkspaceError> {
        let delete_account = async {
            // The tenant was made again, so the account of this name may be a later membership's,
            // which began after the revocation here was done.
            if membership::is_succeeded(&self.db, workspace).await? {
                return Ok(());
            }
            // The uid is that of the account, whatever became of the home.
            let target = SuspensionTarget::Unknown;
            self.delete_service_account(cluster, workspace, &target).await
        };
        let account = run_step("delete_service_account", STEP_TIMEOUT, delete_account).await;
        self.record_failure(workspace, &account);
        let result = steps.add(account);
        self.suspend_again_if_open(workspace, result).await
    }

    /// Schedules a retry by the sweep for the steps of a suspended workspace in which rights were
    /// found that could not be revoked. Returns the result.
    async fn suspend_again_if_open(
        &self,
        workspace: &WorkspaceRow,
        result: Result<(), WorkspaceError>,
    ) -> Result<(), WorkspaceError> {
        if result.is_err() && workspace.status() == WorkspaceStatus::Suspended {
            // The suspended workspace may have rights again, so its status goes back to suspending,
            // and the sweep retries the steps.
            let reason = Some("rights were found that could not be revoked yet".to_owned());
            let event =
                audit::Event { reason, ..broker_event(workspace, Action::SuspendWorkspace) };
            self.advance_and_record(workspace, Event::RightsFound, event).await?;
        }
        result
    }

    /// The namespace that a suspension works on, as far as the cluster returns it.
    async fn suspension_target(
        &self,
        cluster: &Cluster,
        workspace: &WorkspaceRow,
    ) -> SuspensionTarget {
        let looked = cluster.namespace_ownership(
            &workspace.k8s_namespace,
            workspace.id,
            workspace.recorded_uids(),
        );
        match tokio::time::timeout(READ_TIMEOUT, looked).await {
            Ok(Ok(ownership)) => {
                // A row of an earlier version identifies the namespace only by the uid of the
                // ServiceAccount, which is about to be deleted.
                if let NamespaceOwnership::Relabelled { uid } = &ownership
                    && workspace.k8s_namespace_uid.is_none()
                    && let Err(error) = store::set_namespace_uid(&self.db, workspace, uid).await
                {
                    tracing::warn!(
                        workspace_id = %workspace.id, error = error_chain(&error),
                        "cannot record the uid of the namespace"
                    );
                }
                SuspensionTarget::from_ownership(workspace, ownership)
            }
            // A cluster that does not return the namespace may still execute the steps. That is
            // safe, because the admission policies let the broker revoke rights in tenants'
            // namespaces only.
            Ok(Err(_)) | Err(_) => SuspensionTarget::Unknown,
        }
    }

    /// Deletes all RoleBindings, and again once the namespace has its label.
    async fn delete_role_bindings(
        &self,
        cluster: &Cluster,
        workspace: &WorkspaceRow,
        target: &SuspensionTarget,
        labelled: &Notify,
    ) -> Result<(), WorkspaceError> {
        if !target.may_have_rights() {
            return target.skipped(workspace);
        }
        let namespace = &workspace.k8s_namespace;
        let first = cluster.delete_role_bindings(namespace);
        // The result of the first pass does not matter, because the second pass decides.
        let _ = tokio::time::timeout(STEP_TIMEOUT, first).await;
        labelled.notified().await;
        if !self.is_still_suspended(workspace).await {
            return Ok(());
        }
        let again = cluster.delete_role_bindings(namespace);
        let again = tokio::time::timeout(STEP_TIMEOUT, again);
        again.await.map_err(|_| WorkspaceError::TimedOut(STEP_TIMEOUT))??;
        Ok(())
    }

    /// Deletes the ServiceAccount, whose uid is read before.
    async fn delete_service_account(
        &self,
        cluster: &Cluster,
        workspace: &WorkspaceRow,
        target: &SuspensionTarget,
    ) -> Result<(), WorkspaceError> {
        if !target.may_have_rights() {
            return target.skipped(workspace);
        }
        let (namespace, name) = (&workspace.k8s_namespace, workspace.service_account());
        let read = cluster.service_account_uid(namespace, name);
        let uid = match tokio::time::timeout(READ_TIMEOUT, read).await {
            Ok(Ok(None)) => return Ok(()),
            Ok(Ok(Some(uid))) => Some(uid),
            // A cluster that does not return the account may still delete it.
            Ok(Err(_)) | Err(_) => workspace.k8s_sa_uid.clone(),
        };
        // Checked after the uid is read, so that a slow run does not delete the account that a
        // resumption created meanwhile.
        if !self.is_still_suspended(workspace).await {
            return Ok(());
        }
        Ok(cluster.delete_service_account(namespace, name, uid.as_deref()).await?)
    }

    /// Whether the database still has the workspace as suspending or suspended. A slow run must not
    /// revoke what a resumption restored meanwhile. True if the database failed or is slow.
    async fn is_still_suspended(&self, workspace: &WorkspaceRow) -> bool {
        match tokio::time::timeout(READ_TIMEOUT, store::by_id(&self.db, workspace.id)).await {
            Ok(Ok(Some(now))) => {
                matches!(now.status(), WorkspaceStatus::Suspending | WorkspaceStatus::Suspended)
            }
            Ok(Ok(None) | Err(_)) | Err(_) => true,
        }
    }

    /// Sets the label of a suspended workspace on its namespace.
    async fn label_namespace(
        &self,
        workspace: &WorkspaceRow,
        target: &SuspensionTarget,
    ) -> Result<(), WorkspaceError> {
        let cluster = self.cluster_of(workspace)?;
        let mark = |uid| cluster.mark_suspended(&workspace.k8s_namespace, uid, true);
        match target {
            SuspensionTarget::Managed(uid) => Ok(mark(Some(uid)).await?),
            SuspensionTarget::Unknown => Ok(mark(None).await?),
            SuspensionTarget::Relabelled => Err(WorkspaceError::relabelled(workspace)),
            SuspensionTarget::Foreign | SuspensionTarget::Nothing => target.skipped(workspace),
        }
    }

    /// Counts and logs a step that is open, because the user may have rights until it is done.
    fn record_failure(&self, workspace: &WorkspaceRow, tried: &StepAttempt) {
        if let Some((step, error)) = tried.failure() {
            self.metrics.suspension_step_failed(step, error.cause());
            tracing::error!(
                workspace_id = %workspace.id, namespace = workspace.k8s_namespace, step,
                error = error_chain(error),
                "a step of a suspension is open"
            );
        }
    }
}
