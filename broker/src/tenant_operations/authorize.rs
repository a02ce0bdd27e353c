//! Authorization of actions on tenants.

use super::{TenantOperations, error::TenantError};
use crate::{
    access::{self, AccessError, GeneralAction, Permit, Resource, ResourceAction},
    audit::{self, Action},
    identity::Caller,
    tenant::TenantName,
};

/// Authorizes an action on a tenant.
///
/// # Errors
/// [`TenantError::NotFound`] if the caller must not learn about the tenant, and
/// [`TenantError::NotOwner`] if they see it but may not take the action.
pub(super) fn authorize_on<A: ResourceAction, R: Resource<Id = TenantName>>(
    caller: &Caller,
    resource: R,
) -> Result<Permit<A, R>, TenantError> {
    let tenant = resource.id();
    access::authorize(caller, resource).map_err(|refusal| match refusal {
        AccessError::WorkspaceNotFound | AccessError::NameNotFound => TenantError::NotFound,
        AccessError::NotOwner => TenantError::NotOwner { tenant },
        AccessError::NotAdministrator => refusal.into(),
    })
}

impl TenantOperations {
    /// Authorizes what administrators do with tenants. A refusal is recorded in the audit trail, and does not depend on what
    /// exists.
    ///
    /// # Errors
    /// The caller may not take the action, or the database failed.
    pub(super) async fn authorize<A: GeneralAction>(
        &self,
        caller: &Caller,
        name: &str,
        action: Action,
    ) -> Result<Permit<A>, TenantError> {
        let refusal = match access::authorize_all::<A>(caller) {
            Ok(permit) => return Ok(permit),
            Err(refusal) => refusal,
        };
        self.metrics.action(action.as_str(), "refused");
        // Any other text would let everybody write into the audit trail what they want.
        let reason = match name.parse::<TenantName>() {
            Ok(name) => format!("tenant {name}: {refusal}"),
            Err(_) => format!("a tenant with an invalid name: {refusal}"),
        };
        audit::record_refusal(&self.db, &self.clock, caller.event(action), &reason).await?;
        Err(refusal.into())
    }
}
