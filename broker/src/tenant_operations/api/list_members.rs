//! `GET /tenants/{name}/members`

use poem_openapi::{OpenApi, param::Path, payload::Json};
use tenant_shared::TenantMemberList;

use super::TenantService;
use crate::http::{ApiError, Authenticated};

/// `listTenantMembers`.
#[derive(Debug)]
pub struct ListMembers {
    pub(super) tenants: TenantService,
}

#[OpenApi(prefix_path = "/tenants")]
impl ListMembers {
    /// List the members of a tenant
    ///
    /// For owners and administrators. `workspace` of a member is the identifier by which the
    /// operations on workspaces address the membership, for example to suspend it.
    #[oai(path = "/:name/members", method = "get", operation_id = "listTenantMembers")]
    async fn list_members(
        &self,
        caller: Authenticated,
        /// Name of the tenant.
        name: Path<String>,
    ) -> Result<Json<TenantMemberList>, ApiError> {
        let (tenants, name) = self.tenants.with_name(&name.0)?;
        let permit = tenants.authorize_members(&caller.0, &name).await?;
        Ok(Json(tenants.members(&permit).await?))
    }
}
