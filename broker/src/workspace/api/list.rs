//! `GET /workspaces`

use poem_openapi::{OpenApi, param::Query, payload::Json};
use tenant_shared::{Code, WorkspaceList};

use crate::{
    access::{self, ReadEverything},
    http::{ApiError, AuthenticatedForWorkspace, query},
    workspace::Workspaces,
};

/// Maximum number of workspaces on a page.
const MAX_PAGE_SIZE: u32 = 500;
/// Maximum number of workspaces in a list that was requested without paging. Clients from before
/// paging take this list for all workspaces.
const MAX_UNPAGED: u32 = 10_000;

/// `listWorkspaces`.
#[derive(Debug)]
pub struct List {
    pub(super) workspaces: Workspaces,
}

#[OpenApi(prefix_path = "/workspaces")]
impl List {
    /// List workspaces
    ///
    /// The caller's own workspaces, oldest first. With `all=true` an administrator gets
    /// everybody's. Without `limit` and `cursor` the response is the whole list, or 400 if there
    /// are more than 10,000 workspaces. With one of them it is a page, and `next_cursor` is set
    /// while there are more.
    #[oai(path = "/", method = "get", operation_id = "listWorkspaces")]
    async fn list(
        &self,
        caller: AuthenticatedForWorkspace,
        /// All workspaces instead of the caller's own; for administrators.
        all: Query<Option<bool>>,
        /// `next_cursor` of the previous page.
        #[oai(validator(max_length = 64))]
        cursor: Query<Option<String>>,
        /// Page size, 1 to 500. The default is 500 if `cursor` is given.
        #[oai(validator(minimum(value = "1"), maximum(value = "500")))]
        limit: Query<Option<u32>>,
    ) -> Result<Json<WorkspaceList>, ApiError> {
        let everything = match all.0 {
            Some(true) => Some(access::authorize_all::<ReadEverything>(&caller.0)?),
            _ => None,
        };
        let whole = cursor.0.is_none() && limit.0.is_none();
        let after = cursor.0.as_deref().map(query::parse_cursor).transpose()?;
        let limit = if whole {
            MAX_UNPAGED
        } else {
            query::parse_limit(limit.0, MAX_PAGE_SIZE, MAX_PAGE_SIZE)?
        };
        if whole
            && let Some(permit) = &everything
            && self.workspaces.are_more_than(permit, MAX_UNPAGED).await?
        {
            // A partial list that looks complete would hide workspaces.
            let text = format!(
                "there are more than {MAX_UNPAGED} workspaces: request pages with limit and \
                 cursor, or look one up by its name; a kubectl-tenant that does neither is too old"
            );
            return Err(ApiError::new(Code::InvalidRequest, text));
        }
        Ok(Json(match everything {
            Some(permit) => self.workspaces.page_of_all(&permit, after, limit).await?,
            None => self.workspaces.page_of(&caller.0, after, limit).await?,
        }))
    }
}
