//! The objects of the cache, and the indexes by which they are found.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use super::object::{CachedTenant, TenantObject, subjects};
use crate::{
    identity::RbacUser,
    tenant::{ApiGroup, Subject, Tenant, TenantName},
};

/// Names of Tenants by the name of a user, group or namespace.
type Index = BTreeMap<String, BTreeSet<TenantName>>;

/// A watch whose objects the cache has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CacheSource {
    Namespaces,
    Tenants(ApiGroup),
}

/// The data of the cache.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// All objects with the name of a tenant.
    objects: BTreeMap<TenantName, BTreeMap<ApiGroup, TenantObject>>,
    /// The object of each name that counts, if it keeps the rules of the definition.
    tenants: BTreeMap<TenantName, Arc<CachedTenant>>,
    /// The users whom `tenants` name.
    users: Index,
    /// The groups whom `tenants` name.
    groups: Index,
    /// The namespaces of the ServiceAccounts whom `objects` and `former_accounts` name.
    accounts: Index,
    /// The same of objects that are gone or no longer served, until the controller has withdrawn what
    /// they gave.
    former_accounts: BTreeMap<TenantName, BTreeSet<String>>,
    namespaces: BTreeMap<String, TenantName>,
    listed_groups: BTreeSet<ApiGroup>,
    has_listed_namespaces: bool,
    /// Time since which watches have been interrupted.
    interrupted: BTreeMap<CacheSource, Instant>,
    /// Number of changes of `tenants` so far, except for those of the status.
    revision: u64,
}

impl Contents {
    pub(super) fn is_synced(&self) -> bool {
        self.has_listed_namespaces
            && ApiGroup::ALL.iter().all(|group| self.listed_groups.contains(group))
    }

    /// Records that a watch is interrupted from this time on, unless it is already.
    pub(super) fn interrupt(&mut self, source: CacheSource, at: Instant) {
        self.interrupted.entry(source).or_insert(at);
    }

    /// Time since which a watch has been interrupted.
    pub(super) fn interrupted_since(&self) -> Option<Instant> {
        self.interrupted.values().min().copied()
    }

    pub(super) fn tenant(&self, name: &TenantName) -> Option<Arc<CachedTenant>> {
        self.tenants.get(name).cloned()
    }

