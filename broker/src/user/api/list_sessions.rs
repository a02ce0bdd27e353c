//! `GET /users/{id}/sessions`

use poem_openapi::{
    OpenApi,
    param::{Path, Query},
    payload::Json,
};
use tenant_shared::SessionList;
use uuid::Uuid;

use crate::{
    access::{self, ManageUsers},
    http::{ApiError, Authenticated, query},
    identity::MAX_SESSIONS,
    user::Users,
};

/// `listSessionsOfUser`.
#[derive(Debug)]
pub struct ListSessionsOfUser {
    pub(super) users: Users,
}

#[OpenApi(prefix_path = "/users")]
impl ListSessionsOfUser {
    /// List a user's sessions
    ///
    /// Lists the user's live sessions, newest first. `next_cursor` is set while there are more.
    #[oai(path = "/:id/sessions", method = "get", operation_id = "listSessionsOfUser")]
    async fn sessions(
        &self,
        caller: Authenticated,
        /// Identifier of the user.
        id: Path<Uuid>,
        /// `next_cursor` of the previous page.
        #[oai(validator(max_length = 64))]
        cursor: Query<Option<String>>,
        /// Page size, 1 to 1000. The default is 1000.
        #[oai(validator(minimum(value = "1"), maximum(value = "1000")))]
        limit: Query<Option<u32>>,
    ) -> Result<Json<SessionList>, ApiError> {
        let permit = access::authorize_all::<ManageUsers>(&caller.0)?;
        let after = cursor.0.as_deref().map(query::parse_cursor).transpose()?;
        let limit = query::parse_limit(limit.0, MAX_SESSIONS, MAX_SESSIONS)?;
        Ok(Json(self.users.sessions(&permit, id.0, after, limit).await?))
    }
}
