//! The response of operations that create a workspace or return the one that exists.

use poem_openapi::{ApiResponse, payload::Json};
use tenant_shared::Workspace;

use crate::workspace::Initialized;

/// Response of `init`, and of the operation that makes a member of a tenant.
#[derive(ApiResponse)]
pub enum WorkspaceResponse {
    /// The workspace was created: all of its objects exist.
    #[oai(status = 201)]
    Created(Json<Workspace>),
    /// The workspace existed already.
    #[oai(status = 200)]
    Exists(Json<Workspace>),
}

impl From<Initialized> for WorkspaceResponse {
    fn from(initialized: Initialized) -> Self {
        let body = Json(initialized.workspace);
        if initialized.created { Self::Created(body) } else { Self::Exists(body) }
    }
}
