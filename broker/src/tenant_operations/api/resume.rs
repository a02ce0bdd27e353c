//! `POST /tenants/{name}/resume`

use poem_openapi::{OpenApi, param::Path};
use tenant_shared::{SuspendRequest, TenantSuspension};

use super::{TenantService, suspend::response};
use crate::http::{ApiError, Authenticated, OptionalJson, StepsResponse};

/// `resumeTenant`.
#[derive(Debug)]
pub struct Resume {
    pub(super) tenants: TenantService,
}

#[OpenApi(prefix_path = "/tenants")]
impl Resume {
    /// Resume a tenant
    ///
    /// For administrators. Members get their rights back as the Tenant says now. Tokens from before
    /// the suspension stay invalid, and role bindings that owners had made are not restored. The step
    /// `namespaces` is open while rights in a namespace are not restored, and its detail says why;
    /// the tenant is active in all others. The request body is optional.
    #[oai(path = "/:name/resume", method = "post", operation_id = "resumeTenant")]
    async fn resume(
        &self,
        caller: Authenticated,
        /// Name of the tenant.
        name: Path<String>,
        request: OptionalJson<SuspendRequest>,
    ) -> Result<StepsResponse<TenantSuspension>, ApiError> {
        let (tenants, name) = self.tenants.with_name(&name.0)?;
        Ok(response(tenants.resume(&caller.0, &name, request.0.reason).await?))
    }
}
