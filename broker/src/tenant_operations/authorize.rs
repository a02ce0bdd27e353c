//! Authorization of what administrators do with a tenant.

use super::{TenantOperations, error::TenantError};
use crate::{
    access::{self, GeneralAction, Permit},
    audit::{self, Action},
    identity::Caller,
    tenant::TenantName,
};

impl TenantOperations {
    /// Authorizes an action. A refusal is recorded in the audit trail, and does not depend on what
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
