//! The Tenant that decides on a right: the object that the API server returned just now. The copy in
//! the cache may still name an owner who was removed.

use uuid::Uuid;

use super::{TenantOperations, authorize::authorize_on, error::TenantError};
use crate::{
    access::{Grants, ReadTenant, Resource},
    cluster::CustomObject,
    identity::Caller,
    tenant::{Rights, Tenant, TenantName, TenantRow, TenantStatus, rights_of},
    workspace::WorkspaceError,
};

/// A tenant that names the caller.
#[derive(Debug)]
pub(super) struct CurrentTenant {
    /// The open row of the object.
    pub(super) row: TenantRow,
    pub(super) tenant: Tenant,
    /// `metadata.generation` of the object.
    pub(super) generation: Option<i64>,
    /// The rights of the caller.
    pub(super) rights: Rights,
    user: Uuid,
    /// Whether the object is being deleted.
    is_terminating: bool,
}

impl Resource for CurrentTenant {
    type Id = TenantName;

    fn id(&self) -> TenantName {
        self.row.name.clone()
    }

    fn workspace(&self) -> Option<Uuid> {
        None
    }

    fn grants(&self) -> Grants {
        Grants::of_person(self.user, self.rights.is_owner, self.rights.is_member())
    }
}

/// A Tenant as the API server has it.
#[derive(Debug)]
pub(super) struct LiveTenant {
    pub(super) tenant: Tenant,
    /// `metadata.generation` of the object.
    generation: Option<i64>,
    /// Whether the object is being deleted.
    pub(super) is_terminating: bool,
}

impl CurrentTenant {
    /// Checks that people may get rights in the tenant.
    ///
    /// # Errors
    /// [`TenantError::NotActive`].
    pub(super) fn require_active(&self) -> Result<(), TenantError> {
        if self.row.status == TenantStatus::Active && !self.is_terminating {
            Ok(())
        } else {
            Err(TenantError::NotActive { tenant: self.row.name.clone() })
        }
    }
}

impl TenantOperations {
    /// Reads a tenant that names the caller from the API server. A machine acts for one membership,
    /// so no tenant names it.
    ///
    /// # Errors
    /// [`TenantError::NotFound`], for whatever reason if the caller may not see the tenant; the
    /// Tenant does not name the caller, is not valid or cannot be read; or the cluster or the
    /// database failed.
    pub(super) async fn current_tenant(
        &self,
        caller: &Caller,
        name: &TenantName,
    ) -> Result<CurrentTenant, TenantError> {
        if caller.only_workspace().is_some() {
            return Err(TenantError::NotFound);
        }
        let row = self.tenants.by_name(name).await?.ok_or(TenantError::NotFound)?;
        let error = match self.read_current(caller, row).await {
            Ok(current) => return Ok(current),
            Err(error) => error,
        };
        let reader = self.tenant_reader(caller).await?;
        let view = reader.view(name, self.cache.tenant(name), &self.settings);
        Err(match authorize_on::<ReadTenant, _>(caller, view) {
            Ok(_) => error,
            Err(not_found) => not_found,
        })
    }

    async fn read_current(
        &self,
        caller: &Caller,
        row: TenantRow,
    ) -> Result<CurrentTenant, TenantError> {
        let LiveTenant { tenant, generation, is_terminating } = self.read_tenant(&row).await?;
        let rights = rights_of(&tenant, &self.person(caller).await?, &self.settings);
        if !rights.is_member() {
            return Err(WorkspaceError::NotMember(row.name.to_string()).into());
        }
        let user = caller.user_id();
        Ok(CurrentTenant { row, tenant, generation, rights, user, is_terminating })
    }

    /// Reads the Tenant of a row from the API server.
    ///
    /// # Errors
    /// [`TenantError::NotFound`] if the object is gone; the Tenant is not valid or cannot be read.
    pub(super) async fn read_tenant(&self, row: &TenantRow) -> Result<LiveTenant, TenantError> {
        let object = self.cluster.get_custom(&row.group.resource(), row.name.as_str()).await?;
        let object = match object {
            CustomObject::Found(object) if row.is_row_of(&object.metadata) => object,
            CustomObject::Found(_) | CustomObject::Missing => return Err(TenantError::NotFound),
            CustomObject::Unknown => {
                return Err(TenantError::NotReady {
                    reason: format!(
                        "tenant {} cannot be read, because the API server does not serve Tenants \
                         to the broker; have an administrator run tenant-broker install --apply",
                        row.name
                    ),
                });
            }
        };
        let Ok(tenant) = Tenant::parse(row.name.as_str(), &object.data["spec"]) else {
            return Err(TenantError::NotReady {
                reason: format!(
                    "the Tenant {} breaks a rule of its definition, so nothing of it is carried \
                     out; ask an administrator to correct it (its condition Invalid names the \
                     rule)",
                    row.name
                ),
            });
        };
        Ok(LiveTenant {
            tenant,
            generation: object.metadata.generation,
            is_terminating: object.metadata.deletion_timestamp.is_some(),
        })
    }
}
