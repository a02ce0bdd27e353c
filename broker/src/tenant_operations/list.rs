//! Tenants and their namespaces, as a caller sees them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tenant_shared::{TenantInfo, TenantNamespace, TenantNamespaceList, TenantRole};

use super::{TenantOperations, error::TenantError, viewer::Viewer};
use crate::{
    base::clock::timestamp,
    identity::Caller,
    tenant::{
        CachedTenant, ClusterRoleName, ListGrant, NamespaceRow, NamespaceStatus, Rights,
        TenantName, TenantRow, TenantStatus,
    },
};

/// The tenants in which a caller has rights, by name.
#[derive(Clone, Debug, Default)]
pub struct CallerTenants {
    pub names: Vec<TenantName>,
    /// Those of them that let the caller list cluster-scoped resources.
    pub list_grants: Vec<ListGrant>,
    /// The ClusterRoles that each of them gives the caller in its namespaces.
    pub roles: BTreeMap<TenantName, Arc<BTreeSet<ClusterRoleName>>>,
    /// The revision of the Tenants ([`TenantOperations::revision`]), or an earlier one.
    pub revision: u64,
}

impl TenantOperations {
    /// The tenants that name the caller or that the caller is a member of, by name; all tenants for
    /// an administrator.
    ///
    /// # Errors
    /// The Tenants were not read yet, or the database failed.
    pub async fn list(&self, caller: &Caller) -> Result<Vec<TenantInfo>, TenantError> {
        self.require_synced()?;
        let viewer = self.viewer(caller).await?;
        let cached = if viewer.is_administrator {
            self.cache.all()
        } else {
            self.cache.naming(&viewer.person)
        };
        let mut infos: BTreeMap<TenantName, TenantInfo> = BTreeMap::new();
        for cached in cached {
            let name = &cached.tenant.name;
            if viewer.sees(name, Some(&*cached), &self.settings) {
                infos.insert(name.clone(), self.info(&viewer, &cached));
            }
        }
        // Tenants that name the caller no more, and those without a valid object.
        let others: Vec<&TenantName> =
            viewer.memberships.keys().filter(|name| !infos.contains_key(*name)).collect();
        for name in others {
            let info = match self.cache.tenant(name) {
                Some(cached) => Some(self.info(&viewer, &cached)),
                None => self.info_of_row(&viewer, name).await?,
            };
            infos.extend(info.map(|info| (name.clone(), info)));
        }
        Ok(infos.into_values().collect())
    }

    /// One tenant.
    ///
    /// # Errors
    /// [`TenantError::NotFound`], also if the caller may not see it; or as [`Self::list`].
    pub async fn show(
        &self,
        caller: &Caller,
        name: &TenantName,
    ) -> Result<TenantInfo, TenantError> {
        match self.view(caller, name).await? {
            (viewer, Some(cached)) => Ok(self.info(&viewer, &cached)),
            (viewer, None) => self.info_of_row(&viewer, name).await?.ok_or(TenantError::NotFound),
        }
    }

    /// The namespaces of a tenant that exist or are claimed, by name.
    ///
    /// # Errors
    /// As [`Self::show`].
    pub async fn namespaces(
        &self,
        caller: &Caller,
        name: &TenantName,
    ) -> Result<TenantNamespaceList, TenantError> {
        let (_, cached) = self.view(caller, name).await?;
        let rows = match (self.tenants.by_name(name).await?, &cached) {
            (Some(row), _) => self.tenants.namespaces(row.id).await?,
            // Its object was created a moment ago.
            (None, Some(_)) => Vec::new(),
            (None, None) => return Err(TenantError::NotFound),
        };
        let known = rows.into_iter().filter(|row| row.status != NamespaceStatus::Gone);
        Ok(TenantNamespaceList {
            items: known.map(to_api).collect(),
            quota: cached.and_then(|cached| cached.tenant.namespace_options.quota),
        })
    }

