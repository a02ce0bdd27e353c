//! ServiceAccounts that Tenants name. The people of a tenant can start pods with the accounts of its
//! namespaces, so a namespace that becomes a tenant's gives them what other Tenants give its accounts.

use super::TenantCache;
use crate::tenant::TenantName;

/// Reason why a namespace may not become a tenant's. Other tenants than the caller's are not named in
/// the text, because its owners must not learn about them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountsError {
    /// This process may not know all Tenants.
    #[error("the broker has not read all Tenants yet; try again")]
    NotSynced,
    /// These Tenants name ServiceAccounts of the namespace.
    #[error("Tenants of others name ServiceAccounts of the namespace")]
    NamedBy(Vec<TenantName>),
}

impl TenantCache {
    /// Checks that no other Tenant names ServiceAccounts of a namespace that is to become this
    /// tenant's, or the group of all of them.
    ///
    /// # Errors
    /// One does, or the watches have not listed all Tenants.
    pub fn check_accounts(
        &self,
        tenant: &TenantName,
        namespace: &str,
    ) -> Result<(), AccountsError> {
        let contents = self.read();
        if !contents.is_synced() {
            return Err(AccountsError::NotSynced);
        }
        let others: Vec<TenantName> = contents
            .naming_accounts_of(namespace)
            .filter(|name| *name != tenant)
            .cloned()
            .collect();
        if others.is_empty() { Ok(()) } else { Err(AccountsError::NamedBy(others)) }
    }
}
