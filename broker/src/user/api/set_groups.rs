//! `POST /users/{id}/groups`

use poem_openapi::{OpenApi, param::Path, payload::Json};
use tenant_shared::{SetGroupsRequest, UserGroups};
use uuid::Uuid;

use crate::{
    audit::Action,
    http::{ApiError, Authenticated, OptionalJson},
    user::Users,
};

/// `setGroupsOfUser`.
#[derive(Debug)]
pub struct SetGroupsOfUser {
    pub(super) users: Users,
}

#[OpenApi(prefix_path = "/users")]
impl SetGroupsOfUser {
    /// Replace a user's groups
    ///
    /// Gives a user with a local account these groups in place of those before, so that the owners
    /// and role bindings of Tenants can name the user by them. At most 64 names of 1 to 339
    /// characters, none of which begins with `system:`. For a user of a sign-in provider the answer
    /// is 409 (`provider_decides`), because the provider decides on their groups.
    #[oai(path = "/:id/groups", method = "post", operation_id = "setGroupsOfUser")]
    async fn set_groups(
        &self,
        caller: Authenticated,
        /// Identifier of the user.
        id: Path<Uuid>,
        request: OptionalJson<SetGroupsRequest>,
    ) -> Result<Json<UserGroups>, ApiError> {
        let permit = self.users.authorize_audited(&caller.0, id.0, Action::ChangeGroups).await?;
        let SetGroupsRequest { groups, reason } = request.0;
        Ok(Json(self.users.set_groups(&permit, id.0, groups, reason.as_deref()).await?))
    }
}
