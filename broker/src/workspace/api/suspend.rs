//! `POST /workspaces/{id}/suspend`

use poem_openapi::{ApiResponse, OpenApi, param::Path, payload::Json};
use tenant_shared::{StepResult, SuspendRequest, Suspension};
use uuid::Uuid;

use crate::{
    access::SuspendWorkspaces,
    audit::Action,
    http::{ApiError, Authenticated, OptionalJson},
    workspace::Workspaces,
};

/// `suspendWorkspace`.
#[derive(Debug)]
pub struct Suspend {
    pub(super) workspaces: Workspaces,
}

/// Responses of `suspend` and `resume`.
#[derive(ApiResponse)]
pub(super) enum SuspensionResponse {
    /// Every step is done.
    #[oai(status = 200)]
    Done(Json<Suspension>),
    /// The decision is recorded; the broker retries the open steps.
    #[oai(status = 202)]
    Open(Json<Suspension>),
}

impl From<Suspension> for SuspensionResponse {
    fn from(suspension: Suspension) -> Self {
        if suspension.steps.iter().all(|step| step.result == StepResult::Done) {
            Self::Done(Json(suspension))
        } else {
            Self::Open(Json(suspension))
        }
    }
}

#[OpenApi(prefix_path = "/workspaces")]
impl Suspend {
    /// Suspend a workspace (the kill switch)
    ///
    /// No credential is issued after the first step (`record`). The request body is optional.
    #[oai(path = "/:id/suspend", method = "post", operation_id = "suspendWorkspace")]
    async fn suspend(
        &self,
        caller: Authenticated,
        /// Identifier of the workspace.
        id: Path<Uuid>,
        request: OptionalJson<SuspendRequest>,
    ) -> Result<SuspensionResponse, ApiError> {
        let permit = self
            .workspaces
            .authorize_audited::<SuspendWorkspaces>(&caller.0, id.0, Action::SuspendWorkspace)
            .await?;
        Ok(self.workspaces.suspend(&permit, request.0.reason).await?.into())
    }
}
