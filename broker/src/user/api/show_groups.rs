//! `GET /users/{id}/groups`

use poem_openapi::{OpenApi, param::Path, payload::Json};
use tenant_shared::UserGroups;
use uuid::Uuid;

use crate::{
    access::{self, ManageUsers},
    http::{ApiError, Authenticated},
    user::Users,
};

/// `showGroupsOfUser`.
#[derive(Debug)]
pub struct ShowGroupsOfUser {
    pub(super) users: Users,
}

#[OpenApi(prefix_path = "/users")]
impl ShowGroupsOfUser {
    /// Show a user's groups
    ///
    /// Shows the groups by which the owners and role bindings of Tenants can name the user: those
    /// that their sign-in provider named last, or those that an administrator gave them.
    #[oai(path = "/:id/groups", method = "get", operation_id = "showGroupsOfUser")]
    async fn groups(
        &self,
        caller: Authenticated,
        /// Identifier of the user.
        id: Path<Uuid>,
    ) -> Result<Json<UserGroups>, ApiError> {
        let permit = access::authorize_all::<ManageUsers>(&caller.0)?;
        Ok(Json(self.users.groups(&permit, id.0).await?))
    }
}
