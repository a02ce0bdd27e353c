//! The kill switch and the way back, in the order of the design's decision D5.

use std::time::Duration;

use tenant_shared::{Suspension, TOKEN_CACHE_SECONDS, WorkspaceStatus};
use tokio::sync::Notify;
use tracing::Instrument as _;

use super::{
    Found, WorkspaceError, Workspaces,
    progress::{Attempt, RESUMPTION, SUSPENSION, Steps, attempt},
    state::Event,
    store::{self, work},
};
use crate::{
    access::{Permit, SuspendWorkspaces},
    audit::{self, Action},
    cluster::NamespaceStanding,
    db::Tx,
    identity::hold_active,
    problem::{chain, note},
};

/// How long API servers remember a token that they accepted, in milliseconds. Rights given back
/// earlier would let an old token in again.
const TOKEN_CACHE_MS: i64 = TOKEN_CACHE_SECONDS as i64 * 1000;

/// How long the label, one look for RoleBindings or another step may take: an admission webhook that is down
/// and may be ignored holds a call for 10 s by default, and a call that is given up does nothing.
const STEP_TIMEOUT: Duration = Duration::from_secs(12);
/// How long the look at the namespace may take before the steps begin without it. With two looks for
/// RoleBindings everything ends before the sweep gives a workspace up.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// What a suspension finds in the place of the namespace.
enum Target {
    /// The namespace that the broker made, with this uid.
    Managed(String),
    /// The same, without our label.
    Relabelled,
    /// The cluster did not say.
    Unknown,
    /// Another namespace.
    Foreign,
    /// Nothing of the workspace was ever made, or it is gone.
    Nothing,
}

impl Target {
    fn of(found: &Found, standing: NamespaceStanding) -> Self {
        match standing {
            NamespaceStanding::Managed { uid } => Self::Managed(uid),
            NamespaceStanding::Relabelled { .. } => Self::Relabelled,
            // Somebody's own that was in the way from the beginning: nothing was ever made there.
            NamespaceStanding::Foreign if !found.had_rights() => Self::Nothing,
            NamespaceStanding::Foreign => Self::Foreign,
            NamespaceStanding::Missing => Self::Nothing,
        }
    }

    fn may_have_rights(&self) -> bool {
        matches!(self, Self::Managed(_) | Self::Relabelled | Self::Unknown)
    }

    /// The result of a step that does nothing here.
    fn skipped(&self, found: &Found) -> Result<(), WorkspaceError> {
        match self {
            Self::Foreign => Err(WorkspaceError::ForeignNamespace(found.k8s_namespace.clone())),
            _ => Ok(()),
        }
    }
}

impl Workspaces {
    /// Suspends a workspace: from the commit of the first step nothing is issued any more; then its
    /// rights are taken away in the cluster. Running it again does the same steps again.
    ///
    /// # Errors
    /// The intent could not be written down. A step that the cluster did not do is open in the
    /// answer, and the sweep goes on with it.
    pub async fn suspend(
        &self,
        permit: &Permit<SuspendWorkspaces>,
        found: &Found,
        reason: Option<String>,
    ) -> Result<Suspension, WorkspaceError> {
        let mut steps = Steps::default();
        let event = by_admin(permit, found, Action::SuspendWorkspace, reason);
        steps.run("record", self.write_down(found, Event::Suspend, event)).await?;
        let suspending = store::by_id(&self.db, found.id).await?.ok_or(sqlx::Error::RowNotFound)?;
        let rest = self.take_rights_detached(&suspending, &mut steps).await;
        self.metrics.action(Action::SuspendWorkspace, "success");
        self.answer(&suspending, steps, &SUSPENSION, rest).await
    }

    /// Writes down, in a transaction that does more, that a workspace is to be suspended. From its
    /// commit on nothing is issued; [`Workspaces::suspend`] or the sweep does the rest.
    ///
    /// # Errors
    /// The database's.
    pub(crate) async fn intend_suspension(
        &self,
        tx: &mut Tx,
        permit: &Permit<SuspendWorkspaces>,
        found: &Found,
        reason: Option<String>,
    ) -> sqlx::Result<()> {
        let event = by_admin(permit, found, Action::SuspendWorkspace, reason);
        self.write_in(tx, found, Event::Suspend, event).await
    }

