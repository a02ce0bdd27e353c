//! `POST /tenants`

use poem_openapi::{ApiResponse, OpenApi, param::Query, payload::Json};
use tenant_shared::{CreateTenantRequest, TenantWrite, TenantWriteResult};

use super::TenantService;
use crate::http::{ApiError, Authenticated, OptionalJson};

/// `createTenant`.
#[derive(Debug)]
pub struct Create {
    pub(super) tenants: TenantService,
}

/// The response to a write of a Tenant.
#[derive(ApiResponse)]
pub(super) enum WriteResponse {
    /// The Tenant was changed or is so already, or this was a dry run.
    #[oai(status = 200)]
    Written(Json<TenantWrite>),
    /// The Tenant was created.
    #[oai(status = 201)]
    Created(Json<TenantWrite>),
}

impl From<TenantWrite> for WriteResponse {
    fn from(write: TenantWrite) -> Self {
        let is_created = write.result == TenantWriteResult::Created && !write.dry_run;
        if is_created { Self::Created(Json(write)) } else { Self::Written(Json(write)) }
    }
}

#[OpenApi(prefix_path = "/tenants")]
impl Create {
    /// Create a Tenant
    ///
    /// For administrators, where `tenants.write` is on. The object is of the API group
    /// `tenant-broker.io`. The API server validates it completely, and refuses fields that the
    /// definition does not have: 400 with the field. 409 with `tenant_exists` if there is one of
    /// this name. Who has rights follows a moment later.
    #[oai(path = "/", method = "post", operation_id = "createTenant")]
    async fn create(
        &self,
        caller: Authenticated,
        /// Whether the Tenant is validated only, and the response says what would be done.
        dry_run: Query<Option<bool>>,
        // Optional, so that a missing body reveals nothing to those who are no administrators.
        request: OptionalJson<CreateTenantRequest>,
    ) -> Result<WriteResponse, ApiError> {
        let tenants = self.tenants.enabled()?;
        let dry_run = dry_run.0.unwrap_or(false);
        Ok(tenants.create_tenant(&caller.0, &request.0, dry_run).await?.into())
    }
}
