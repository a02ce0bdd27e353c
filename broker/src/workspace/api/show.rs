//! `GET /workspaces/{id}`

use poem_openapi::{OpenApi, param::Path, payload::Json};
use tenant_shared::Workspace;
use uuid::Uuid;

use crate::{
    access::ReadWorkspace,
    http::{ApiError, AuthenticatedForWorkspace},
    workspace::Workspaces,
};

/// `showWorkspace`.
#[derive(Debug)]
pub struct Show {
    pub(super) workspaces: Workspaces,
}

#[OpenApi(prefix_path = "/workspaces")]
impl Show {
    /// Show a workspace
    ///
    /// While the workspace is being created, suspended or resumed, `unfinished` lists the open
    /// steps. `drift` lists the differences between its objects in the cluster and their desired
    /// state.
    #[oai(path = "/:id", method = "get", operation_id = "showWorkspace")]
    async fn show(
        &self,
        caller: AuthenticatedForWorkspace,
        /// Identifier of the workspace.
        id: Path<Uuid>,
    ) -> Result<Json<Workspace>, ApiError> {
        let permit = self.workspaces.authorize::<ReadWorkspace>(&caller.0, id.0).await?;
        Ok(Json(self.workspaces.show(&permit).await?))
    }
}
