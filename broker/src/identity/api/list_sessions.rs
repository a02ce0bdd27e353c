//! `GET /me/sessions`

use poem_openapi::{OpenApi, param::Query, payload::Json};
use tenant_shared::SessionList;

use crate::{
    http::{ApiError, Authenticated, query},
    identity::{Identity, MAX_SESSIONS},
};

/// `listMySessions`.
#[derive(Debug)]
pub struct ListMySessions {
    pub(super) identity: Identity,
}

#[OpenApi(prefix_path = "/me")]
impl ListMySessions {
    /// List my sessions
    ///
    /// Every program and browser that is signed in as the caller, newest first. `next_cursor` is
    /// set while there are more.
    #[oai(path = "/sessions", method = "get", operation_id = "listMySessions")]
    async fn list(
        &self,
        caller: Authenticated,
        /// `next_cursor` of the previous page.
        #[oai(validator(max_length = 64))]
        cursor: Query<Option<String>>,
        /// Sessions of a page, 1 to 1000; the default is 1000.
        #[oai(validator(minimum(value = "1"), maximum(value = "1000")))]
        limit: Query<Option<u32>>,
    ) -> Result<Json<SessionList>, ApiError> {
        let after = cursor.0.as_deref().map(query::parse_cursor).transpose()?;
        let limit = query::parse_limit(limit.0, MAX_SESSIONS, MAX_SESSIONS)?;
        Ok(Json(self.identity.sessions_of_caller(&caller.0, after, limit).await?))
    }
}