    /// The tenants in which the caller has rights now.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub async fn tenants_of(&self, caller: &Caller) -> Result<CallerTenants, TenantError> {
        let revision = self.revision();
        let mut tenants = CallerTenants { revision, ..CallerTenants::default() };
        for (cached, rights) in self.tenants_with_rights(caller).await? {
            tenants.list_grants.extend(ListGrant::of(&cached.tenant, &rights));
            let name = cached.tenant.name.clone();
            let roles: BTreeSet<ClusterRoleName> = rights.roles.into_keys().collect();
            tenants.roles.insert(name.clone(), Arc::new(roles));
            tenants.names.push(name);
        }
        Ok(tenants)
    }

    /// The names of the tenants that the caller owns, in order.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub async fn owned_by(&self, caller: &Caller) -> Result<Vec<TenantName>, TenantError> {
        let tenants = self.tenants_with_rights(caller).await?;
        let owned = tenants.into_iter().filter(|(_, rights)| rights.is_owner);
        Ok(owned.map(|(cached, _)| cached.tenant.name.clone()).collect())
    }

    /// Whether people may get rights in a tenant: it is not suspended, and its object is not gone.
    ///
    /// # Errors
    /// The database failed.
    pub async fn is_active(&self, name: &TenantName) -> Result<bool, TenantError> {
        let row = self.tenants.by_name(name).await?;
        Ok(row.is_some_and(|row| row.status == TenantStatus::Active))
    }

    /// A tenant with a valid object.
    fn info(&self, viewer: &Viewer, cached: &CachedTenant) -> TenantInfo {
        let tenant = &cached.tenant;
        let rights = viewer.rights_in(tenant, &self.settings);
        let sees_conditions = rights.is_owner || viewer.is_administrator;
        TenantInfo {
            name: tenant.name.to_string(),
            api_group: cached.group.name().to_owned(),
            state: cached.state.clone(),
            is_owner: rights.is_owner,
            roles: roles(&rights),
            namespace_count: cached.size,
            namespace_quota: tenant.namespace_options.quota,
            workspace: viewer.memberships.get(&tenant.name).copied(),
            conditions: if sees_conditions { cached.conditions.clone() } else { Vec::new() },
        }
    }

    /// A tenant that has a row and no valid object, so that nobody has rights in it.
    async fn info_of_row(
        &self,
        viewer: &Viewer,
        name: &TenantName,
    ) -> sqlx::Result<Option<TenantInfo>> {
        let Some(row) = self.tenants.by_name(name).await? else { return Ok(None) };
        let namespaces = self.tenants.namespaces(row.id).await?;
        let count = namespaces.iter().filter(|namespace| namespace.status.counts()).count();
        Ok(Some(TenantInfo {
            name: name.to_string(),
            api_group: row.group.name().to_owned(),
            state: state_of(&row).to_owned(),
            is_owner: false,
            roles: Vec::new(),
            namespace_count: u32::try_from(count).unwrap_or(u32::MAX),
            namespace_quota: None,
            workspace: viewer.memberships.get(name).copied(),
            conditions: Vec::new(),
        }))
    }
}

/// The state of a tenant without a valid object, in the words of the status of objects.
fn state_of(row: &TenantRow) -> &'static str {
    match row.status {
        TenantStatus::Active | TenantStatus::Resuming => "Degraded",
        TenantStatus::Suspending | TenantStatus::Suspended => "Suspended",
        TenantStatus::Closed => "Terminating",
    }
}

/// The ClusterRoles of a person, with the entries that give them.
pub(super) fn roles(rights: &Rights) -> Vec<TenantRole> {
    let roles = rights.roles.iter().map(|(role, reasons)| TenantRole {
        cluster_role: role.as_str().to_owned(),
        given_by: reasons.iter().map(ToString::to_string).collect(),
    });
    roles.collect()
}

fn to_api(row: NamespaceRow) -> TenantNamespace {
    TenantNamespace {
        name: row.name,
        status: row.status.as_str().to_owned(),
        made_by: row.made_by,
        created_at: timestamp(row.created_at).into(),
    }
}
