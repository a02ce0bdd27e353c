//! `POST /workspaces/{id}/suspend`

use poem_openapi::{OpenApi, param::Path};
use tenant_shared::{StepResult, SuspendRequest, Suspension};
use uuid::Uuid;

use crate::{
    access::SuspendWorkspaces,
    audit::Action,
    http::{ApiError, Authenticated, OptionalJson, StepsResponse},
    workspace::Workspaces,
};

/// `suspendWorkspace`.
#[derive(Debug)]
pub struct Suspend {
    pub(super) workspaces: Workspaces,
}

/// The response to `suspend` and `resume`.
pub(super) fn response(suspension: Suspension) -> StepsResponse<Suspension> {
    let is_done = suspension.steps.iter().all(|step| step.result == StepResult::Done);
    StepsResponse::new(suspension, is_done)
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
    ) -> Result<StepsResponse<Suspension>, ApiError> {
        let permit = self
            .workspaces
            .authorize_audited::<SuspendWorkspaces>(&caller.0, id.0, Action::SuspendWorkspace)
            .await?;
        Ok(response(self.workspaces.suspend(&permit, request.0.reason).await?))
    }
}