    pub(super) fn has_object(&self, name: &TenantName) -> bool {
        self.objects.contains_key(name)
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn is_only_object(&self, name: &TenantName, group: ApiGroup, uid: &str) -> bool {
        let Some(of_groups) = self.objects.get(name) else { return false };
        let is_it = of_groups.get(&group).is_some_and(|object| object.uid == uid);
        is_it && of_groups.len() == 1 && self.is_synced()
    }

    pub(super) fn tenant_of_namespace(&self, namespace: &str) -> Option<TenantName> {
        self.namespaces.get(namespace).cloned()
    }

    pub(super) fn is_namespace_of(&self, namespace: &str, tenant: &TenantName) -> Option<bool> {
        self.namespaces.get(namespace).map(|known| known == tenant)
    }

    pub(super) fn all(&self) -> Vec<Arc<CachedTenant>> {
        self.tenants.values().cloned().collect()
    }

    pub(super) fn naming(&self, person: &RbacUser) -> Vec<Arc<CachedTenant>> {
        let users = person.user_name.iter().filter_map(|name| self.users.get(name));
        let groups = person.groups.iter().filter_map(|name| self.groups.get(name));
        let names: BTreeSet<&TenantName> = users.chain(groups).flatten().collect();
        names.into_iter().filter_map(|name| self.tenant(name)).collect()
    }

    /// The Tenants that name ServiceAccounts of a namespace, by name.
    pub(super) fn naming_accounts_of(&self, namespace: &str) -> impl Iterator<Item = &TenantName> {
        self.accounts.get(namespace).into_iter().flatten()
    }

    /// Adds an object, or replaces the earlier one.
    pub(super) fn put(&mut self, mut object: TenantObject) {
        let name = object.name.clone();
        let before = self.accounts_of(&name);
        let of_groups = self.objects.entry(name.clone()).or_default();
        // The bindings of its earlier form stay in force until the controller has carried it out.
        if object.is_carried_out() {
            self.former_accounts.remove(&name);
        } else if let Some(earlier) = of_groups.remove(&object.group) {
            object.accounts.extend(earlier.accounts);
        }
        of_groups.insert(object.group, object);
        self.index_accounts(&name, before);
        self.choose(&name);
    }

    /// Removes the object of this name in a group.
    pub(super) fn remove(&mut self, group: ApiGroup, name: &TenantName) {
        let before = self.accounts_of(name);
        let Some(of_groups) = self.objects.get_mut(name) else { return };
        let removed = of_groups.remove(&group).map(|object| object.accounts).unwrap_or_default();
        if !removed.is_empty() {
            self.former_accounts.entry(name.clone()).or_default().extend(removed);
        }
        if of_groups.is_empty() {
            self.objects.remove(name);
        }
        self.index_accounts(name, before);
        self.choose(name);
    }

    /// Replaces all objects of a group.
    pub(super) fn replace_group(&mut self, group: ApiGroup, objects: Vec<TenantObject>) {
        let listed: BTreeSet<TenantName> =
            objects.iter().map(|object| object.name.clone()).collect();
        let gone = self
            .objects
            .iter()
            .filter(|(name, of_groups)| of_groups.contains_key(&group) && !listed.contains(*name));
        let gone: Vec<TenantName> = gone.map(|(name, _)| name.clone()).collect();
        for name in &gone {
            self.remove(group, name);
        }
        for object in objects {
            self.put(object);
        }
        self.listed_groups.insert(group);
        self.interrupted.remove(&CacheSource::Tenants(group));
    }

    /// Records the tenant of a namespace; `None` for a namespace that is no tenant's or is gone.
    pub(super) fn put_namespace(&mut self, namespace: String, tenant: Option<TenantName>) {
        match tenant {
            Some(tenant) => self.namespaces.insert(namespace, tenant),
            None => self.namespaces.remove(&namespace),
        };
    }

    /// Replaces all namespaces.
    pub(super) fn replace_namespaces(&mut self, namespaces: BTreeMap<String, TenantName>) {
        self.namespaces = namespaces;
        self.has_listed_namespaces = true;
        self.interrupted.remove(&CacheSource::Namespaces);
    }

    /// Determines which object of a name counts, as the controller does: the one that was created
    /// first, of two with the same time that of the first group.
    fn choose(&mut self, name: &TenantName) {
        let of_groups = self.objects.get(name).into_iter().flat_map(BTreeMap::values);
        let oldest = of_groups.min_by_key(|object| object.created_at);
        let chosen = oldest.and_then(|object| object.tenant.clone());
        let previous = self.tenants.remove(name);
        if previous.as_ref().map(|it| &it.tenant) != chosen.as_ref().map(|it| &it.tenant) {
            self.revision += 1;
        }
        if let Some(previous) = previous {
            self.remove_from_index(&previous.tenant);
        }
        if let Some(chosen) = chosen {
            self.add_to_index(&chosen.tenant);
            self.tenants.insert(name.clone(), chosen);
        }
    }

    /// Forgets the accounts of objects that are gone, unless their tenants are among these.
    pub(super) fn release_accounts(&mut self, open: &BTreeSet<TenantName>) {
        let former = self.former_accounts.keys().filter(|name| !open.contains(*name));
        for name in former.cloned().collect::<Vec<_>>() {
            let before = self.accounts_of(&name);
            self.former_accounts.remove(&name);
            self.index_accounts(&name, before);
        }
    }

    /// Namespaces whose ServiceAccounts the objects of a name name, also those that are gone.
    fn accounts_of(&self, name: &TenantName) -> BTreeSet<String> {
        let of_groups = self.objects.get(name).into_iter().flat_map(BTreeMap::values);
        let former = self.former_accounts.get(name).into_iter().flatten();
        of_groups.flat_map(|object| &object.accounts).chain(former).cloned().collect()
    }

    /// Updates the index of accounts after a change of the objects of a name, which named `before`.
    fn index_accounts(&mut self, name: &TenantName, before: BTreeSet<String>) {
        for namespace in before {
            remove(&mut self.accounts, &namespace, name);
        }
        for namespace in self.accounts_of(name) {
            self.accounts.entry(namespace).or_default().insert(name.clone());
        }
    }

    fn add_to_index(&mut self, tenant: &Tenant) {
        for subject in subjects(tenant) {
            if let Some((index, key)) = self.index_of(subject) {
                index.entry(key.to_owned()).or_default().insert(tenant.name.clone());
            }
        }
    }

    fn remove_from_index(&mut self, tenant: &Tenant) {
        for subject in subjects(tenant) {
            if let Some((index, key)) = self.index_of(subject) {
                remove(index, key, &tenant.name);
            }
        }
    }

    /// The index with a person whom a subject may be, and the key there.
    fn index_of<'a>(&'a mut self, subject: &'a Subject) -> Option<(&'a mut Index, &'a str)> {
        match subject {
            Subject::User(name) => Some((&mut self.users, name)),
            Subject::Group(name) => Some((&mut self.groups, name)),
            // A program, which has a token of its own.
            Subject::ServiceAccount { .. } => None,
        }
    }

    /// Number of names in the indexes.
    #[cfg(test)]
    pub(super) fn indexed(&self) -> usize {
        self.users.len() + self.groups.len() + self.accounts.len()
    }
}

/// Removes the name of a Tenant from an index.
fn remove(index: &mut Index, key: &str, tenant: &TenantName) {
    let Some(names) = index.get_mut(key) else { return };
    names.remove(tenant);
    if names.is_empty() {
        index.remove(key);
    }
}
