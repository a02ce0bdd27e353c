//! The end of a tenant whose object was deleted, or was deleted and made again.
//!
//! Its namespaces stay, without bindings of the broker, and with a label that names the tenant.
//! Limits stay as well, because programs in the namespaces go on.
//!
//! The API server deletes the objects of a definition together with it. Nobody decided on the end of
//! a tenant then, so none is closed.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use kube::ResourceExt as _;
use tenant_shared::{FORMER_TENANT_LABEL, TENANT_LABEL, WORKSPACE_LABEL};

use super::identify::{RACE_INTERVAL, UNKNOWN_INTERVAL};
use crate::{
    base::error_chain,
    cluster::{ClusterError, CustomObject, DefinitionState},
    tenant::{NamespaceStatus, TenantRow, TenantStatus},
    tenant_controller::{
        TenantController,
        error::ReconcileError,
        objects::{
            apply::MetadataChange,
            withdraw::{MAX_IN_FLIGHT, Withdrawal, is_binding_of},
        },
    },
};

impl TenantController {
    /// Revokes the rights that the broker gave in a tenant, ends its memberships and closes its row.
    /// If it cannot be closed now, returns the pause before another attempt: another replica works
    /// on the tenant, the object exists after all, or its definition is gone.
    ///
    /// # Errors
    /// The cluster or the database failed, so the row is still open.
    pub(in crate::tenant_controller) async fn close(
        &self,
        row: &TenantRow,
    ) -> Result<Option<Duration>, ReconcileError> {
        let Some(lease) = self.lease(row).await? else { return Ok(Some(RACE_INTERVAL)) };
        let result = match self.reason_to_wait(row).await {
            Ok(None) => Box::pin(self.revoke_and_close(row)).await.map(|()| None),
            other => other,
        };
        self.release(lease).await;
        result
    }

    /// How long a row stays open at least; `None` if its object was deleted or replaced. The lease is
    /// held, so no other replica changes what this says: one that read the object before may have
    /// seen an earlier one.
    async fn reason_to_wait(&self, row: &TenantRow) -> Result<Option<Duration>, ReconcileError> {
        // A suspension takes more away than the end of a tenant does, such as bindings that owners
        // made, and it ends with the row.
        let current = self.tenants.by_id(row.id).await?;
        if current.is_some_and(|current| current.status == TenantStatus::Suspending) {
            tracing::warn!(tenant = %row.name, "tenant not closed before its suspension is done");
            return Ok(Some(RACE_INTERVAL));
        }
        let resource = row.group.resource();
        match self.cluster.get_custom(&resource, row.name.as_str()).await? {
            CustomObject::Found(object) => {
                return Ok(row.is_row_of(&object.metadata).then_some(RACE_INTERVAL));
            }
            CustomObject::Unknown => return Ok(Some(UNKNOWN_INTERVAL)),
            CustomObject::Missing => {}
        }
        // After the object, because its definition may be deleted in between.
        match self.cluster.definition_state(&resource).await? {
            DefinitionState::Served => Ok(None),
            DefinitionState::Terminating | DefinitionState::NotServed => {
                tracing::error!(
                    tenant = %row.name, group = row.group.name(),
                    "tenant not closed, because the definition of Tenants was deleted: restore it \
                     and its objects from a backup"
                );
                Ok(Some(UNKNOWN_INTERVAL))
            }
        }
    }

    async fn revoke_and_close(&self, row: &TenantRow) -> Result<(), ReconcileError> {
        // Without bindings no token of a member opens anything, and there may be many members.
        self.delete_broker_bindings(row).await?;
        self.end_memberships(row).await?;
        self.tenants.close(row.id).await?;
        // Somebody may have joined or created a namespace until then. If this fails, the cleanup
        // does it.
        self.delete_broker_bindings(row).await?;
        self.end_memberships(row).await?;
        self.drift.forget(&row.name);
        tracing::info!(tenant = %row.name, "tenant closed, because its object is gone");
        let kept = self.tenants.namespaces(row.id).await?;
        let marks: Vec<_> = kept
            .iter()
            .filter(|kept| kept.status == NamespaceStatus::Orphaned)
            .map(|kept| self.mark_kept(&kept.name, row.name.as_str()))
            .collect();
        stream::iter(marks).buffer_unordered(MAX_IN_FLIGHT).collect::<Vec<()>>().await;
        Ok(())
    }

    /// Labels a namespace that outlived its tenant, so that administrators find it. The cleanup
    /// repeats what fails.
    pub(in crate::tenant_controller) async fn mark_kept(&self, namespace: &str, tenant: &str) {
        let marked = async {
            let Some(live) = self.cluster.namespace(namespace).await? else { return Ok(()) };
            let has = |label: &str| live.labels().contains_key(label);
            if !has(TENANT_LABEL) || has(WORKSPACE_LABEL) || has(FORMER_TENANT_LABEL) {
                return Ok(());
            }
            let label = (FORMER_TENANT_LABEL.to_owned(), Some(tenant.to_owned()));
            let (labels, none) = (MetadataChange::from([label]), MetadataChange::new());
            self.cluster.patch_namespace(&live, &labels, &none).await.map(drop)
        };
        if let Err::<(), ClusterError>(error) = marked.await {
            tracing::warn!(
                tenant,
                namespace,
                error = error_chain(&error),
                "a namespace that outlived its tenant was not labelled; it is tried again"
            );
        }
    }

    async fn delete_broker_bindings(&self, row: &TenantRow) -> Result<(), ReconcileError> {
        let snapshot = self.snapshot(&row.name).await?;
        let bindings = snapshot.others([]).filter(|object| is_binding_of(&row.name, object));
        let withdrawals: Vec<Withdrawal<'_>> = bindings.map(Withdrawal::Delete).collect();
        match self.withdraw(withdrawals).await.into_iter().next() {
            Some((_, error)) => Err(error.into()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::identify::RACE_INTERVAL;
    use crate::{
        audit::{self, Action},
        tenant_controller::{error::ReconcileError, testing::Fixture},
        testing::{On, on_both_engines},
    };

    on_both_engines!(a_tenant_is_not_closed_before_its_suspension_is_done);

    async fn a_tenant_is_not_closed_before_its_suspension_is_done(on: On) {
        let fixture = Fixture::new(on).await;
        let row = fixture.tenant("solar").await;
        // The cluster of the fixture refuses connections.
        let closed = fixture.controller.close(&row).await;
        assert!(matches!(closed, Err(ReconcileError::Cluster(_))), "{closed:?}");
        let event = audit::Event::success(Action::SuspendTenant);
        assert!(fixture.controller.tenants.begin_suspension(row.id, event).await.unwrap());
        // `row` was read before.
        assert_eq!(fixture.controller.close(&row).await.unwrap(), Some(RACE_INTERVAL));
    }
}
