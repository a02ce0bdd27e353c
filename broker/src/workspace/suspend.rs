//! Suspension (the kill switch) and resumption of a workspace, in the order of the design's
//! decision D5.

use std::time::Duration;

use tenant_shared::{Suspension, TOKEN_CACHE_SECONDS, WorkspaceStatus};
use tokio::sync::Notify;
use tracing::Instrument as _;

use super::{
    WorkspaceError, WorkspaceRow, Workspaces,
    progress::{RESUMPTION_STEPS, SUSPENSION_STEPS, StepAttempt, Steps, run_step},
    state::Event,
    store::{self, work},
};
use crate::{
    access::{Permit, SuspendWorkspaces},
    audit::{self, Action},
    base::{db::Tx, error_chain, request_context::record_field},
    cluster::NamespaceOwnership,
    identity::lock_if_active,
};

/// TTL of the API servers' cache of accepted tokens, in milliseconds. An old token would work again
/// if rights were restored earlier.
const TOKEN_CACHE_MS: i64 = TOKEN_CACHE_SECONDS as i64 * 1000;

/// Timeout of the label, of one pass over the RoleBindings and of every other step. It is longer
/// than 10 s, because an admission webhook that is down and has `failurePolicy: Ignore` delays a
/// call by 10 s by default, and a call that is cancelled before that has no effect.
const STEP_TIMEOUT: Duration = Duration::from_secs(12);
/// Timeout of each read before a step: of the namespace, of the ServiceAccount's uid and of the row.
/// The step then begins without the result. Together with two passes over the RoleBindings the
/// reads are shorter than the sweep's timeout for one workspace.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// The namespace as a suspension finds it in the cluster.
enum SuspensionTarget {
    /// The namespace that the broker created, with this uid.
    Managed(String),
    /// The namespace that the broker created, without our label.
    Relabelled,
    /// The cluster did not return it in time.
    Unknown,
    /// A namespace of the same name that the broker did not create.
    Foreign,
    /// There is no namespace: it was never created, or it is gone.
    Nothing,
}

impl SuspensionTarget {
    fn from_ownership(workspace: &WorkspaceRow, ownership: NamespaceOwnership) -> Self {
        match ownership {
            NamespaceOwnership::Managed { uid } => Self::Managed(uid),
            NamespaceOwnership::Relabelled { .. } => Self::Relabelled,
            // A foreign namespace from before the workspace: the broker never created anything in
            // it.
            NamespaceOwnership::Foreign if !workspace.had_rights() => Self::Nothing,
            NamespaceOwnership::Foreign => Self::Foreign,
            NamespaceOwnership::Missing => Self::Nothing,
        }
    }

    fn may_have_rights(&self) -> bool {
        matches!(self, Self::Managed(_) | Self::Relabelled | Self::Unknown)
    }

    /// The result of a step that is skipped for this namespace.
    fn skipped(&self, workspace: &WorkspaceRow) -> Result<(), WorkspaceError> {
        match self {
            Self::Foreign => Err(WorkspaceError::ForeignNamespace(workspace.k8s_namespace.clone())),
            _ => Ok(()),
        }
    }
}

impl Workspaces {
    /// Suspends a workspace: no credential is issued after the commit of the first step, and then
    /// the workspace's rights are revoked in the cluster. Idempotent: a second call repeats the
    /// steps.
    ///
    /// # Errors
    /// The decision could not be recorded. A step that failed in the cluster is no error: it is
    /// open in the result, and the sweep retries it.
    pub async fn suspend(
        &self,
        permit: &Permit<SuspendWorkspaces>,
        workspace: &WorkspaceRow,
        reason: Option<String>,
    ) -> Result<Suspension, WorkspaceError> {
        let mut steps = Steps::default();
        let event = admin_event(permit, workspace, Action::SuspendWorkspace, reason);
        steps.run("record", self.advance_and_record(workspace, Event::Suspend, event)).await?;
        let suspending =
            store::by_id(&self.db, workspace.id).await?.ok_or(sqlx::Error::RowNotFound)?;
        let rest = self.revoke_access_detached(&suspending, &mut steps).await;
        self.metrics.action(Action::SuspendWorkspace, "success");
        self.suspension_report(&suspending, steps, &SUSPENSION_STEPS, rest).await
    }

