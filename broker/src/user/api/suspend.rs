//! `POST /users/{id}/suspend`

use poem_openapi::{OpenApi, param::Path};
use tenant_shared::{StepResult, SuspendRequest, UserSuspension};
use uuid::Uuid;

use crate::{
    access::{self, SuspendWorkspaces},
    audit::Action,
    http::{ApiError, Authenticated, OptionalJson, StepsResponse},
    user::Users,
};

/// `suspendUser`.
#[derive(Debug)]
pub struct SuspendUser {
    pub(super) users: Users,
}

#[OpenApi(prefix_path = "/users")]
impl SuspendUser {
    /// Suspend a user
    ///
    /// Ends every session of the user at once, stops the issuance of credentials on every replica,
    /// and suspends all their workspaces. The request body is optional.
    #[oai(path = "/:id/suspend", method = "post", operation_id = "suspendUser")]
    async fn suspend(
        &self,
        caller: Authenticated,
        /// Identifier of the user.
        id: Path<Uuid>,
        request: OptionalJson<SuspendRequest>,
    ) -> Result<StepsResponse<UserSuspension>, ApiError> {
        let permit = self.users.authorize_audited(&caller.0, id.0, Action::SuspendUser).await?;
        let suspend_workspaces = access::authorize_all::<SuspendWorkspaces>(&caller.0)?;
        let suspension =
            self.users.suspend(&permit, &suspend_workspaces, id.0, request.0.reason).await?;
        let mut steps = suspension.workspaces.iter().flat_map(|workspace| &workspace.steps);
        let is_done = steps.all(|step| step.result == StepResult::Done);
        Ok(StepsResponse::new(suspension, is_done))
    }
}
