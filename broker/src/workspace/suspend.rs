//! The kill switch and the way back, in the order of the design's decision D5.

use tenant_shared::{Suspension, TOKEN_CACHE_SECONDS, WorkspaceStatus};

use super::{
    Found, WorkspaceError, Workspaces,
    progress::{RESUMPTION, SUSPENSION, Steps},
    state::Event,
    store::{self, work},
};
use crate::{
    access::{Permit, SuspendWorkspaces},
    audit::{self, Action},
    cluster::ClusterError,
    db::Tx,
    identity::hold_active,
    problem::{chain, note},
};

/// How long API servers remember a token that they accepted, in milliseconds. Rights given back
/// earlier would let an old token in again.
const TOKEN_CACHE_MS: i64 = TOKEN_CACHE_SECONDS as i64 * 1000;

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
        let rest = self.take_rights(&suspending, &mut steps).await;
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
        Ok(self.strip(found, &mut Steps::default()).await?)
    }

    pub(super) async fn take_rights(
        &self,
        found: &Found,
        steps: &mut Steps,
    ) -> Result<(), WorkspaceError> {
        // Heard while the cluster is at work: no call of the Kubernetes API ends what is open.
        let closing = self.bell.ring();
        self.strip(found, steps).await?;
        steps.run("close_streams", closing.answered()).await?;
        let event = by_broker(found, Action::WorkspaceSuspended);
        steps.run("finish", self.write_down(found, Event::RightsGone, event)).await
    }

    /// The cluster's side of a suspension.
    async fn strip(&self, found: &Found, steps: &mut Steps) -> Result<(), ClusterError> {
        let (cluster, namespace) = (&self.cluster, found.k8s_namespace.as_str());
        let ours = steps
            .run("label_namespace", async {
                match cluster.mark_suspended(namespace, found.id, true).await {
                    Ok(()) => Ok(true),
                    // Nothing was made yet, so there is nothing to take away.
                    Err(ClusterError::NotFound(_)) => Ok(false),
                    // What is not ours stays untouched; nobody has rights of ours there.
                    Err(ClusterError::Conflict(what)) => {
                        tracing::warn!(workspace = %found.id, what, "not ours: left alone");
                        Ok(false)
                    }
                    Err(error) => Err(error),
                }
            })
            .await?;
        if ours {
            steps.run("delete_role_bindings", cluster.delete_role_bindings(namespace)).await?;
            let deleted = cluster.delete_service_account(namespace, None);
            steps.run("delete_service_account", deleted).await?;
        }
        Ok(())
    }

    pub(super) async fn give_rights(
        &self,
        found: &Found,
        steps: &mut Steps,
    ) -> Result<(), WorkspaceError> {
        let unmarked = self.cluster.mark_suspended(&found.k8s_namespace, found.id, false);
        steps
            .run("unlabel_namespace", async {
                match unmarked.await {
                    // A workspace that was suspended before anything was made.
                    Err(ClusterError::NotFound(_)) => Ok(()),
                    other => other,
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
        if store::advance(tx, &self.clock, found.id, event).await? {
            audit::record(tx, &self.clock, entry).await?;
        }
        Ok(())
    }

    /// Keeps where a run stopped, for whoever asks.
    async fn stopped_at(&self, begun: &Found, steps: &Steps) -> sqlx::Result<()> {
        let mut tx = self.db.begin().await?;
        work::stopped_at(&mut tx, begun, steps.first_open(begun.status())).await?;
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
