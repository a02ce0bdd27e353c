//! `POST /users/{id}/resume`

use poem_openapi::{OpenApi, param::Path, payload::Json};
use tenant_shared::{SuspendRequest, UserInfo};
use uuid::Uuid;

use crate::{
    audit::Action,
    http::{ApiError, Authenticated, OptionalJson},
    user::Users,
};

/// `resumeUser`.
#[derive(Debug)]
pub struct ResumeUser {
    pub(super) users: Users,
}

#[OpenApi(prefix_path = "/users")]
impl ResumeUser {
    /// Resume a user
    ///
    /// Lets a suspended user sign in again. Earlier sessions stay ended, and the workspaces stay
    /// suspended until each is resumed. The request body is optional.
    #[oai(path = "/:id/resume", method = "post", operation_id = "resumeUser")]
    async fn resume(
        &self,
        caller: Authenticated,
        /// Identifier of the user.
        id: Path<Uuid>,
        request: OptionalJson<SuspendRequest>,
    ) -> Result<Json<UserInfo>, ApiError> {
        let permit = self.users.authorize_audited(&caller.0, id.0, Action::ResumeUser).await?;
        Ok(Json(self.users.resume(&permit, id.0, request.0.reason).await?))
    }
}