    /// Gives a suspended workspace back, with a new ServiceAccount: no old token works again.
    ///
    /// # Errors
    /// Too early after the suspension, or not suspended, or its owner is suspended.
    pub async fn resume(
        &self,
        permit: &Permit<SuspendWorkspaces>,
        found: &Found,
        reason: Option<String>,
    ) -> Result<Suspension, WorkspaceError> {
        let mut steps = Steps::default();
        match found.status() {
            WorkspaceStatus::Suspended => {
                let left = found.status_changed_at + TOKEN_CACHE_MS - self.clock.now_ms();
                if left > 0 {
                    let seconds = u64::try_from(left).unwrap_or(0).div_ceil(1000);
                    return Err(WorkspaceError::TooEarly(seconds));
                }
                let event = by_admin(permit, found, Action::ResumeWorkspace, reason);
                steps.run("record", self.intend_resumption(found, event)).await?;
            }
            WorkspaceStatus::Resuming | WorkspaceStatus::Provisioned => {}
            status => return Err(WorkspaceError::NotReady(status)),
        }
        let resuming = store::by_id(&self.db, found.id).await?.ok_or(sqlx::Error::RowNotFound)?;
        let rest = if resuming.status() == WorkspaceStatus::Resuming {
            self.give_rights(&resuming, &mut steps).await
        } else {
            Ok(())
        };
        self.metrics.action(Action::ResumeWorkspace, "success");
        self.answer(&resuming, steps, &RESUMPTION, rest).await
    }

    /// Writes down that a workspace is to be given back, to an owner who may sign in.
    async fn intend_resumption(
        &self,
        found: &Found,
        entry: audit::Event,
    ) -> Result<(), WorkspaceError> {
        let mut tx = self.db.begin().await?;
        // Locked: a suspension of the owner comes before, and is seen, or after, and suspends the
        // workspace again.
        if !hold_active(&mut tx, found.user_id).await? {
            return Err(WorkspaceError::OwnerSuspended(found.user_id));
        }
        self.write_in(&mut tx, found, Event::Resume, entry).await?;
        Ok(tx.commit().await?)
    }

    /// Takes rights away that were given while the kill switch ran.
    pub(super) async fn revoke_again(&self, found: &Found) -> Result<(), WorkspaceError> {
        Box::pin(self.revoke_rights(found, &mut Steps::default())).await
    }

    /// Takes the rights away in a task of its own, because the server drops the request's when a client
    /// that waited too long for a slow cluster hangs up.
    async fn take_rights_detached(
        &self,
        found: &Found,
        steps: &mut Steps,
    ) -> Result<(), WorkspaceError> {
        let (workspaces, found, mut ran) = (self.clone(), found.clone(), std::mem::take(steps));
        let work = async move {
            let rest = Box::pin(workspaces.take_rights(&found, &mut ran)).await;
            (rest, ran)
        };
        let (rest, ran) = tokio::spawn(work.in_current_span())
            .await
            .unwrap_or_else(|_| (Err(WorkspaceError::Interrupted), Steps::default()));
        *steps = ran;
        rest
    }

    pub(super) async fn take_rights(
        &self,
        found: &Found,
        steps: &mut Steps,
    ) -> Result<(), WorkspaceError> {
        // Streams end while the cluster is at work: no call of the Kubernetes API ends an open one.
        let closing = self.bell.ring();
        let (stripped, closed) = tokio::join!(
            Box::pin(self.revoke_rights(found, steps)),
            attempt("close_streams", STEP_TIMEOUT, closing.answered())
        );
        self.note_failure(found, &closed);
        let closed = steps.add(closed);
        stripped.and(closed)?;
        let event = by_broker(found, Action::WorkspaceSuspended);
        steps.run("finish", self.write_down(found, Event::RightsGone, event)).await
    }

