//! `DELETE /tenants/{name}`

use poem_openapi::{
    OpenApi,
    param::{Path, Query},
    payload::Json,
};
use tenant_shared::{NamespacesOnDelete, TenantDeletion};

use super::TenantService;
use crate::{
    http::{ApiError, Authenticated},
    tenant_operations::DeleteOptions,
};

/// `deleteTenant`.
#[derive(Debug)]
pub struct Delete {
    pub(super) tenants: TenantService,
}

#[OpenApi(prefix_path = "/tenants")]
impl Delete {
    /// Delete a Tenant
    ///
    /// For administrators, where `tenants.write` is on. Its people lose the rights that it gave
    /// them, a moment later. 409 with `tenant_not_empty` if it has namespaces, unless
    /// `namespaces=keep`: then they stay, with everything in them. 409 with `tenant_changed` if
    /// `uid` is that of another Tenant.
    #[oai(path = "/:name", method = "delete", operation_id = "deleteTenant")]
    async fn delete(
        &self,
        caller: Authenticated,
        /// Name of the tenant.
        name: Path<String>,
        /// What becomes of its namespaces: `refuse` (the default) or `keep`.
        namespaces: Query<Option<NamespacesOnDelete>>,
        /// Precondition: the Tenant has this `metadata.uid`.
        #[oai(validator(max_length = 64))]
        uid: Query<Option<String>>,
        /// Whether nothing is deleted, and the response says what would be done.
        dry_run: Query<Option<bool>>,
        /// Reason for the audit trail, as free text.
        #[oai(validator(max_length = 500))]
        reason: Query<Option<String>>,
    ) -> Result<Json<TenantDeletion>, ApiError> {
        let tenants = self.tenants.enabled()?;
        let options = DeleteOptions {
            namespaces: namespaces.0.unwrap_or_default(),
            uid: uid.0,
            dry_run: dry_run.0.unwrap_or(false),
            reason: reason.0,
        };
        Ok(Json(tenants.delete_tenant(&caller.0, &name.0, &options).await?))
    }
}
