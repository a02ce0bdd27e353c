//! `GET /tenants/{name}/namespaces`

use poem_openapi::{OpenApi, param::Path, payload::Json};
use tenant_shared::TenantNamespaceList;

use super::TenantService;
use crate::http::{ApiError, AuthenticatedForWorkspace};

/// `listTenantNamespaces`.
#[derive(Debug)]
pub struct ListNamespaces {
    pub(super) tenants: TenantService,
}

#[OpenApi(prefix_path = "/tenants")]
impl ListNamespaces {
    /// List the namespaces of a tenant
    ///
    /// By name, with those that are being deleted, and those in which nobody has rights because
    /// they are beyond the quota.
    #[oai(path = "/:name/namespaces", method = "get", operation_id = "listTenantNamespaces")]
    async fn list_namespaces(
        &self,
        caller: AuthenticatedForWorkspace,
        /// Name of the tenant.
        name: Path<String>,
    ) -> Result<Json<TenantNamespaceList>, ApiError> {
        let (tenants, name) = self.tenants.with_name(&name.0)?;
        let permit = tenants.authorize_read(&caller.0, &name).await?;
        Ok(Json(tenants.namespaces(&permit).await?))
    }
}
