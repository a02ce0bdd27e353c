//! The lease of a tenant: one replica at a time works on it.

use crate::{
    base::{
        error_chain,
        lease::{acquire_lease, release_lease},
    },
    tenant::TenantRow,
    tenant_controller::TenantController,
};

/// How long a lease is valid, in milliseconds: longer than a run may take, with the requests that are
/// in flight when it ends, so that the run of the replica that holds it has ended by then. Clocks of
/// replicas do not matter, because that of the database decides.
const LEASE_TTL_MS: i64 = 75_000;

/// A lease that this replica holds. It expires if it is not released.
#[derive(Debug)]
#[must_use]
pub(in crate::tenant_controller) struct Lease(String);

impl TenantController {
    /// Acquires the lease of a tenant; `None` if another replica has it.
    ///
    /// # Errors
    /// The database failed.
    pub(in crate::tenant_controller) async fn lease(
        &self,
        row: &TenantRow,
    ) -> sqlx::Result<Option<Lease>> {
        let name = row.lease_name();
        let held = acquire_lease(&self.db, &self.clock, &name, self.replica, LEASE_TTL_MS).await?;
        Ok(held.then_some(Lease(name)))
    }

    /// Releases a lease. One that cannot be released expires.
    pub(in crate::tenant_controller) async fn release(&self, lease: Lease) {
        if let Err(error) = release_lease(&self.db, &lease.0, self.replica).await {
            tracing::warn!(error = error_chain(&error), "cannot release the lease of a tenant");
        }
    }
}
