//! `POST /workspaces/{id}/resume`

use poem_openapi::{OpenApi, param::Path};
use tenant_shared::{SuspendRequest, Suspension};
use uuid::Uuid;

use super::suspend::response;
use crate::{
    access::SuspendWorkspaces,
    audit::Action,
    http::{ApiError, Authenticated, OptionalJson, StepsResponse},
    workspace::Workspaces,
};

/// `resumeWorkspace`.
#[derive(Debug)]
pub struct Resume {
    pub(super) workspaces: Workspaces,
}

#[OpenApi(prefix_path = "/workspaces")]
impl Resume {
    /// Resume a workspace
    ///
    /// Possible from 10 seconds after the suspension, and not while the owner is suspended. Tokens
    /// from before the suspension stay invalid. The request body is optional.
    #[oai(path = "/:id/resume", method = "post", operation_id = "resumeWorkspace")]
    async fn resume(
        &self,
        caller: Authenticated,
        /// Identifier of the workspace.
        id: Path<Uuid>,
        request: OptionalJson<SuspendRequest>,
    ) -> Result<StepsResponse<Suspension>, ApiError> {
        let permit = self
            .workspaces
            .authorize_audited::<SuspendWorkspaces>(&caller.0, id.0, Action::ResumeWorkspace)
            .await?;
        Ok(response(self.workspaces.resume(&permit, request.0.reason).await?))
    }
}
