//! Callers who read tenants, and a tenant as a caller sees it. A tenant is visible to everybody
//! whom the Tenant names, to its members and to administrators. A machine sees the tenant of its only
//! workspace.

use std::{collections::BTreeMap, sync::Arc};

use uuid::Uuid;

use super::{TenantOperations, authorize::authorize_on, error::TenantError};
use crate::{
    access::{self, Grants, Permit, ReadEverything, ReadTenant, Resource, UseWorkspace},
    identity::{self, Caller, RbacUser},
    tenant::{CachedTenant, Rights, Tenant, TenantName, TenantSettings, rights_of},
    workspace::WorkspaceRow,
};

/// A caller who reads tenants.
#[derive(Debug)]
pub(super) struct TenantReader {
    user: Uuid,
    /// The caller's Kubernetes user name and groups.
    pub(super) person: RbacUser,
    /// The identifiers of the memberships that the caller did not leave; of a machine its only one.
    pub(super) memberships: BTreeMap<TenantName, Uuid>,
    pub(super) is_administrator: bool,
    is_machine: bool,
}

/// A tenant as a caller sees it: the copy of the Tenant, with the caller's rights and membership.
#[derive(Clone, Debug)]
pub struct TenantView {
    pub(super) name: TenantName,
    /// `None` if the Tenant is not valid or was deleted.
    pub(super) cached: Option<Arc<CachedTenant>>,
    /// The rights of the caller according to the copy.
    pub(super) rights: Rights,
    /// The membership of the caller.
    pub(super) membership: Option<Uuid>,
    pub(super) user: Uuid,
    pub(super) is_administrator: bool,
}

impl Resource for TenantView {
    type Id = TenantName;

    fn id(&self) -> TenantName {
        self.name.clone()
    }

    fn workspace(&self) -> Option<Uuid> {
        self.membership
    }

    fn grants(&self) -> Grants {
        Grants::of_person(self.user, self.rights.is_owner, self.is_member())
    }
}

impl TenantView {
    /// Whether the Tenant names the caller, or they are a member that it names no more.
    pub(super) fn is_member(&self) -> bool {
        self.membership.is_some() || self.rights.is_member()
    }
}

impl TenantReader {
    /// The rights of the caller in a tenant. A machine has those of its user in one tenant, and
    /// makes no namespaces.
    pub(super) fn rights_in(&self, tenant: &Tenant, settings: &TenantSettings) -> Rights {
        if self.is_machine && !self.memberships.contains_key(&tenant.name) {
            return Rights::default();
        }
        let rights = rights_of(tenant, &self.person, settings);
        Rights { is_owner: rights.is_owner && !self.is_machine, ..rights }
    }

    /// The tenant of this name, with its copy if there is one. Whether the caller may learn about it
    /// is decided by [`access::authorize`].
    pub(super) fn view(
        &self,
        name: &TenantName,
        cached: Option<Arc<CachedTenant>>,
        settings: &TenantSettings,
    ) -> TenantView {
        let rights = cached.as_deref().map(|cached| self.rights_in(&cached.tenant, settings));
        TenantView {
            name: name.clone(),
            rights: rights.unwrap_or_default(),
            cached,
            membership: self.memberships.get(name).copied(),
            user: self.user,
            is_administrator: self.is_administrator,
        }
    }
}

impl TenantOperations {
    /// Reads who the caller is.
    ///
    /// # Errors
    /// The database failed.
    pub(super) async fn tenant_reader(&self, caller: &Caller) -> sqlx::Result<TenantReader> {
        let usable = self.workspaces.usable_by(caller).await?;
        let membership = |permit: &Permit<UseWorkspace, WorkspaceRow>| {
            let row = permit.resource();
            let tenant = row.tenant_name()?.parse::<TenantName>().ok()?;
            Some((tenant, row.id()))
        };
        let memberships: BTreeMap<TenantName, Uuid> =
            usable.iter().filter_map(membership).collect();
        Ok(TenantReader {
            user: caller.user_id(),
            person: self.person(caller).await?,
            memberships,
            is_administrator: access::authorize_all::<ReadEverything>(caller).is_ok(),
            is_machine: caller.only_workspace().is_some(),
        })
    }

    /// The caller's Kubernetes user name and groups; none, if they may not sign in any more.
    ///
    /// # Errors
    /// The database failed.
    pub(super) async fn person(&self, caller: &Caller) -> sqlx::Result<RbacUser> {
        let user = caller.user_id();
        let mut persons = identity::rbac_users(&self.db, &self.rbac_user_rules, &[user]).await?;
        Ok(persons.remove(&user).unwrap_or_default())
    }

    /// Authorizes a caller to see a tenant.
    ///
    /// # Errors
    /// [`TenantError::NotFound`] if the caller may not see the tenant; the Tenants were not read
    /// yet; or the database failed.
    pub async fn authorize_read(
        &self,
        caller: &Caller,
        name: &TenantName,
    ) -> Result<Permit<ReadTenant, TenantView>, TenantError> {
        self.require_synced()?;
        let reader = self.tenant_reader(caller).await?;
        let view = reader.view(name, self.cache.tenant(name), &self.settings);
        authorize_on(caller, view)
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
        let reader = self.tenant_reader(caller).await?;
        let named = self.cache.naming(&reader.person).into_iter().map(|cached| {
            let rights = reader.rights_in(&cached.tenant, &self.settings);
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
                reason: "the broker has not read the Tenants of the cluster yet; try again"
                    .to_owned(),
            })
        }
    }
}
