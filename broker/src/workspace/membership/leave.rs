//! The end of a membership.

use tenant_shared::Suspension;
use uuid::Uuid;

use crate::{
    access::AccessError,
    audit::{self, Action},
    workspace::{
        WorkspaceError, Workspaces,
        audit_events::broker_event,
        progress::{Steps, suspension_steps},
        state::Event,
        store::{self, membership},
    },
};

impl Workspaces {
    /// Ends a membership because the tenant names its user no more, or because the tenant is gone:
    /// no credential is issued after the commit of the first step, and then its ServiceAccount is
    /// deleted and its streams are closed. Idempotent.
    ///
    /// # Errors There is no such membership, or the decision could not be recorded. A step that
    /// failed in the cluster is no error: it is open in the result, and the sweep retries it.
    #[tracing::instrument(level = "debug", skip_all, fields(workspace_id = %membership))]
    pub async fn leave(
        &self,
        membership: Uuid,
        reason: Option<String>,
    ) -> Result<Suspension, WorkspaceError> {
        let mut steps = Steps::default();
        steps.run("record", self.begin_leave(membership, reason)).await?;
        let left = store::by_id(&self.db, membership).await?.ok_or(sqlx::Error::RowNotFound)?;
        let rest = self.revoke_access_detached(&left, &mut steps).await;
        self.suspension_report(&left, steps, suspension_steps(left.kind()), rest).await
    }

    /// Records that a user left. Nothing is issued after the commit.
    pub(super) async fn begin_leave(
        &self,
        id: Uuid,
        reason: Option<String>,
    ) -> Result<(), WorkspaceError> {
        let Some(member) = store::by_id(&self.db, id).await? else {
            return Err(AccessError::WorkspaceNotFound.into());
        };
        if member.tenant_name().is_none() {
            return Err(AccessError::WorkspaceNotFound.into());
        }
        let mut tx = self.db.begin().await?;
        let left = membership::set_former_status(&mut tx, id).await?;
        if left {
            store::advance(&mut tx, &self.clock, id, Event::Suspend).await?;
            let event = audit::Event { reason, ..broker_event(&member, Action::LeaveTenant) };
            audit::record(&mut tx, &self.clock, event).await?;
        }
        tx.commit().await?;
        if left {
            self.metrics.action(Action::LeaveTenant.as_str(), "success");
        }
        Ok(())
    }
}
