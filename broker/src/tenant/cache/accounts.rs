//! ServiceAccounts that Tenants name. The people of a tenant can start pods with the accounts of its
//! namespaces, so a namespace that becomes a tenant's gives them what other Tenants give its accounts.

use std::time::Duration;

use super::TenantCache;
use crate::tenant::TenantName;

/// How long a watch may be interrupted before the copy of the Tenants is too old for a decision.
const MAX_INTERRUPTION: Duration = Duration::from_mins(1);

/// Reason why a namespace may not become a tenant's. Other tenants than the caller's are not named in
/// the text, because its owners must not learn about them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountsError {
    /// This process may not know all Tenants.
    #[error("the broker has not read all Tenants yet, or cannot watch them; try again")]
    NotSynced,
    /// These Tenants name ServiceAccounts of the namespace.
    #[error("Tenants of others name ServiceAccounts of the namespace")]
    NamedBy(Vec<TenantName>),
}

impl TenantCache {
    /// Whether this process knows the ServiceAccounts that Tenants name: all watches have listed their
    /// objects, and none has been interrupted for [`MAX_INTERRUPTION`].
    pub fn knows_accounts(&self) -> bool {
        let contents = self.read();
        let interrupted = contents.interrupted_since();
        contents.is_synced() && interrupted.is_none_or(|since| since.elapsed() < MAX_INTERRUPTION)
    }

    /// Checks that no other Tenant names ServiceAccounts of a namespace that is to become this
    /// tenant's, or the group of all of them.
    ///
    /// # Errors
    /// One does, also one that breaks rules of the definition, because its bindings stay in force; or
    /// the watches did not list all Tenants, or are interrupted.
    pub fn check_accounts(
        &self,
        tenant: &TenantName,
        namespace: &str,
    ) -> Result<(), AccountsError> {
        if !self.knows_accounts() {
            return Err(AccountsError::NotSynced);
        }
        let contents = self.read();
        let others: Vec<TenantName> = contents
            .naming_accounts_of(namespace)
            .filter(|name| *name != tenant)
            .cloned()
            .collect();
        if others.is_empty() { Ok(()) } else { Err(AccountsError::NamedBy(others)) }
    }
}
