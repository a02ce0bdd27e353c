//! The end of a tenant whose object was deleted, or was deleted and made again.
//!
//! Its namespaces stay, without bindings of the broker. Limits stay as well, because programs in the
//! namespaces go on.

use super::{
    TenantController,
    error::ReconcileError,
    resource_of,
    snapshot::Snapshot,
    withdraw::{Withdrawal, is_binding_of},
};
use crate::{cluster::CustomObject, tenant::TenantRow};

impl TenantController {
    /// Revokes the rights that the broker gave in a tenant, ends its memberships and closes its row.
    /// Returns false if another replica works on the tenant, or the object exists after all.
    ///
    /// # Errors
    /// The cluster or the database failed, so the row is still open.
    pub(super) async fn close(&self, row: &TenantRow) -> Result<bool, ReconcileError> {
        let Some(lease) = self.lease(row).await? else { return Ok(false) };
        let result = match self.is_gone(row).await {
            Ok(true) => Box::pin(self.revoke_and_close(row)).await.map(|()| true),
            other => other,
        };
        self.release(lease).await;
        result
    }

    /// Whether the object of a row is gone. The lease is held, so no other replica changes what this
    /// says: one that read the object before may have seen an earlier one.
    async fn is_gone(&self, row: &TenantRow) -> Result<bool, ReconcileError> {
        Ok(match self.cluster.get_custom(&resource_of(row.group), row.name.as_str()).await? {
            CustomObject::Found(object) => {
                object.metadata.uid.as_deref() != Some(row.object_uid.as_str())
            }
            CustomObject::Missing => true,
            CustomObject::Unknown => false,
        })
    }

    async fn revoke_and_close(&self, row: &TenantRow) -> Result<(), ReconcileError> {
        let snapshot = Snapshot::read(&self.cluster, &row.name).await?;
        let bindings = snapshot.others([]).filter(|object| is_binding_of(&row.name, object));
        let withdrawals: Vec<Withdrawal<'_>> = bindings.map(Withdrawal::Delete).collect();
        // Memberships end first, because a member may have a token.
        self.end_memberships(row).await?;
        if let Some((_, error)) = self.withdraw(withdrawals).await.into_iter().next() {
            return Err(error.into());
        }
        self.tenants.close(row.id).await?;
        // Somebody may have joined until then.
        self.end_memberships(row).await?;
        tracing::info!(tenant = %row.name, "tenant closed, because its object is gone");
        Ok(())
    }
}
