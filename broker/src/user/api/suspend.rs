//! `POST /users/{id}/suspend`

use poem_openapi::{ApiResponse, OpenApi, param::Path, payload::Json};
use tenant_shared::{StepResult, SuspendRequest, UserSuspension};
use uuid::Uuid;

use crate::{
    access::{self, SuspendWorkspaces},
    audit::Action,
    http::{ApiError, Authenticated, OptionalJson},
    user::Users,
};

/// `suspendUser`.
#[derive(Debug)]
pub struct SuspendUser {
    pub(super) users: Users,
}

/// Responses of `suspend`.
#[derive(ApiResponse)]
pub(super) enum SuspensionResponse {
    /// Every step is done.
    #[oai(status = 200)]
    Done(Json<UserSuspension>),
    /// The decision is recorded; the broker retries the open steps.
    #[oai(status = 202)]
    Open(Json<UserSuspension>),
}

impl From<UserSuspension> for SuspensionResponse {
    fn from(suspension: UserSuspension) -> Self {
        let steps = suspension.workspaces.iter().flat_map(|workspace| &workspace.steps);
        if steps.into_iter().all(|step| step.result == StepResult::Done) {
            Self::Done(Json(suspension))
        } else {
            Self::Open(Json(suspension))
        }
    }
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
    ) -> Result<SuspensionResponse, ApiError> {
        let permit = self.users.authorize_audited(&caller.0, id.0, Action::SuspendUser).await?;
        let suspend_workspaces = access::authorize_all::<SuspendWorkspaces>(&caller.0)?;
        Ok(self.users.suspend(&permit, &suspend_workspaces, id.0, request.0.reason).await?.into())
    }
}
