//! Tenants and the names of their namespaces in memory, as the watches of the cluster pass them.
//!
//! | file | responsibility |
//! |---|---|
//! | `accounts` | whether Tenants name ServiceAccounts of a namespace |
//! | `object` | what is kept of an object |
//! | `contents` | the objects with their indexes, without a lock |
//! | `reflector` | events of watches, as changes of the contents |
//!
//! A Tenant may have a megabyte, so only its parsed form is kept, whose parts are limited.

mod accounts;
mod contents;
mod object;
mod reflector;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Instant,
};

pub use accounts::AccountsError;
pub use object::CachedTenant;
pub use reflector::{NamespaceReflector, TenantReflector};

use super::{ApiGroup, TenantName};
use crate::identity::RbacUser;
use contents::Contents;

/// Tenants and the names of their namespaces, as of a moment ago. Clones share everything.
///
/// It never decides a right, because it may lag: rights follow from the object that the API server
/// returns and from the row of the database.
#[derive(Clone, Debug, Default)]
pub struct TenantCache(Arc<RwLock<Contents>>);

impl TenantCache {
    /// Whether all watches have listed their objects once. Before that, objects may be missing.
    pub fn is_synced(&self) -> bool {
        self.read().is_synced()
    }

    /// Time since which a watch has been interrupted, so that later changes are not known. A watch
    /// whose connection hangs is interrupted once that is noticed.
    pub fn interrupted_since(&self) -> Option<Instant> {
        self.read().interrupted_since()
    }

    /// The Tenant of this name. Of two API groups the older object counts; if that breaks rules of
    /// the definition, there is none.
    pub fn tenant(&self, name: &TenantName) -> Option<Arc<CachedTenant>> {
        self.read().tenant(name)
    }

    /// Whether there is an object of this name, also one that breaks rules of the definition.
    pub fn has_object(&self, name: &TenantName) -> bool {
        self.read().has_object(name)
    }

    /// Whether the only object of this name, in all groups, is the one of this group and uid. False
    /// also as long as a watch has not listed its objects.
    pub fn is_only_object(&self, name: &TenantName, group: ApiGroup, uid: &str) -> bool {
        self.read().is_only_object(name, group, uid)
    }

    /// The tenant of a namespace or home, by the label `tenant-broker.io/tenant`. Whoever creates a
    /// namespace at the API server sets the label, so the namespace may be no tenant's.
    pub fn tenant_of_namespace(&self, namespace: &str) -> Option<TenantName> {
        self.read().tenant_of_namespace(namespace)
    }

    /// A number that grows with each change of what a Tenant says.
    pub fn revision(&self) -> u64 {
        self.read().revision()
    }

    /// Whether a namespace has the label of this tenant; `None` if it has that of none.
    pub fn is_namespace_of(&self, namespace: &str, tenant: &TenantName) -> Option<bool> {
        self.read().is_namespace_of(namespace, tenant)
    }

    /// Forgets the ServiceAccounts of Tenants that are gone, unless they are among these tenants,
    /// whose rows are open: until the controller closes a row, the bindings of the Tenant exist.
    pub fn release_accounts(&self, open: &BTreeSet<TenantName>) {
        self.write().release_accounts(open);
    }

    /// All Tenants, by name.
    pub fn all(&self) -> Vec<Arc<CachedTenant>> {
        self.read().all()
    }

    /// The Tenants whose owners or additional role bindings name a person, by name.
    pub fn naming(&self, person: &RbacUser) -> Vec<Arc<CachedTenant>> {
        self.read().naming(person)
    }

    /// No code panics while it has the lock.
    fn read(&self) -> RwLockReadGuard<'_, Contents> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
