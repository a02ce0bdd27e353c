//! Becoming a member of a tenant that names the caller.

use futures_util::{StreamExt as _, stream};

use super::{TenantOperations, current_tenant::CurrentTenant, error::TenantError};
use crate::{
    access::{self, JoinTenant},
    base::error_chain,
    identity::Caller,
    tenant::{Tenant, TenantName},
    workspace::{Initialized, MembershipRequest, WorkspaceError},
};

/// Tenants that one person joins concurrently.
const MAX_CONCURRENT_JOINS: usize = 4;

impl TenantOperations {
    /// Makes the caller a member of a tenant, and waits a moment until the ServiceAccount of the
    /// membership has their rights. Idempotent.
    ///
    /// # Errors
    /// [`TenantError::NotFound`], also if the caller may not see the tenant; the Tenant does not name
    /// the caller; the tenant, the user or the membership is suspended; or the cluster or the
    /// database failed. It is no error if the rights come later.
    #[tracing::instrument(level = "debug", skip_all, fields(tenant = %name))]
    pub async fn join(
        &self,
        caller: &Caller,
        name: &TenantName,
    ) -> Result<Initialized, TenantError> {
        let current = self.current_tenant(caller, name).await?;
        let joined = Box::pin(self.admit(caller, &current)).await?;
        if joined.created {
            self.wait_until_bound(&current, caller.user_id()).await;
        }
        Ok(joined)
    }

    /// Makes the caller a member of every active tenant that names them. One that cannot be joined
    /// is left out. Returns whether the caller became a member of one.
    ///
    /// # Errors
    /// The Tenants were not read yet, or the database failed.
    pub async fn join_all(&self, caller: &Caller) -> Result<bool, TenantError> {
        if caller.only_workspace().is_some() {
            return Ok(false);
        }
        self.require_synced()?;
        let reader = self.tenant_reader(caller).await?;
        let mut names: Vec<TenantName> = Vec::new();
        for cached in self.cache.naming(&reader.person) {
            let name = &cached.tenant.name;
            let is_named = reader.rights_in(&cached.tenant, &self.settings).is_member();
            if is_named && !reader.memberships.contains_key(name) {
                names.push(name.clone());
            }
        }
        let requests: Vec<_> = names.iter().map(|name| self.join_or_skip(caller, name)).collect();
        let joined: Vec<bool> =
            stream::iter(requests).buffer_unordered(MAX_CONCURRENT_JOINS).collect().await;
        Ok(joined.contains(&true))
    }

    /// Returns whether the caller is a member of the tenant now.
    async fn join_or_skip(&self, caller: &Caller, name: &TenantName) -> bool {
        match Box::pin(self.join(caller, name)).await {
            Ok(_) => true,
            // Somebody decided that this person gets no rights there, or not yet.
            Err(
                TenantError::NotFound
                | TenantError::NotActive { .. }
                | TenantError::Workspace(
                    WorkspaceError::NotMember(_)
                    | WorkspaceError::Suspended
                    | WorkspaceError::TooEarly(_),
                ),
            ) => false,
            Err(error) => {
                tracing::warn!(
                    tenant = %name, user_id = %caller.user_id(), error = error_chain(&error),
                    "a person could not become a member of a tenant that names them"
                );
                false
            }
        }
    }

    /// Makes the caller a member, without waiting for rights.
    ///
    /// # Errors
    /// See [`Self::join`].
    pub(super) async fn admit(
        &self,
        caller: &Caller,
        current: &CurrentTenant,
    ) -> Result<Initialized, TenantError> {
        current.require_active()?;
        let request = MembershipRequest {
            tenant: current.row.clone(),
            user: caller.user_id(),
            tier: self.tier_of(&current.tenant),
        };
        let permit = access::authorize::<JoinTenant, _>(caller, request)?;
        let joined = match Box::pin(self.workspaces.join(&permit)).await {
            Ok(joined) => joined,
            Err(WorkspaceError::TenantNotActive(_)) => {
                return Err(TenantError::NotActive { tenant: current.row.name.clone() });
            }
            Err(error) => return Err(error.into()),
        };
        if joined.created {
            self.controller.reconcile_soon(&current.row.name);
        }
        Ok(joined)
    }

    /// The tier of new members: that of the Tenant, if it is configured.
    fn tier_of(&self, tenant: &Tenant) -> String {
        let configured = self.workspaces.tiers();
        let named = tenant.tier.as_deref().filter(|tier| configured.contains(tier));
        named.unwrap_or(&self.default_tier).to_owned()
    }
}
