//! `GET /tenants/{name}`

use poem_openapi::{OpenApi, param::Path, payload::Json};
use tenant_shared::TenantInfo;

use super::TenantService;
use crate::http::{ApiError, AuthenticatedForWorkspace};

/// `getTenant`.
#[derive(Debug)]
pub struct Show {
    pub(super) tenants: TenantService,
}

#[OpenApi(prefix_path = "/tenants")]
impl Show {
    /// Show a tenant
    ///
    /// Its state, the caller's roles in its namespaces with the entries of the Tenant that give
    /// them, and the number of namespaces. Owners and administrators also see what the broker could
    /// not carry out. 404 if the caller may not see the tenant.
    #[oai(path = "/:name", method = "get", operation_id = "getTenant")]
    async fn show(
        &self,
        caller: AuthenticatedForWorkspace,
        /// Name of the tenant.
        name: Path<String>,
    ) -> Result<Json<TenantInfo>, ApiError> {
        let (tenants, name) = self.tenants.with_name(&name.0)?;
        let permit = tenants.authorize_read(&caller.0, &name).await?;
        Ok(Json(tenants.show(&permit).await?))
    }
}
