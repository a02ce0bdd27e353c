//! `POST /tenants/{name}/members`

use poem_openapi::{OpenApi, param::Path};

use super::TenantService;
use crate::http::{ApiError, Authenticated, WorkspaceResponse};

/// `joinTenant`.
#[derive(Debug)]
pub struct Join {
    pub(super) tenants: TenantService,
}

#[OpenApi(prefix_path = "/tenants")]
impl Join {
    /// Become a member of a tenant
    ///
    /// Makes the caller a member of a tenant that names them as an owner or in a binding. The body
    /// of the response is the membership: a workspace, whose credentials act in all namespaces of
    /// the tenant. The operation is idempotent: the same call again returns 200 with the same body.
    #[oai(path = "/:name/members", method = "post", operation_id = "joinTenant")]
    async fn join(
        &self,
        caller: Authenticated,
        /// Name of the tenant.
        name: Path<String>,
    ) -> Result<WorkspaceResponse, ApiError> {
        let (tenants, name) = self.tenants.with_name(&name.0)?;
        Ok(tenants.join(&caller.0, &name).await?.into())
    }
}
