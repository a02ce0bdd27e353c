//! The objects of one tenant as the cluster has them, read with a few lists however many namespaces
//! the tenant has.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{
    core::v1::{LimitRange, Namespace, ResourceQuota},
    rbac::v1::RoleBinding,
};
use kube::ResourceExt as _;
use tenant_shared::{HOME_LABEL, TENANT_LABEL, WORKSPACE_LABEL};

use crate::{
    cluster::{Cluster, ClusterError, Compared as _, Object},
    tenant::{TenantName, drop_unmanaged_metadata, home_name, role_binding_name},
};

/// Kind, namespace and name of an object; the namespace of a namespace is empty.
type Key = (&'static str, String, String);

/// RoleBindings that others gave the label of a tenant, before their list is given up.
pub(in crate::tenant_controller) const MAX_OTHERS: usize = 200;

/// All objects with the label of a tenant.
#[derive(Debug, Default)]
pub(in crate::tenant_controller) struct Snapshot {
    objects: BTreeMap<Key, Object>,
}

impl Snapshot {
    /// Reads the namespaces, ResourceQuotas, LimitRanges and RoleBindings of a tenant. RoleBindings
    /// under names of others are left out. If there are many, those of the broker are read by the
    /// names that it gives in a namespace, so that what a former owner has is found whatever else has
    /// the label.
    ///
    /// # Errors
    /// A request failed.
    pub(in crate::tenant_controller) async fn read(
        cluster: &Cluster,
        tenant: &TenantName,
        broker_bindings: impl Fn(&str) -> Vec<String>,
    ) -> Result<Self, ClusterError> {
        let label = tenant.as_str();
        let is_ours = |binding: &RoleBinding| is_binding_name(tenant, &binding.name_any());
        let (namespaces, quotas, limits, bindings) = tokio::try_join!(
            cluster.namespaces_with_label(TENANT_LABEL, label, drop_unmanaged_metadata),
            cluster.list_with_label::<ResourceQuota>(TENANT_LABEL, label),
            cluster.list_with_label::<LimitRange>(TENANT_LABEL, label),
            cluster.role_bindings_within(TENANT_LABEL, label, MAX_OTHERS, is_ours),
        )?;
        let namespaces = namespaces.into_iter().map(|it| Object::Namespace(Box::new(it)));
        let quotas = quotas.into_iter().map(|it| Object::ResourceQuota(Box::new(it)));
        let limits = limits.into_iter().map(|it| Object::LimitRange(Box::new(it)));
        let mut snapshot = Self::new(namespaces.chain(quotas).chain(limits));
        let bindings = if let Some(bindings) = bindings {
            bindings
        } else {
            tracing::warn!(
                tenant = %tenant,
                "many RoleBindings that the broker did not make have the label of a tenant; its own \
                 are read by name"
            );
            let ours = snapshot.namespaces().filter(|(name, _)| snapshot.belongs_to(tenant, name));
            let keys: Vec<(String, String)> = ours
                .flat_map(|(namespace, _)| {
                    broker_bindings(namespace).into_iter().map(|name| (namespace.to_owned(), name))
                })
                .collect();
            cluster.role_bindings_named(&keys).await?
        };
        snapshot.extend(bindings.into_iter().map(|it| Object::RoleBinding(Box::new(it))));
        Ok(snapshot)
    }

    /// Adds an object, or replaces the one with its kind and name.
    pub(in crate::tenant_controller) fn extend(
        &mut self,
        objects: impl IntoIterator<Item = Object>,
    ) {
        self.objects.extend(objects.into_iter().map(|object| (key(&object), object)));
    }

    /// Whether a namespace of this snapshot is the home of the tenant, or may be one of its
    /// namespaces. One with the name of the home and without its labels is neither, nor is that of a
    /// personal workspace.
    pub(in crate::tenant_controller) fn belongs_to(&self, tenant: &TenantName, name: &str) -> bool {
        let labels = self.namespace(name).and_then(|found| found.metadata.labels.as_ref());
        labels.is_some_and(|labels| {
            !labels.contains_key(WORKSPACE_LABEL)
                && (name != home_name(tenant) || labels.contains_key(HOME_LABEL))
        })
    }

    /// A snapshot of these objects.
    pub(in crate::tenant_controller) fn new(objects: impl IntoIterator<Item = Object>) -> Self {
        let mut snapshot = Self::default();
        snapshot.extend(objects);
        snapshot
    }

    /// Leaves out the objects of these namespaces. Returns the names of those that exist.
    pub(in crate::tenant_controller) fn leave_out(
        &mut self,
        namespaces: &BTreeSet<String>,
    ) -> Vec<String> {
        let existing = self.namespaces().map(|(name, _)| name.to_owned());
        let existing = existing.filter(|name| namespaces.contains(name)).collect();
        self.objects.retain(|_, object| !namespaces.contains(namespace_of(object)));
        existing
    }

    /// The live object with the kind and name of a desired one.
    pub(in crate::tenant_controller) fn get(&self, desired: &Object) -> Option<&Object> {
        self.objects.get(&key(desired))
    }

    /// The namespace of this name.
    pub(in crate::tenant_controller) fn namespace(&self, name: &str) -> Option<&Namespace> {
        let key = (Namespace::NAME, String::new(), name.to_owned());
        match self.objects.get(&key)? {
            Object::Namespace(namespace) => Some(namespace),
            _ => None,
        }
    }

    /// The namespaces by name, with the home.
    pub(in crate::tenant_controller) fn namespaces(
        &self,
    ) -> impl Iterator<Item = (&str, &Namespace)> {
        self.objects.iter().filter_map(|((_, _, name), object)| match object {
            Object::Namespace(namespace) => Some((name.as_str(), &**namespace)),
            _ => None,
        })
    }

    /// The ResourceQuotas by namespace and name.
    pub(in crate::tenant_controller) fn quotas(&self) -> impl Iterator<Item = &ResourceQuota> {
        self.objects.values().filter_map(|object| match object {
            Object::ResourceQuota(quota) => Some(&**quota),
            _ => None,
        })
    }

    /// The names of the namespaces with a RoleBinding of the broker: one with the label of the tenant,
    /// which only the broker and administrators may write.
    pub(in crate::tenant_controller) fn bound_namespaces(
        &self,
        tenant: &TenantName,
    ) -> BTreeSet<String> {
        let ours = self.objects.iter().filter(|((kind, ..), object)| {
            *kind == RoleBinding::NAME && tenant.is_tenant_of(object.metadata())
        });
        ours.map(|((_, namespace, _), _)| namespace.clone()).collect()
    }

    /// The objects in namespaces that are not desired.
    pub(in crate::tenant_controller) fn others<'a>(
        &'a self,
        desired: impl IntoIterator<Item = &'a Object>,
    ) -> impl Iterator<Item = &'a Object> {
        let desired: BTreeSet<Key> = desired.into_iter().map(key).collect();
        self.objects.iter().filter(move |(key, _)| !desired.contains(*key)).filter_map(
            |(_, object)| match object {
                Object::Namespace(_) => None,
                other => Some(other),
            },
        )
    }
}

