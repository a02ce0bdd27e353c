//! `GET /users/{id}`

use poem_openapi::{OpenApi, param::Path, payload::Json};
use tenant_shared::UserInfo;
use uuid::Uuid;

use crate::{
    access::{self, ManageUsers},
    http::{ApiError, Authenticated},
    user::Users,
};

/// `showUser`.
#[derive(Debug)]
pub struct ShowUser {
    pub(super) users: Users,
}

#[OpenApi(prefix_path = "/users")]
impl ShowUser {
    /// Show a user
    ///
    /// For administrators.
    #[oai(path = "/:id", method = "get", operation_id = "showUser")]
    async fn show(
        &self,
        caller: Authenticated,
        /// Identifier of the user.
        id: Path<Uuid>,
    ) -> Result<Json<UserInfo>, ApiError> {
        let permit = access::authorize_all::<ManageUsers>(&caller.0)?;
        Ok(Json(self.users.existing(&permit, id.0).await?))
    }
}
