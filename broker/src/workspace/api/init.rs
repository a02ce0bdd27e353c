//! `POST /workspaces/init`

use poem_openapi::{OpenApi, payload::Json};
use tenant_shared::InitRequest;

use crate::{
    access::{self, CreateWorkspace},
    http::{ApiError, Authenticated, WorkspaceResponse},
    workspace::Workspaces,
};

/// `initWorkspace`.
#[derive(Debug)]
pub struct Init {
    pub(super) workspaces: Workspaces,
}

#[OpenApi(prefix_path = "/workspaces")]
impl Init {
    /// Create my workspace
    ///
    /// Gives the caller a namespace with a quota, limits and a role in that namespace only. The
    /// operation is idempotent: the same call again returns 200 with the same body. Another tier is
    /// refused.
    #[oai(path = "/init", method = "post", operation_id = "initWorkspace")]
    async fn init(
        &self,
        caller: Authenticated,
        request: Json<InitRequest>,
    ) -> Result<WorkspaceResponse, ApiError> {
        let permit = access::authorize_all::<CreateWorkspace>(&caller.0)?;
        Ok(self.workspaces.init(&permit, &request.tier).await?.into())
    }
}