    /// Records the decision to suspend a workspace in the caller's transaction. No credential is
    /// issued after its commit; [`Workspaces::suspend`] or the sweep does the rest.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn begin_suspension(
        &self,
        tx: &mut Tx,
        permit: &Permit<SuspendWorkspaces>,
        workspace: &WorkspaceRow,
        reason: Option<String>,
    ) -> sqlx::Result<()> {
        let event = admin_event(permit, workspace, Action::SuspendWorkspace, reason);
        self.advance_and_record_in(tx, workspace, Event::Suspend, event).await
    }

    /// Resumes a suspended workspace with a new ServiceAccount, so that no old token works again.
    ///
    /// # Errors
    /// The suspension is too recent, the workspace is not suspended, its owner is suspended, or the
    /// database failed.
    pub async fn resume(
        &self,
        permit: &Permit<SuspendWorkspaces>,
        workspace: &WorkspaceRow,
        reason: Option<String>,
    ) -> Result<Suspension, WorkspaceError> {
        let mut steps = Steps::default();
        match workspace.status() {
            WorkspaceStatus::Suspended => {
                let left = workspace.status_changed_at + TOKEN_CACHE_MS - self.clock.now_ms();
                if left > 0 {
                    let seconds = u64::try_from(left).unwrap_or(0).div_ceil(1000);
                    return Err(WorkspaceError::TooEarly(seconds));
                }
                let event = admin_event(permit, workspace, Action::ResumeWorkspace, reason);
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
        self.metrics.action(Action::ResumeWorkspace, "success");
        self.suspension_report(&resuming, steps, &RESUMPTION_STEPS, rest).await
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
    async fn revoke_access_detached(
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
        let (cluster, namespace) = (&self.cluster, workspace.k8s_namespace.as_str());
        let looked =
            cluster.namespace_ownership(namespace, workspace.id, workspace.recorded_uids());
        let target = match tokio::time::timeout(READ_TIMEOUT, looked).await {
            Ok(Ok(ownership)) => {
                // A row of an earlier version identifies the namespace only by the uid of the
                // ServiceAccount, which is about to be deleted.
                if let NamespaceOwnership::Relabelled { uid } = &ownership
                    && workspace.k8s_namespace_uid.is_none()
                    && let Err(error) = store::set_namespace_uid(&self.db, workspace, uid).await
                {
                    tracing::warn!(
                        workspace = %workspace.id, error = error_chain(&error),
                        "cannot record the uid of the namespace"
                    );
                }
                SuspensionTarget::from_ownership(workspace, ownership)
            }
            // A cluster that does not return the namespace may still execute the steps. That is
            // safe, because the admission policies let the broker revoke rights in tenants'
            // namespaces only.
            Ok(Err(_)) | Err(_) => SuspensionTarget::Unknown,
        };
        let labelled = Notify::new();
        let label = async {
            let done =
                run_step("label_namespace", STEP_TIMEOUT, self.label_namespace(workspace, &target))
                    .await;
            labelled.notify_one();
            done
        };
        let unbind = async {
            if !target.may_have_rights() {
                return target.skipped(workspace);
            }
            let first = cluster.delete_role_bindings(namespace);
            // The result of the first pass does not matter, because the second pass decides.
            let _ = tokio::time::timeout(STEP_TIMEOUT, first).await;
            labelled.notified().await;
            if !self.is_still_suspended(workspace).await {
                return Ok(());
            }
            let again = tokio::time::timeout(STEP_TIMEOUT, cluster.delete_role_bindings(namespace));
            Ok(again.await.map_err(|_| WorkspaceError::TimedOut(STEP_TIMEOUT))??)
        };
        let delete_account = async {
            if !target.may_have_rights() {
                return target.skipped(workspace);
            }
            let read = cluster.service_account_uid(namespace);
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
            Ok(cluster.delete_service_account(namespace, uid.as_deref()).await?)
        };
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
        let mark = |uid| self.cluster.mark_suspended(&workspace.k8s_namespace, uid, true);
        match target {
            SuspensionTarget::Managed(uid) => Ok(mark(Some(uid)).await?),
            SuspensionTarget::Unknown => Ok(mark(None).await?),
            SuspensionTarget::Relabelled => Err(relabelled(workspace)),
            SuspensionTarget::Foreign | SuspensionTarget::Nothing => target.skipped(workspace),
        }
    }

    /// Counts and logs a step that is open, because the user may have rights until it is done.
    fn record_failure(&self, workspace: &WorkspaceRow, tried: &StepAttempt) {
        if let Some((step, error)) = tried.failure() {
            self.metrics.suspension_step_failed(step, error.cause());
            tracing::error!(
                workspace = %workspace.id, namespace = workspace.k8s_namespace, step,
                error = error_chain(error),
                "a step of a suspension is open"
            );
        }
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
        let (cluster, namespace) = (&self.cluster, workspace.k8s_namespace.as_str());
        steps
            .run("unlabel_namespace", async {
                match cluster
                    .namespace_ownership(namespace, workspace.id, workspace.recorded_uids())
                    .await?
                {
                    NamespaceOwnership::Managed { uid } => {
                        Ok(cluster.mark_suspended(namespace, Some(&uid), false).await?)
                    }
                    // The workspace was suspended before its namespace was created.
                    NamespaceOwnership::Missing => Ok(()),
                    NamespaceOwnership::Relabelled { .. } => Err(relabelled(workspace)),
                    NamespaceOwnership::Foreign => {
                        Err(WorkspaceError::ForeignNamespace(namespace.to_owned()))
                    }
                }
            })
            .await?;
        steps
            .run("create_objects", async { self.finish_provisioning(workspace).await.map(drop) })
            .await
    }

    /// Applies an event to the workspace and writes the audit entry, in one transaction. Does
    /// nothing if the workspace is not in a source state of the event.
    async fn advance_and_record(
        &self,
        workspace: &WorkspaceRow,
        event: Event,
        entry: audit::Event,
    ) -> Result<(), WorkspaceError> {
        let mut tx = self.db.begin().await?;
        self.advance_and_record_in(&mut tx, workspace, event, entry).await?;
        Ok(tx.commit().await?)
    }

    /// As [`Self::advance_and_record`], in the caller's transaction.
    async fn advance_and_record_in(
        &self,
        tx: &mut Tx,
        workspace: &WorkspaceRow,
        event: Event,
        entry: audit::Event,
    ) -> sqlx::Result<()> {
        let since = matches!(event, Event::RightsGone | Event::RightsFound)
            .then_some(workspace.status_changed_at);
        if store::advance_since(tx, &self.clock, workspace.id, event, since).await? {
            audit::record(tx, &self.clock, entry).await?;
        }
        Ok(())
    }

    /// Stores the open steps of a run in the row, where `unfinished` in the API reads them.
    async fn record_open_steps(&self, begun: &WorkspaceRow, steps: &Steps) -> sqlx::Result<()> {
        let mut tx = self.db.begin().await?;
        work::set_open_steps(&mut tx, begun, &steps.open_steps(begun.status())).await?;
        tx.commit().await
    }

    /// The result for the caller. An unavailable cluster leaves steps open, but does not undo the
    /// decision.
    async fn suspension_report(
        &self,
        begun: &WorkspaceRow,
        steps: Steps,
        all: &[&str],
        rest: Result<(), WorkspaceError>,
    ) -> Result<Suspension, WorkspaceError> {
        let all = if let Err(error) = rest {
            record_field("cause", error_chain(&error));
            self.record_open_steps(begun, &steps).await?;
            all
        } else {
            &[]
        };
        let now = store::by_id(&self.db, begun.id).await?.ok_or(sqlx::Error::RowNotFound)?;
        Ok(Suspension { id: begun.id, status: now.status(), steps: steps.into_steps(all) })
    }
}

fn relabelled(workspace: &WorkspaceRow) -> WorkspaceError {
    WorkspaceError::Relabelled {
        namespace: workspace.k8s_namespace.clone(),
        workspace: workspace.id,
    }
}

fn admin_event(
    permit: &Permit<SuspendWorkspaces>,
    workspace: &WorkspaceRow,
    action: Action,
    reason: Option<String>,
) -> audit::Event {
    audit::Event {
        user_id: Some(permit.caller().user_id()),
        session_id: Some(permit.caller().session_id()),
        workspace_id: Some(workspace.id),
        reason,
        ..audit::Event::success(action)
    }
    .to_user(workspace.user_id)
}

fn broker_event(workspace: &WorkspaceRow, action: Action) -> audit::Event {
    audit::Event { workspace_id: Some(workspace.id), ..audit::Event::success(action) }
        .to_user(workspace.user_id)
}
