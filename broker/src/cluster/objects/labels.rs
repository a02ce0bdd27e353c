//! Labels of the objects that the broker makes, and those of Pod Security.

use std::collections::BTreeMap;

use kube::Resource;
pub use tenant_shared::POD_SECURITY;
use tenant_shared::{MANAGED_BY_LABEL, MANAGED_BY_VALUE, TENANT_LABEL, WORKSPACE_LABEL};

/// Prefix of the labels that decide over Pod Security (Kubernetes, "Pod Security Admission").
pub const POD_SECURITY_PREFIX: &str = "pod-security.kubernetes.io/";
/// The label with the Pod Security level that a namespace warns of.
pub const POD_SECURITY_WARN: &str = "pod-security.kubernetes.io/warn";
/// The strictest Pod Security level.
pub const POD_SECURITY_RESTRICTED: &str = "restricted";

/// The value of a label.
pub(in crate::cluster) fn label<K: Resource>(object: &K, name: &str) -> Option<String> {
    object.meta().labels.as_ref().and_then(|labels| labels.get(name)).cloned()
}

/// Whether an object belongs to the same workspace and to the same tenant. An object of one of them
/// carries no label of the other.
pub(in crate::cluster) fn is_ours<K: Resource>(existing: &K, wanted: &K) -> bool {
    [WORKSPACE_LABEL, TENANT_LABEL].iter().all(|name| label(existing, name) == label(wanted, name))
}

/// The labels of every object that the broker makes for a personal workspace.
pub fn labels_of(workspace: uuid::Uuid) -> BTreeMap<String, String> {
    labels(WORKSPACE_LABEL, workspace.to_string())
}

/// The labels of every object that the broker makes for a tenant.
pub fn labels_of_tenant(tenant: &str) -> BTreeMap<String, String> {
    labels(TENANT_LABEL, tenant.to_owned())
}

fn labels(owner: &str, value: String) -> BTreeMap<String, String> {
    BTreeMap::from([
        (MANAGED_BY_LABEL.to_owned(), MANAGED_BY_VALUE.to_owned()),
        (owner.to_owned(), value),
    ])
}
