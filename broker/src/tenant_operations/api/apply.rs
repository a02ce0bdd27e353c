//! `PUT /tenants/{name}`

use poem_openapi::{
    OpenApi,
    param::{Path, Query},
};
use tenant_shared::ApplyTenantRequest;

use super::{TenantService, create::WriteResponse};
use crate::{
    http::{ApiError, Authenticated, OptionalJson},
    tenant_operations::WriteOptions,
};

/// `applyTenant`.
#[derive(Debug)]
pub struct Apply {
    pub(super) tenants: TenantService,
}

#[OpenApi(prefix_path = "/tenants")]
impl Apply {
    /// Create a Tenant, or replace its specification
    ///
    /// For administrators, where `tenants.write` is on. `spec` of the Tenant becomes exactly that
    /// of the request; its metadata stay. Idempotent: a Tenant that is so already is not written.
    /// Without a Tenant of this name, and without a precondition in the request, it is created. 409
    /// with `field_conflict` if a field would change that another field manager has set, such as a
    /// GitOps tool or somebody with kubectl: the text names the field and the manager. 409 with
    /// `tenant_changed` if a precondition does not hold.
    #[oai(path = "/:name", method = "put", operation_id = "applyTenant")]
    async fn apply(
        &self,
        caller: Authenticated,
        /// Name of the tenant.
        name: Path<String>,
        /// Whether the Tenant is validated only, and the response says what would be done.
        dry_run: Query<Option<bool>>,
        /// Whether fields that other field managers have set are changed, too. The other manager
        /// may change them back.
        force: Query<Option<bool>>,
        // Optional, so that a missing body reveals nothing to those who are no administrators.
        request: OptionalJson<ApplyTenantRequest>,
    ) -> Result<WriteResponse, ApiError> {
        let tenants = self.tenants.enabled()?;
        let options =
            WriteOptions { dry_run: dry_run.0.unwrap_or(false), force: force.0.unwrap_or(false) };
        Ok(tenants.apply_tenant(&caller.0, &name.0, &request.0, options).await?.into())
    }
}
