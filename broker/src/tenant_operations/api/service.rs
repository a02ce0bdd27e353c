//! The service behind the operations, and the tenant that a path names.

use tenant_shared::Code;

use crate::{
    http::ApiError,
    tenant::TenantName,
    tenant_operations::{TenantError, TenantOperations},
};

/// The service, if the broker has tenants. Clones share everything.
#[derive(Clone, Debug)]
pub(super) struct TenantService(pub(super) Option<TenantOperations>);

impl TenantService {
    /// The service.
    ///
    /// # Errors
    /// 404: the broker has no tenants.
    pub(super) fn enabled(&self) -> Result<&TenantOperations, ApiError> {
        self.0.as_ref().ok_or_else(|| {
            let text = "this broker has no tenants; an operator can switch them on \
                        (tenants.enabled)";
            ApiError::new(Code::NotFound, text)
        })
    }

    /// The service, and the tenant that a path names.
    ///
    /// # Errors
    /// 404: the broker has no tenants, or no tenant can have this name. The answer is that for an
    /// unknown tenant.
    pub(super) fn with_name(
        &self,
        name: &str,
    ) -> Result<(&TenantOperations, TenantName), ApiError> {
        let tenants = self.enabled()?;
        let name = name.parse::<TenantName>().map_err(|_| ApiError::from(TenantError::NotFound))?;
        Ok((tenants, name))
    }
}
