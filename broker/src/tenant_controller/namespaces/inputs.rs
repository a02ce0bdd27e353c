//! Inputs of the desired state of a new namespace, and a check that they did not change.

use crate::{
    cluster::{ClusterError, CustomObject},
    tenant::{Member, Tenant, TenantRow, TenantStatus},
    tenant_controller::{TenantController, error::ReconcileError},
};

/// A tenant with its members, as they were read.
#[derive(Debug)]
pub(in crate::tenant_controller) struct NamespaceInputs {
    pub(in crate::tenant_controller) tenant: Tenant,
    /// `metadata.generation` of the object, which grows with each change of its specification.
    generation: Option<i64>,
    pub(in crate::tenant_controller) members: Vec<Member>,
}

/// Result of the check.
#[derive(Debug)]
pub(in crate::tenant_controller) enum InputsState {
    Same,
    /// The specification or a membership changed.
    Changed(Box<NamespaceInputs>),
    /// The tenant is suspended or closed, or its object is being deleted or is another one.
    NotActive,
}

impl NamespaceInputs {
    pub(in crate::tenant_controller) fn new(
        tenant: &Tenant,
        generation: Option<i64>,
        members: Vec<Member>,
    ) -> Self {
        Self { tenant: tenant.clone(), generation, members }
    }
}

impl TenantController {
    /// Reads the tenant and its members again, and compares them with those of before.
    ///
    /// # Errors
    /// The cluster or the database failed; the Tenant is not valid any more or cannot be read.
    pub(in crate::tenant_controller) async fn compare_inputs(
        &self,
        row: &TenantRow,
        known: &NamespaceInputs,
    ) -> Result<InputsState, ReconcileError> {
        let (resource, name) = (row.group.resource(), row.name.as_str());
        let object = async { Ok(self.cluster.get_custom(&resource, name).await?) };
        let status = async {
            let row = self.requests.tenants.by_id(row.id).await?;
            Ok::<_, ReconcileError>(row.map(|row| row.status))
        };
        let (object, status, members) =
            tokio::try_join!(object, status, self.members_for_request(row))?;
        if status != Some(TenantStatus::Active) {
            return Ok(InputsState::NotActive);
        }
        let object = match object {
            CustomObject::Found(object)
                if row.is_row_of(&object.metadata)
                    && object.metadata.deletion_timestamp.is_none() =>
            {
                object
            }
            CustomObject::Found(_) | CustomObject::Missing => return Ok(InputsState::NotActive),
            CustomObject::Unknown => {
                let what = "the API server does not serve Tenants to the broker".to_owned();
                return Err(ClusterError::Conflict(what).into());
            }
        };
        let generation = object.metadata.generation;
        if generation.is_some() && generation == known.generation && members == known.members {
            return Ok(InputsState::Same);
        }
        let tenant = Tenant::parse(name, &object.data["spec"]).map_err(|_| {
            ClusterError::Conflict("the Tenant breaks a rule of its definition".to_owned())
        })?;
        Ok(InputsState::Changed(Box::new(NamespaceInputs { tenant, generation, members })))
    }
}
