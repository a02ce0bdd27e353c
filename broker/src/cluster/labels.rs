//! Labels of the objects that the broker makes.

use std::collections::BTreeMap;

use kube::Resource;
use tenant_shared::{MANAGED_BY_LABEL, MANAGED_BY_VALUE, WORKSPACE_LABEL};

/// The value of a label.
pub(super) fn label<K: Resource>(object: &K, name: &str) -> Option<String> {
    object.meta().labels.as_ref().and_then(|labels| labels.get(name)).cloned()
}

/// Whether an object carries the label of the same workspace.
pub(super) fn is_ours<K: Resource>(existing: &K, wanted: &K) -> bool {
    label(existing, WORKSPACE_LABEL) == label(wanted, WORKSPACE_LABEL)
}

/// The labels of every object that the broker makes for a workspace.
pub fn labels_of(workspace: uuid::Uuid) -> BTreeMap<String, String> {
    BTreeMap::from([
        (MANAGED_BY_LABEL.to_owned(), MANAGED_BY_VALUE.to_owned()),
        (WORKSPACE_LABEL.to_owned(), workspace.to_string()),
    ])
}
