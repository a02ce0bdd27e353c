//! Events of watches, as changes of the cache. The objects of a list replace the earlier ones once
//! the list is complete, so that those that vanished meanwhile leave the cache.

use std::{collections::BTreeMap, time::Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;

use super::{TenantCache, contents::CacheSource, object::TenantObject};
use crate::{
    cluster::WatchEvent,
    tenant::{ApiGroup, TenantName},
};

/// Passes the events of the watch of Tenants in one API group to the cache.
#[derive(Debug)]
pub struct TenantReflector {
    cache: TenantCache,
    group: ApiGroup,
    /// The objects of a list that is not complete.
    list: Option<Vec<TenantObject>>,
}

impl TenantReflector {
    /// A reflector of this group.
    pub fn new(cache: TenantCache, group: ApiGroup) -> Self {
        Self { cache, group, list: None }
    }

    /// Takes an event over.
    pub fn apply_event(&mut self, event: &WatchEvent<DynamicObject>) {
        match event {
            WatchEvent::Init => self.list = Some(Vec::new()),
            WatchEvent::Apply(object) => {
                let Some(object) = TenantObject::parse(self.group, object) else { return };
                match &mut self.list {
                    Some(list) => list.push(object),
                    None => self.cache.write().put(object),
                }
            }
            WatchEvent::Delete(object) => {
                let name = object.metadata.name.as_deref().and_then(|name| name.parse().ok());
                if let Some(name) = name {
                    self.cache.write().remove(self.group, &name);
                }
            }
            WatchEvent::InitDone => {
                let list = self.list.take().unwrap_or_default();
                self.cache.write().replace_group(self.group, list);
            }
        }
    }

    /// The watch ended, and has to list all objects again.
    pub fn interrupted(&mut self) {
        self.cache.write().interrupt(CacheSource::Tenants(self.group), Instant::now());
    }

    /// The API server does not serve the group to the broker, so it has no objects.
    pub fn not_served(&mut self) {
        self.list = None;
        self.cache.write().replace_group(self.group, Vec::new());
    }
}

/// Passes the events of the watch of namespaces that carry the label of a tenant to the cache.
#[derive(Debug)]
pub struct NamespaceReflector {
    cache: TenantCache,
    /// The namespaces of a list that is not complete.
    list: Option<BTreeMap<String, TenantName>>,
}

impl NamespaceReflector {
    /// A reflector of all namespaces.
    pub fn new(cache: TenantCache) -> Self {
        Self { cache, list: None }
    }

    /// The watch ended, and has to list all objects again.
    pub fn interrupted(&mut self) {
        self.cache.write().interrupt(CacheSource::Namespaces, Instant::now());
    }

    /// Takes an event over.
    pub fn apply_event(&mut self, event: &WatchEvent<ObjectMeta>) {
        match event {
            WatchEvent::Init => self.list = Some(BTreeMap::new()),
            WatchEvent::Apply(object) => {
                let (name, tenant) = (name_of(object), TenantName::of_object(object));
                match &mut self.list {
                    Some(list) => list.extend(tenant.map(|tenant| (name, tenant))),
                    None => self.cache.write().put_namespace(name, tenant),
                }
            }
            WatchEvent::Delete(object) => self.cache.write().put_namespace(name_of(object), None),
            WatchEvent::InitDone => {
                let list = self.list.take().unwrap_or_default();
                self.cache.write().replace_namespaces(list);
            }
        }
    }
}

fn name_of(object: &ObjectMeta) -> String {
    object.name.clone().unwrap_or_default()
}