    /// The cluster's side of a suspension. No step waits for another, because a cluster that refuses one
    /// must not keep the others from taking effect; only the bindings are looked at again when the label
    /// is there, which ends a tenant's loop that makes new ones.
    ///
    /// # Errors
    /// The first step that is open; all were tried.
    async fn revoke_rights(&self, found: &Found, steps: &mut Steps) -> Result<(), WorkspaceError> {
        let (cluster, namespace) = (&self.cluster, found.k8s_namespace.as_str());
        let looked = cluster.namespace_standing(namespace, found.id, found.recorded_uids());
        let target = match tokio::time::timeout(LOOK_TIMEOUT, looked).await {
            Ok(Ok(standing)) => {
                // The account's uid, by which a row of an earlier version knows it, is about to go.
                if let NamespaceStanding::Relabelled { uid } = &standing
                    && found.k8s_namespace_uid.is_none()
                    && let Err(error) = store::set_namespace_uid(&self.db, found, uid).await
                {
                    tracing::warn!(workspace = %found.id, error = chain(&error), "uid not recorded");
                }
                Target::of(found, standing)
            }
            // A cluster that does not say what the namespace is may do what it is asked all the same:
            // the fence lets the broker take rights away in tenants' namespaces only.
            Ok(Err(_)) | Err(_) => Target::Unknown,
        };
        let labelled = Notify::new();
        let label = async {
            let done = attempt("label_namespace", STEP_TIMEOUT, self.label(found, &target)).await;
            labelled.notify_one();
            done
        };
        let unbind = async {
            if !target.may_have_rights() {
                return target.skipped(found);
            }
            let first = cluster.delete_role_bindings(namespace);
            // Whatever it brought, the second look decides.
            let _ = tokio::time::timeout(STEP_TIMEOUT, first).await;
            labelled.notified().await;
            if !self.is_still_suspended(found).await {
                return Ok(());
            }
            let again = tokio::time::timeout(STEP_TIMEOUT, cluster.delete_role_bindings(namespace));
            Ok(again.await.map_err(|_| WorkspaceError::TimedOut(STEP_TIMEOUT))??)
        };
        let delete_account = async {
            if !target.may_have_rights() {
                return target.skipped(found);
            }
            let uid = cluster.service_account_uid(namespace).await;
            // Asked after the uid is read, so that a slow run never deletes the account that a resumption
            // made meanwhile.
            if !self.is_still_suspended(found).await {
                return Ok(());
            }
            match uid {
                Ok(None) => Ok(()),
                Ok(Some(uid)) => Ok(cluster.delete_service_account(namespace, Some(&uid)).await?),
                // A cluster that does not show the account may delete it all the same.
                Err(_) => Ok(cluster.delete_service_account(namespace, None).await?),
            }
        };
        let (label, unbound, account) = tokio::join!(
            label,
            attempt("delete_role_bindings", STEP_TIMEOUT * 2 + LOOK_TIMEOUT, unbind),
            attempt("delete_service_account", STEP_TIMEOUT, delete_account),
        );
        let mut result = Ok(());
        for tried in [label, unbound, account] {
            self.note_failure(found, &tried);
            result = result.and(steps.add(tried));
        }
        if result.is_err() && found.status() == WorkspaceStatus::Suspended {
            // What was suspended may have rights again, so the status is taken back, and the sweep goes on.
            let reason = Some("rights were found that could not be taken away yet".to_owned());
            let event = audit::Event { reason, ..by_broker(found, Action::SuspendWorkspace) };
            self.write_down(found, Event::RightsFound, event).await?;
        }
        result
    }

    /// Whether a workspace is still to be without rights, as far as the database says: a run that was slow
    /// must not take away what a resumption gave meanwhile.
    async fn is_still_suspended(&self, found: &Found) -> bool {
        match store::by_id(&self.db, found.id).await {
            Ok(Some(now)) => {
                matches!(now.status(), WorkspaceStatus::Suspending | WorkspaceStatus::Suspended)
            }
            Ok(None) | Err(_) => true,
        }
    }

    async fn label(&self, found: &Found, target: &Target) -> Result<(), WorkspaceError> {
        let mark = |uid| self.cluster.mark_suspended(&found.k8s_namespace, uid, true);
        match target {
            Target::Managed(uid) => Ok(mark(Some(uid)).await?),
            Target::Unknown => Ok(mark(None).await?),
            Target::Relabelled => Err(relabelled(found)),
            Target::Foreign | Target::Nothing => target.skipped(found),
        }
    }

