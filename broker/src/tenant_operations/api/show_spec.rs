//! `GET /tenants/{name}/spec`

use poem_openapi::{OpenApi, param::Path, payload::Json};
use tenant_shared::TenantObject;

use super::TenantService;
use crate::http::{ApiError, Authenticated};

/// `getTenantSpec`.
#[derive(Debug)]
pub struct ShowSpec {
    pub(super) tenants: TenantService,
}

#[OpenApi(prefix_path = "/tenants")]
impl ShowSpec {
    /// Show the specification of a Tenant
    ///
    /// For administrators: the object as the API server has it now, whether or not it is valid.
    /// `uid` and `generation` are preconditions of `applyTenant`.
    #[oai(path = "/:name/spec", method = "get", operation_id = "getTenantSpec")]
    async fn show_spec(
        &self,
        caller: Authenticated,
        /// Name of the tenant.
        name: Path<String>,
    ) -> Result<Json<TenantObject>, ApiError> {
        Ok(Json(self.tenants.enabled()?.read_object(&caller.0, &name.0).await?))
    }
}
