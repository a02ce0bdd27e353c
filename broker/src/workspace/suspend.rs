//! Suspension (the kill switch) of a workspace, in the order of the design's decision D5.

use tenant_shared::Suspension;

use super::{
    WorkspaceError, WorkspaceRow, Workspaces,
    audit_events::admin_event,
    progress::{Steps, suspension_steps},
    state::{Event, WorkspaceKind},
    store::{self, membership, work},
};
use crate::{
    access::{Permit, SuspendWorkspaces},
    audit::{self, Action},
    base::{
        db::Tx,
        error_chain,
        request_context::{Field, record_field},
    },
};

impl Workspaces {
    /// Suspends a workspace: no credential is issued after the commit of the first step, and then
    /// the workspace's rights are revoked in the cluster. Idempotent: a second call repeats the
    /// steps.
    ///
    /// # Errors
    /// The decision could not be recorded. A step that failed in the cluster is no error: it is
    /// open in the result, and the sweep retries it.
    #[tracing::instrument(level = "debug", skip_all, fields(workspace_id = %permit.resource().id))]
    pub async fn suspend(
        &self,
        permit: &Permit<SuspendWorkspaces, WorkspaceRow>,
        reason: Option<String>,
    ) -> Result<Suspension, WorkspaceError> {
        let (workspace, mut steps) = (permit.resource(), Steps::default());
        let event = admin_event(permit, Action::SuspendWorkspace, reason);
        steps.run("record", self.advance_and_record(workspace, Event::Suspend, event)).await?;
        let suspending =
            store::by_id(&self.db, workspace.id).await?.ok_or(sqlx::Error::RowNotFound)?;
        let rest = self.revoke_access_detached(&suspending, &mut steps).await;
        self.metrics.action(Action::SuspendWorkspace.as_str(), "success");
        let all = suspension_steps(suspending.kind());
        self.suspension_report(&suspending, steps, all, rest).await
    }

    /// Records the decision to suspend a workspace in the caller's transaction. No credential is
    /// issued after its commit; [`Workspaces::suspend`] or the sweep does the rest.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn begin_suspension(
        &self,
        tx: &mut Tx,
        permit: &Permit<SuspendWorkspaces, WorkspaceRow>,
        reason: Option<String>,
    ) -> sqlx::Result<()> {
        let event = admin_event(permit, Action::SuspendWorkspace, reason);
        self.advance_and_record_in(tx, permit.resource(), Event::Suspend, event).await
    }

    /// Applies an event to the workspace and writes the audit entry, in one transaction. Does
    /// nothing if the workspace is not in a source state of the event.
    pub(super) async fn advance_and_record(
        &self,
        workspace: &WorkspaceRow,
        event: Event,
        entry: audit::Event,
    ) -> Result<(), WorkspaceError> {
        let mut tx = self.db.begin().await?;
        self.advance_and_record_in(&mut tx, workspace, event, entry).await?;
        Ok(tx.commit().await?)
    }

    /// Like [`Self::advance_and_record`], in the caller's transaction. The suspension of a
    /// membership whose user left lasts if the user joins again.
    pub(super) async fn advance_and_record_in(
        &self,
        tx: &mut Tx,
        workspace: &WorkspaceRow,
        event: Event,
        entry: audit::Event,
    ) -> sqlx::Result<()> {
        let since = matches!(event, Event::RightsGone | Event::RightsFound)
            .then_some(workspace.status_changed_at);
        let changed = store::advance_since(tx, &self.clock, workspace.id, event, since).await?
            || (event == Event::Suspend
                && workspace.kind() == WorkspaceKind::Membership
                && membership::mark_suspended_on_rejoin(tx, workspace.id).await?);
        if changed {
            audit::record(tx, &self.clock, entry).await?;
        }
        Ok(())
    }

    /// Stores the open steps of a run in the row, where `unfinished` in the API reads them.
    async fn record_open_steps(&self, begun: &WorkspaceRow, steps: &Steps) -> sqlx::Result<()> {
        let mut tx = self.db.begin().await?;
        work::set_open_steps(&mut tx, begun, &steps.open_steps(begun.kind(), begun.status()))
            .await?;
        tx.commit().await
    }

    /// The result for the caller. An unavailable cluster leaves steps open, but does not undo the
    /// decision.
    pub(super) async fn suspension_report(
        &self,
        begun: &WorkspaceRow,
        steps: Steps,
        all: &[&str],
        rest: Result<(), WorkspaceError>,
    ) -> Result<Suspension, WorkspaceError> {
        let all = if let Err(error) = rest {
            record_field(Field::Cause, error_chain(&error));
            self.record_open_steps(begun, &steps).await?;
            all
        } else {
            &[]
        };
        let now = store::by_id(&self.db, begun.id).await?.ok_or(sqlx::Error::RowNotFound)?;
        Ok(Suspension { id: begun.id, status: now.status(), steps: steps.into_steps(all) })
    }
}
