//! `POST /tenants/{name}/suspend`

use poem_openapi::{OpenApi, param::Path};
use tenant_shared::{StepResult, SuspendRequest, TenantSuspension};

use super::TenantService;
use crate::http::{ApiError, Authenticated, OptionalJson, StepsResponse};

/// `suspendTenant`.
#[derive(Debug)]
pub struct Suspend {
    pub(super) tenants: TenantService,
}

/// The response to `suspend` and `resume`.
pub(super) fn response(suspension: TenantSuspension) -> StepsResponse<TenantSuspension> {
    let is_done = suspension.steps.iter().all(|step| step.result == StepResult::Done);
    StepsResponse::new(suspension, is_done)
}

#[OpenApi(prefix_path = "/tenants")]
impl Suspend {
    /// Suspend a tenant (the kill switch)
    ///
    /// For administrators. No credential of a member is issued after the first step, and nobody
    /// creates a namespace; then all rights in the home and in all namespaces are revoked. The
    /// request body is optional.
    #[oai(path = "/:name/suspend", method = "post", operation_id = "suspendTenant")]
    async fn suspend(
        &self,
        caller: Authenticated,
        /// Name of the tenant.
        name: Path<String>,
        request: OptionalJson<SuspendRequest>,
    ) -> Result<StepsResponse<TenantSuspension>, ApiError> {
        let (tenants, name) = self.tenants.with_name(&name.0)?;
        Ok(response(tenants.suspend(&caller.0, &name, request.0.reason).await?))
    }
}
