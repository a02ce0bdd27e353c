//! Authorization of actions on workspaces: the rows that other modules get, each in a permit.

use uuid::Uuid;

use super::{WorkspaceError, WorkspaceRow, Workspaces, store};
use crate::{
    access::{self, AccessError, Permit, SuspendWorkspaces, UseWorkspace},
    audit,
    base::db::Tx,
    identity::Caller,
};

impl Workspaces {
    /// Authorizes an action on the workspace with this identifier.
    ///
    /// # Errors
    /// The caller may not take the action, or must not learn about the workspace; there is no such
    /// workspace; or the database failed.
    #[tracing::instrument(level = "debug", skip_all, fields(workspace_id = %id))]
    pub async fn authorize<A: access::ResourceAction>(
        &self,
        caller: &Caller,
        id: Uuid,
    ) -> Result<Permit<A, WorkspaceRow>, WorkspaceError> {
        // A refusal must not depend on what exists.
        access::authorize_lookup::<A>(caller)?;
        Ok(access::authorize(caller, self.existing(id).await?)?)
    }

    /// Like [`Workspaces::authorize`]. A refusal is recorded in the audit trail as an event of this
    /// action, except if there is no such workspace.
    ///
    /// # Errors
    /// See [`Workspaces::authorize`].
    pub async fn authorize_audited<A: access::ResourceAction>(
        &self,
        caller: &Caller,
        id: Uuid,
        action: audit::Action,
    ) -> Result<Permit<A, WorkspaceRow>, WorkspaceError> {
        let decision = match access::authorize_lookup::<A>(caller) {
            Ok(()) => access::authorize(caller, self.existing(id).await?),
            Err(refusal) => Err(refusal),
        };
        match decision {
            Ok(permit) => Ok(permit),
            Err(refusal) => {
                self.record_refusal(caller, id, action, refusal).await?;
                Err(refusal.into())
            }
        }
    }

    /// The caller's own workspaces that the session is scoped to, oldest first.
    ///
    /// # Errors
    /// The database failed.
    pub async fn usable_by(
        &self,
        caller: &Caller,
    ) -> sqlx::Result<Vec<Permit<UseWorkspace, WorkspaceRow>>> {
        let rows = store::for_user(&self.db, caller.user_id()).await?;
        Ok(rows.into_iter().filter_map(|row| access::authorize(caller, row).ok()).collect())
    }

    /// The workspaces of a user as this transaction sees them, oldest first.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn for_user_in(
        &self,
        tx: &mut Tx,
        all: &Permit<SuspendWorkspaces>,
        user: Uuid,
    ) -> sqlx::Result<Vec<Permit<SuspendWorkspaces, WorkspaceRow>>> {
        let rows = store::for_user_in(tx, user).await?;
        Ok(rows.into_iter().map(|row| all.on(row)).collect())
    }

    /// The row with this identifier.
    ///
    /// # Errors
    /// There is no such workspace, or the database failed.
    async fn existing(&self, id: Uuid) -> Result<WorkspaceRow, WorkspaceError> {
        Ok(store::by_id(&self.db, id).await?.ok_or(AccessError::WorkspaceNotFound)?)
    }

    async fn record_refusal(
        &self,
        caller: &Caller,
        id: Uuid,
        action: audit::Action,
        refusal: AccessError,
    ) -> sqlx::Result<()> {
        let event = audit::Event { workspace_id: Some(id), ..caller.event(action) };
        self.metrics.action(action.as_str(), "refused");
        audit::record_refusal(&self.refusals, &self.clock, event, &refusal).await
    }
}
