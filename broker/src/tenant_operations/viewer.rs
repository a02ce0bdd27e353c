//! Who may see a tenant: everybody whom the Tenant names, its members, and administrators. A machine
//! sees the tenant of its only workspace.

use std::{collections::BTreeMap, sync::Arc};

use uuid::Uuid;

use super::{TenantOperations, error::TenantError};
use crate::{
    access::{self, Permit, ReadEverything, Resource as _, UseWorkspace},
    identity::{self, Caller, Person},
    tenant::{CachedTenant, Rights, Tenant, TenantName, TenantSettings, rights_of},
    workspace::WorkspaceRow,
};

/// A caller who looks at tenants.
#[derive(Debug)]
pub(super) struct Viewer {
    /// Who the caller is to Kubernetes.
    pub(super) person: Person,
    /// The identifiers of the memberships that the caller did not leave; of a machine its only one.
    pub(super) memberships: BTreeMap<TenantName, Uuid>,
    pub(super) is_administrator: bool,
    is_machine: bool,
}

impl Viewer {
    /// The rights of the caller in a tenant. A machine has those of its user in one tenant, and
    /// makes no namespaces.
    pub(super) fn rights_in(&self, tenant: &Tenant, settings: &TenantSettings) -> Rights {
        if self.is_machine && !self.memberships.contains_key(&tenant.name) {
            return Rights::default();
        }
        let rights = rights_of(tenant, &self.person, settings);
        Rights { is_owner: rights.is_owner && !self.is_machine, ..rights }
    }

    /// Whether the caller may learn about the tenant of this name.
    pub(super) fn sees(
        &self,
        name: &TenantName,
        cached: Option<&CachedTenant>,
        settings: &TenantSettings,
    ) -> bool {
        self.is_administrator
            || self.memberships.contains_key(name)
            || cached.is_some_and(|it| self.rights_in(&it.tenant, settings).is_member())
    }
}

impl TenantOperations {
    /// Reads who the caller is.
    ///
    /// # Errors
    /// The database failed.
    pub(super) async fn viewer(&self, caller: &Caller) -> sqlx::Result<Viewer> {
        let usable = self.workspaces.usable_by(caller).await?;
        let membership = |permit: &Permit<UseWorkspace, WorkspaceRow>| {
            let row = permit.resource();
            let tenant = row.tenant_name()?.parse::<TenantName>().ok()?;
            Some((tenant, row.id()))
        };
        let memberships: BTreeMap<TenantName, Uuid> =
            usable.iter().filter_map(membership).collect();
        Ok(Viewer {
            person: self.person(caller).await?,
            memberships,
            is_administrator: access::authorize_all::<ReadEverything>(caller).is_ok(),
            is_machine: caller.only_workspace().is_some(),
        })
    }

    /// Who the caller is to Kubernetes. Nobody, if they may not sign in any more.
    ///
    /// # Errors
    /// The database failed.
    pub(super) async fn person(&self, caller: &Caller) -> sqlx::Result<Person> {
        let user = caller.user_id();
        let mut persons = identity::persons(&self.db, &self.person_rules, &[user]).await?;
        Ok(persons.remove(&user).unwrap_or_default())
    }

    /// The caller, and the copy of a tenant that they may see; `None` if there is no copy, because
    /// the Tenant is not valid or was deleted.
    ///
    /// # Errors
    /// [`TenantError::NotFound`], also if the caller may not see the tenant; the Tenants were not
    /// read yet; or the database failed.
    pub(super) async fn view(
        &self,
        caller: &Caller,
        name: &TenantName,
    ) -> Result<(Viewer, Option<Arc<CachedTenant>>), TenantError> {
        self.require_synced()?;
        let viewer = self.viewer(caller).await?;
        let cached = self.cache.tenant(name);
        if viewer.sees(name, cached.as_deref(), &self.settings) {
            Ok((viewer, cached))
        } else {
            Err(TenantError::NotFound)
        }
    }

    /// The copies of the tenants that give the caller rights, with these rights, by name.
    ///
    /// # Errors
    /// The Tenants were not read yet, or the database failed.
    pub(super) async fn tenants_with_rights(
        &self,
        caller: &Caller,
    ) -> Result<Vec<(Arc<CachedTenant>, Rights)>, TenantError> {
        self.require_synced()?;
        let viewer = self.viewer(caller).await?;
        let named = self.cache.naming(&viewer.person).into_iter().map(|cached| {
            let rights = viewer.rights_in(&cached.tenant, &self.settings);
            (cached, rights)
        });
        Ok(named.filter(|(_, rights)| rights.is_member()).collect())
    }

    /// Checks that the copy has all Tenants, because an incomplete one would look like a loss of
    /// rights.
    ///
    /// # Errors
    /// [`TenantError::NotReady`].
    pub(super) fn require_synced(&self) -> Result<(), TenantError> {
        if self.cache.is_synced() {
            Ok(())
        } else {
            Err(TenantError::NotReady {
                reason: "the broker has not read the Tenants of the cluster yet; try again",
            })
        }
    }
}
