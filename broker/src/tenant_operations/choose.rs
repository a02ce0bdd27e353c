//! Choice of the tenant for a new namespace, and the check of the namespace's name. The creation and the
//! access review of a creation call the same functions.

use super::{TenantOperations, error::TenantError};
use crate::{
    identity::Caller,
    tenant::{
        AccountsError, NamespaceNameError, Tenant, TenantName, check_namespace_name,
        longest_prefix, prefixes_of,
    },
};

impl TenantOperations {
    /// The tenant that a new namespace is for: the one that the label names; else the one of the
    /// caller's own whose name is the longest prefix of the namespace's; else their only one. Whether
    /// the caller may make the namespace is decided by [`Self::create_namespace`].
    ///
    /// # Errors
    /// [`TenantError::NotFound`] for a label that cannot name a tenant; [`TenantError::NoTenant`];
    /// [`TenantError::AmbiguousTenant`]; the Tenants were not read yet; or the database failed.
    pub async fn choose_tenant(
        &self,
        caller: &Caller,
        label: Option<&str>,
        namespace: &str,
    ) -> Result<TenantName, TenantError> {
        match label {
            Some(label) => label.parse().map_err(|_| TenantError::NotFound),
            None => choose(self.owned_by(caller).await?, namespace),
        }
    }

    /// The tenant of the caller that [`Self::create_namespace`] would create a namespace of this name
    /// for, if the request has no label of a tenant; `None` if the name is refused. Reads the cached
    /// Tenants, and changes and records nothing. Does not check whether the tenant is active, its quota,
    /// and which namespaces exist.
    ///
    /// # Errors
    /// The Tenants were not read yet, or cannot be watched; or the database failed.
    pub async fn tenant_of_new_namespace(
        &self,
        caller: &Caller,
        namespace: &str,
    ) -> Result<Option<TenantName>, TenantError> {
        let tenant = match self.choose_tenant(caller, None, namespace).await {
            Ok(tenant) => tenant,
            Err(TenantError::NoTenant | TenantError::AmbiguousTenant(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(cached) = self.cache.tenant(&tenant) else { return Ok(None) };
        match self.check_name(&cached.tenant, namespace).await {
            Ok(()) => Ok(Some(tenant)),
            Err(TenantError::InvalidName(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Checks the name of a namespace, also against the names of all open tenants, and the
    /// ServiceAccounts that other Tenants name.
    ///
    /// # Errors
    /// [`TenantError::InvalidName`]; the Tenants were not read yet, or cannot be watched; or the
    /// database failed.
    pub(super) async fn check_name(&self, tenant: &Tenant, name: &str) -> Result<(), TenantError> {
        check_namespace_name(tenant, name, &self.settings)?;
        for longer in prefixes_of(name) {
            if longer == tenant.name {
                break;
            }
            if self.tenants.by_name(&longer).await?.is_some() {
                return Err(NamespaceNameError::OtherTenant(longer).into());
            }
        }
        self.cache.check_accounts(&tenant.name, name).map_err(|error| match error {
            AccountsError::NotSynced => TenantError::NotReady {
                reason: format!(
                    "the broker has not read all Tenants yet, so tenant {} gets no namespaces; try \
                     again",
                    tenant.name
                ),
            },
            AccountsError::NamedBy(_) => NamespaceNameError::OthersAccounts(name.to_owned()).into(),
        })
    }
}

fn choose(owned: Vec<TenantName>, namespace: &str) -> Result<TenantName, TenantError> {
    match (longest_prefix(&owned, namespace), owned.as_slice()) {
        (Some(name), _) | (None, [name]) => Ok(name.clone()),
        (None, []) => Err(TenantError::NoTenant),
        (None, _) => Err(TenantError::AmbiguousTenant(owned)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_or_the_only_tenant_is_chosen() {
        let two = &["solar", "solar-wind"][..];
        for (owned, namespace, expected) in [
            (two, "solar-x", Ok("solar")),
            (two, "solar-wind-x", Ok("solar-wind")),
            (two, "solar-wind", Ok("solar")),
            (two, "lunar-x", Err("you own several tenants (solar, solar-wind)")),
            (two, "solarium-x", Err("you own several tenants (solar, solar-wind)")),
            (&["solar"], "solar-x", Ok("solar")),
            // The name is refused then, with the rule.
            (&["solar"], "lunar-x", Ok("solar")),
            (&[], "solar-x", Err("you own no tenant")),
        ] {
            let owned: Vec<TenantName> = owned.iter().map(|name| name.parse().unwrap()).collect();
            match (choose(owned, namespace), expected) {
                (Ok(chosen), Ok(expected)) => assert_eq!(chosen.as_str(), expected, "{namespace}"),
                (Err(error), Err(text)) => {
                    assert!(error.to_string().starts_with(text), "{namespace}: {error}");
                }
                (chosen, _) => panic!("{namespace}: {chosen:?}"),
            }
        }
    }
}