/// Whether the broker gives a RoleBinding of this tenant such a name. Owners may label bindings of
/// their own, but not name them so.
pub(in crate::tenant_controller) fn is_binding_name(tenant: &TenantName, name: &str) -> bool {
    name.starts_with(&role_binding_name(tenant, ""))
}

/// Namespace of an object; its own name for a namespace.
pub(in crate::tenant_controller) fn namespace_of(object: &Object) -> &str {
    let metadata = object.metadata();
    metadata.namespace.as_deref().or(metadata.name.as_deref()).unwrap_or_default()
}

/// Name of an object.
pub(in crate::tenant_controller) fn name_of(object: &Object) -> &str {
    object.metadata().name.as_deref().unwrap_or_default()
}

fn key(object: &Object) -> Key {
    let namespace = object.metadata().namespace.clone().unwrap_or_default();
    (object.kind(), namespace, name_of(object).to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn namespace(name: &str) -> Object {
        Object::Namespace(serde_json::from_value(json!({"metadata": {"name": name}})).unwrap())
    }

    fn binding(namespace: &str, name: &str) -> Object {
        let binding = json!({
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "x"},
        });
        Object::RoleBinding(serde_json::from_value(binding).unwrap())
    }

    #[test]
    fn objects_are_found_by_kind_namespace_and_name() {
        let objects = [namespace("solar-a"), binding("solar-a", "b"), binding("solar-b", "b")];
        let snapshot = Snapshot::new(objects.clone());
        for object in &objects {
            assert_eq!(snapshot.get(object), Some(object));
        }
        assert_eq!(snapshot.get(&binding("solar-c", "b")), None);
        let solar: TenantName = "solar".parse().unwrap();
        assert_eq!(snapshot.bound_namespaces(&solar), BTreeSet::new(), "they have no label");
        let mut labelled = binding("solar-b", "tenant-solar-admin");
        if let Object::RoleBinding(binding) = &mut labelled {
            binding.metadata.labels = Some([(TENANT_LABEL.to_owned(), "solar".to_owned())].into());
        }
        let bound = Snapshot::new([labelled]).bound_namespaces(&solar);
        assert_eq!(bound, BTreeSet::from(["solar-b".to_owned()]));
        assert_eq!(snapshot.namespaces().map(|(name, _)| name).collect::<Vec<_>>(), ["solar-a"]);
    }

    #[test]
    fn a_binding_of_another_tenant_or_of_an_owner_has_another_name() {
        let solar = "solar".parse().unwrap();
        for name in ["tenant-solar-admin", "tenant-solar-tenant-owner"] {
            assert!(is_binding_name(&solar, name), "{name}");
        }
        for name in ["own", "tenant-lunar-admin", "tenant-solar", "x-tenant-solar-admin"] {
            assert!(!is_binding_name(&solar, name), "{name}");
        }
    }

    #[test]
    fn objects_that_are_not_desired_are_found_and_namespaces_are_none_of_them() {
        let kept = binding("solar-a", "kept");
        let extra = [binding("solar-a", "extra"), binding("solar-b", "kept")];
        let all = extra.iter().cloned().chain([kept.clone(), namespace("solar-z")]);
        let snapshot = Snapshot::new(all);
        let others: Vec<&Object> = snapshot.others([&kept]).collect();
        assert_eq!(others, extra.iter().collect::<Vec<_>>());
        assert_eq!(namespace_of(&kept), "solar-a");
        assert_eq!(namespace_of(&namespace("solar-z")), "solar-z");
    }

    #[test]
    fn a_namespace_is_left_out_with_its_objects() {
        let kept = [namespace("solar-a"), binding("solar-a", "b")];
        let all = [namespace("solar-b"), binding("solar-b", "b"), binding("solar-c", "b")];
        let mut snapshot = Snapshot::new(kept.iter().chain(&all).cloned());
        let left_out = BTreeSet::from(["solar-b", "solar-c"].map(str::to_owned));
        assert_eq!(snapshot.leave_out(&left_out), ["solar-b"]);
        assert_eq!(snapshot.others([]).collect::<Vec<_>>(), [&kept[1]]);
        assert_eq!(snapshot.namespaces().map(|(name, _)| name).collect::<Vec<_>>(), ["solar-a"]);
    }
}
