//! `GET /workspaces/lookup`

use poem_openapi::{OpenApi, param::Query, payload::Json};
use tenant_shared::WorkspaceList;

use crate::{
    http::{ApiError, AuthenticatedForWorkspace, query},
    workspace::Workspaces,
};

/// `lookUpWorkspace`.
#[derive(Debug)]
pub struct LookUp {
    pub(super) workspaces: Workspaces,
}

#[OpenApi(prefix_path = "/workspaces")]
impl LookUp {
    /// Look a workspace up
    ///
    /// Finds a workspace by its namespace, by its identifier, or by the e-mail address or
    /// identifier of its owner. The match is exact. A user finds their own workspaces, an
    /// administrator finds everybody's; 404 if there is none. The name of an owner gives all their
    /// workspaces, at most 100.
    #[oai(path = "/lookup", method = "get", operation_id = "lookUpWorkspace")]
    async fn look_up(
        &self,
        caller: AuthenticatedForWorkspace,
        /// The name to look up, at most 254 bytes.
        #[oai(validator(max_length = 254))]
        name: Query<String>,
    ) -> Result<Json<WorkspaceList>, ApiError> {
        let items = self.workspaces.by_name(&caller.0, &query::parse_name(&name.0)?).await?;
        Ok(Json(WorkspaceList { items, next_cursor: None }))
    }
}
