//! The status of the object, written only if it differs.

use kube::api::DynamicObject;

use crate::{
    cluster::ClusterError,
    tenant::{ApiGroup, Condition, StatusInputs, TenantStatus, tenant_status},
    tenant_controller::{TenantController, error::ReconcileError},
};

impl TenantController {
    /// Writes the status of an object, unless it is the same. Returns false if the object was
    /// changed since it was read.
    ///
    /// # Errors
    /// The request failed.
    pub(in crate::tenant_controller) async fn report(
        &self,
        (group, object): (ApiGroup, &DynamicObject),
        status: TenantStatus,
        namespaces: &[&str],
        conditions: &[Condition],
    ) -> Result<bool, ReconcileError> {
        let previous = object.data.get("status");
        let status = tenant_status(&StatusInputs {
            status,
            terminating: object.metadata.deletion_timestamp.is_some(),
            namespaces,
            conditions,
            generation: object.metadata.generation.unwrap_or_default(),
            now: self.clock.now(),
            previous,
        });
        if previous == Some(&status) {
            return Ok(true);
        }
        match self.cluster.write_custom_status(&group.resource(), object, &status).await {
            Ok(()) => Ok(true),
            Err(ClusterError::Conflict(_) | ClusterError::NotFound(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
