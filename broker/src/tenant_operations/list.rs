//! Tenants and their namespaces, as a caller sees them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tenant_shared::{TenantInfo, TenantNamespace, TenantNamespaceList, TenantRole};

use super::{
    TenantOperations, authorize::authorize_on, error::TenantError, tenant_reader::TenantView,
};
use crate::{
    access::{Permit, ReadTenant},
    base::clock::timestamp,
    identity::Caller,
    tenant::{
        CachedTenant, ClusterRoleName, ListGrant, NamespaceRow, Rights, TenantName, TenantStatus,
    },
};

/// The tenants in which a caller has rights, by name.
#[derive(Clone, Debug, Default)]
pub struct CallerTenants {
    pub names: Vec<TenantName>,
    /// Grants of lists of cluster-scoped resources.
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
        let reader = self.tenant_reader(caller).await?;
        let named = if reader.is_administrator {
            self.cache.all()
        } else {
            self.cache.naming(&reader.person)
        };
        let mut views: BTreeMap<TenantName, TenantView> = BTreeMap::new();
        for cached in named {
            let name = cached.tenant.name.clone();
            views.insert(name.clone(), reader.view(&name, Some(cached), &self.settings));
        }
        // Tenants that name the caller no more, and those without a valid object.
        for name in reader.memberships.keys() {
            let view = || reader.view(name, self.cache.tenant(name), &self.settings);
            views.entry(name.clone()).or_insert_with(view);
        }
        let not_active = self.tenants.not_active().await?;
        let mut infos = Vec::new();
        for view in views.into_values() {
            if let Ok(permit) = authorize_on(caller, view) {
                infos.extend(self.info(&permit, &not_active).await?);
            }
        }
        Ok(infos)
    }

    /// One tenant.
    ///
    /// # Errors
    /// [`TenantError::NotFound`] for a tenant without an object and a row; or the database failed.
    pub async fn show(
        &self,
        permit: &Permit<ReadTenant, TenantView>,
    ) -> Result<TenantInfo, TenantError> {
        let not_active = self.tenants.not_active().await?;
        self.info(permit, &not_active).await?.ok_or(TenantError::NotFound)
    }

    /// The namespaces of a tenant that exist or are claimed, by name.
    ///
    /// # Errors
    /// See [`Self::show`].
    pub async fn namespaces(
        &self,
        permit: &Permit<ReadTenant, TenantView>,
    ) -> Result<TenantNamespaceList, TenantError> {
        let TenantView { name, cached, .. } = permit.resource();
        let rows = match (self.tenants.by_name(name).await?, cached) {
            (Some(row), _) => self.tenants.namespaces(row.id).await?,
            // Its object was created a moment ago.
            (None, Some(_)) => Vec::new(),
            (None, None) => return Err(TenantError::NotFound),
        };
        let quota = cached.as_ref().and_then(|cached| cached.tenant.namespace_options.quota);
        Ok(TenantNamespaceList { items: rows.into_iter().map(to_api).collect(), quota })
    }

    /// The tenants in which the caller has rights now.
    ///
    /// # Errors
    /// See [`Self::list`].
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
    /// See [`Self::list`].
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

    /// The API form of a tenant; `None` if it has neither a valid object nor a row.
    async fn info(
        &self,
        permit: &Permit<ReadTenant, TenantView>,
        not_active: &BTreeMap<TenantName, (TenantStatus, i64)>,
    ) -> sqlx::Result<Option<TenantInfo>> {
        let view = permit.resource();
        if let Some(cached) = &view.cached {
            let status = not_active.get(&view.name).map_or(TenantStatus::Active, |(it, _)| *it);
            return Ok(Some(info_of_object(view, cached, status)));
        }
        let Some(row) = self.tenants.by_name(&view.name).await? else { return Ok(None) };
        let namespaces = self.tenants.namespaces(row.id).await?;
        let count = namespaces.iter().filter(|namespace| namespace.status.counts()).count();
        Ok(Some(TenantInfo {
            name: view.name.to_string(),
            api_group: row.group.name().to_owned(),
            state: state_of(row.status).to_owned(),
            is_owner: false,
            roles: Vec::new(),
            namespace_count: u32::try_from(count).unwrap_or(u32::MAX),
            namespace_quota: None,
            workspace: view.membership,
            conditions: Vec::new(),
        }))
    }
}

/// A tenant with a valid object, and the status of its row.
fn info_of_object(view: &TenantView, cached: &CachedTenant, status: TenantStatus) -> TenantInfo {
    let tenant = &cached.tenant;
    let sees_conditions = view.rights.is_owner || view.is_administrator;
    TenantInfo {
        name: tenant.name.to_string(),
        api_group: cached.group.name().to_owned(),
        state: state_of_object(status, &cached.state).to_owned(),
        is_owner: view.rights.is_owner,
        roles: roles(&view.rights),
        namespace_count: cached.size,
        namespace_quota: tenant.namespace_options.quota,
        workspace: view.membership,
        conditions: if sees_conditions { cached.conditions.clone() } else { Vec::new() },
    }
}

/// The state of a tenant from its row and the status of its object. The object says `Suspended` from the
/// decision on, and its status is written after the row, so the row says what is complete.
fn state_of_object(status: TenantStatus, state: &str) -> &str {
    match (status, state) {
        (TenantStatus::Active, "Suspended") => state_of(TenantStatus::Resuming),
        (TenantStatus::Active, _) | (TenantStatus::Suspended, "Terminating") => state,
        (status, _) => state_of(status),
    }
}

/// The state of a tenant without a valid object.
fn state_of(status: TenantStatus) -> &'static str {
    match status {
        TenantStatus::Active => "Degraded",
        TenantStatus::Resuming => "Resuming",
        TenantStatus::Suspending => "Suspending",
        TenantStatus::Suspended => "Suspended",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_that_of_the_row_until_the_status_of_the_object_follows() {
        use TenantStatus::{Active, Resuming, Suspended, Suspending};
        for (status, of_object, expected) in [
            (Active, "Active", "Active"),
            (Active, "Degraded", "Degraded"),
            (Active, "", ""),
            (Active, "Terminating", "Terminating"),
            (Suspending, "Active", "Suspending"),
            (Suspending, "Suspended", "Suspending"),
            (Suspended, "Active", "Suspended"),
            (Suspended, "Suspended", "Suspended"),
            (Suspended, "Terminating", "Terminating"),
            (Resuming, "Suspended", "Resuming"),
            (Resuming, "Active", "Resuming"),
            (Active, "Suspended", "Resuming"),
        ] {
            assert_eq!(state_of_object(status, of_object), expected, "{status:?} {of_object}");
        }
    }
}