    /// Counts a step that is open, and says why in the log: until it is done, the person may have rights.
    fn note_failure(&self, found: &Found, tried: &Attempt) {
        if let Some((step, error)) = tried.failure() {
            self.metrics.suspension_step_failed(step, error.cause());
            tracing::error!(
                workspace = %found.id, namespace = found.k8s_namespace, step, error = chain(error),
                "a step of a suspension is open"
            );
        }
    }

    pub(super) async fn give_rights(
        &self,
        found: &Found,
        steps: &mut Steps,
    ) -> Result<(), WorkspaceError> {
        let (cluster, namespace) = (&self.cluster, found.k8s_namespace.as_str());
        steps
            .run("unlabel_namespace", async {
                match cluster.namespace_standing(namespace, found.id, found.recorded_uids()).await?
                {
                    NamespaceStanding::Managed { uid } => {
                        Ok(cluster.mark_suspended(namespace, Some(&uid), false).await?)
                    }
                    // A workspace that was suspended before anything was made.
                    NamespaceStanding::Missing => Ok(()),
                    NamespaceStanding::Relabelled { .. } => Err(relabelled(found)),
                    NamespaceStanding::Foreign => {
                        Err(WorkspaceError::ForeignNamespace(namespace.to_owned()))
                    }
                }
            })
            .await?;
        steps.run("create_objects", async { self.finish_provisioning(found).await.map(drop) }).await
    }

    /// Moves the workspace on and records it, in one transaction; nothing if it is there already.
    async fn write_down(
        &self,
        found: &Found,
        event: Event,
        entry: audit::Event,
    ) -> Result<(), WorkspaceError> {
        let mut tx = self.db.begin().await?;
        self.write_in(&mut tx, found, event, entry).await?;
        Ok(tx.commit().await?)
    }

    async fn write_in(
        &self,
        tx: &mut Tx,
        found: &Found,
        event: Event,
        entry: audit::Event,
    ) -> sqlx::Result<()> {
        let since = matches!(event, Event::RightsGone | Event::RightsFound)
            .then_some(found.status_changed_at);
        if store::advance_since(tx, &self.clock, found.id, event, since).await? {
            audit::record(tx, &self.clock, entry).await?;
        }
        Ok(())
    }

    /// Keeps where a run stopped, for whoever asks.
    async fn stopped_at(&self, begun: &Found, steps: &Steps) -> sqlx::Result<()> {
        let mut tx = self.db.begin().await?;
        work::stopped_at(&mut tx, begun, &steps.open_steps(begun.status())).await?;
        tx.commit().await
    }

    /// What the caller is told: a cluster that does not answer leaves steps open, it does not undo
    /// the decision.
    async fn answer(
        &self,
        begun: &Found,
        steps: Steps,
        all: &[&str],
        rest: Result<(), WorkspaceError>,
    ) -> Result<Suspension, WorkspaceError> {
        let all = if let Err(error) = rest {
            note("cause", chain(&error));
            self.stopped_at(begun, &steps).await?;
            all
        } else {
            &[]
        };
        let now = store::by_id(&self.db, begun.id).await?.ok_or(sqlx::Error::RowNotFound)?;
        Ok(Suspension { id: begun.id, status: now.status(), steps: steps.into_answer(all) })
    }
}

fn relabelled(found: &Found) -> WorkspaceError {
    WorkspaceError::Relabelled { namespace: found.k8s_namespace.clone(), workspace: found.id }
}

fn by_admin(
    permit: &Permit<SuspendWorkspaces>,
    found: &Found,
    action: Action,
    reason: Option<String>,
) -> audit::Event {
    audit::Event {
        user_id: Some(permit.caller().user_id()),
        session_id: Some(permit.caller().session_id()),
        workspace_id: Some(found.id),
        reason,
        ..audit::Event::success(action)
    }
    .to_user(found.user_id)
}

fn by_broker(found: &Found, action: Action) -> audit::Event {
    audit::Event { workspace_id: Some(found.id), ..audit::Event::success(action) }
        .to_user(found.user_id)
}
