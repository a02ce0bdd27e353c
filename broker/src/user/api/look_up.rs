//! `GET /users/lookup`

use poem_openapi::{OpenApi, param::Query, payload::Json};
use tenant_shared::UserInfo;

use crate::{
    access::{self, ManageUsers},
    http::{ApiError, Authenticated, query},
    user::Users,
};

/// `lookUpUser`.
#[derive(Debug)]
pub struct LookUpUser {
    pub(super) users: Users,
}

#[OpenApi(prefix_path = "/users")]
impl LookUpUser {
    /// Look a user up
    ///
    /// Finds a user by their e-mail address or identifier, or by the namespace or identifier of one
    /// of their workspaces. The match is exact; 404 if there is none.
    #[oai(path = "/lookup", method = "get", operation_id = "lookUpUser")]
    async fn look_up(
        &self,
        caller: Authenticated,
        /// The name to look up, at most 254 bytes.
        #[oai(validator(max_length = 254))]
        name: Query<String>,
    ) -> Result<Json<UserInfo>, ApiError> {
        let permit = access::authorize_all::<ManageUsers>(&caller.0)?;
        Ok(Json(self.users.by_name(&permit, &query::parse_name(&name.0)?).await?))
    }
}
