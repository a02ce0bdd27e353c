//! `POST /workspaces/init`

use poem_openapi::{ApiResponse, OpenApi, payload::Json};
use tenant_shared::{InitRequest, Workspace};

use crate::{
    access::{self, CreateWorkspace},
    http::{ApiError, Authenticated},
    workspace::Workspaces,
};

/// `initWorkspace`.
#[derive(Debug)]
pub struct Init {
    pub(super) workspaces: Workspaces,
}

/// Responses of `init`.
#[derive(ApiResponse)]
pub(super) enum InitResponse {
    /// The workspace was created: all of its objects exist.
    #[oai(status = 201)]
    Created(Json<Workspace>),
    /// The workspace existed already.
    #[oai(status = 200)]
    Exists(Json<Workspace>),
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
    ) -> Result<InitResponse, ApiError> {
        let permit = access::authorize_all::<CreateWorkspace>(&caller.0)?;
        let initialized = self.workspaces.init(&permit, &request.tier).await?;
        let body = Json(initialized.workspace);
        Ok(if initialized.created {
            InitResponse::Created(body)
        } else {
            InitResponse::Exists(body)
        })
    }
}
