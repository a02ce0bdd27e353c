//! The object of a tenant, for administrators.

use tenant_shared::TenantObject;

use super::{TenantError, TenantOperations, TenantWriteError, object::to_api};
use crate::{
    access::{self, ManageTenants},
    cluster::CustomObject,
    identity::Caller,
    tenant::{ApiGroup, TenantName},
};

impl TenantOperations {
    /// The Tenant as the API server has it now. If both API groups have one of this name, that of
    /// our group.
    ///
    /// # Errors
    /// The caller is no administrator; there is no such Tenant, or the API server does not serve
    /// them; or the request failed.
    pub async fn read_object(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<TenantObject, TenantWriteError> {
        access::authorize_all::<ManageTenants>(caller)?;
        let name: TenantName = name.parse().map_err(|_| TenantError::NotFound)?;
        let mut is_served = false;
        for group in ApiGroup::ALL {
            match self.object(group, &name).await? {
                CustomObject::Found(object) => return Ok(to_api(group, &object)),
                CustomObject::Missing => is_served = true,
                CustomObject::Unknown => {}
            }
        }
        Err(if is_served { TenantError::NotFound.into() } else { TenantWriteError::NotServed })
    }
}
