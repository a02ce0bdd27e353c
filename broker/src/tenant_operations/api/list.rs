//! `GET /tenants`

use poem_openapi::{OpenApi, payload::Json};
use tenant_shared::TenantList;

use super::TenantService;
use crate::http::{ApiError, AuthenticatedForWorkspace};

/// `listTenants`.
#[derive(Debug)]
pub struct List {
    pub(super) tenants: TenantService,
}

#[OpenApi(prefix_path = "/tenants")]
impl List {
    /// List tenants
    ///
    /// The tenants that name the caller as an owner or in a binding, and those that the caller is a
    /// member of; for an administrator all. `workspace` is missing until the caller becomes a
    /// member with `joinTenant`. 404 if the broker has no tenants.
    #[oai(path = "/", method = "get", operation_id = "listTenants")]
    async fn list(&self, caller: AuthenticatedForWorkspace) -> Result<Json<TenantList>, ApiError> {
        let items = self.tenants.enabled()?.list(&caller.0).await?;
        Ok(Json(TenantList { items }))
    }
}
