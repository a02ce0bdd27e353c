//! `GET /users`

use poem_openapi::{OpenApi, param::Query, payload::Json};
use tenant_shared::UserList;

use crate::{
    access::{self, ManageUsers},
    http::{ApiError, Authenticated, query},
    user::Users,
};

/// Default page size of the list of users.
const DEFAULT_LIMIT: u32 = 100;
/// Maximum page size of the list of users.
const MAX_LIMIT: u32 = 500;

/// `listUsers`.
#[derive(Debug)]
pub struct ListUsers {
    pub(super) users: Users,
}

#[OpenApi(prefix_path = "/users")]
impl ListUsers {
    /// List users
    ///
    /// Lists users ordered by e-mail address, in pages. `next_cursor` is set while there are more.
    #[oai(path = "/", method = "get", operation_id = "listUsers")]
    async fn list(
        &self,
        caller: Authenticated,
        /// `next_cursor` of the previous page.
        #[oai(validator(max_length = 254))]
        cursor: Query<Option<String>>,
        /// Page size, 1 to 500. The default is 100.
        #[oai(validator(minimum(value = "1"), maximum(value = "500")))]
        limit: Query<Option<u32>>,
    ) -> Result<Json<UserList>, ApiError> {
        let permit = access::authorize_all::<ManageUsers>(&caller.0)?;
        let limit = query::parse_limit(limit.0, DEFAULT_LIMIT, MAX_LIMIT)?;
        Ok(Json(self.users.list(&permit, cursor.0.as_deref().unwrap_or_default(), limit).await?))
    }
}
