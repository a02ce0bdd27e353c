//! The permission to create namespaces (ClusterRole `tenant-namespace-provisioner`).

use serde_json::{Value, json};

use super::{Explained, metadata};
use crate::cluster::RBAC;

/// Name of the ClusterRole and of its binding.
const NAME: &str = "tenant-namespace-provisioner";

pub(super) fn objects(groups: &[String]) -> [Explained; 2] {
    let api_version = format!("{RBAC}/v1");
    let subjects: Vec<Value> = groups
        .iter()
        .map(|group| json!({"apiGroup": RBAC, "kind": "Group", "name": group}))
        .collect();
    [
        (
            "People of the groups tenants.groups may create namespaces. The policy \
             tenant-guard-creation refuses those that belong to no tenant of theirs.",
            json!({
                "apiVersion": api_version,
                "kind": "ClusterRole",
                "metadata": metadata(NAME),
                "rules": [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"]}],
            }),
        ),
        (
            "The groups of tenants.groups.",
            json!({
                "apiVersion": api_version,
                "kind": "ClusterRoleBinding",
                "metadata": metadata(NAME),
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": NAME},
                "subjects": subjects,
            }),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binding_has_each_group_and_the_role_creates_namespaces_only() {
        let [(_, role), (_, binding)] = objects(&["developers".to_owned(), "a: b".to_owned()]);
        let rules = json!([{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"]}]);
        assert_eq!(role["rules"], rules);
        assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
        let names: Vec<_> = binding["subjects"]
            .as_array()
            .unwrap()
            .iter()
            .map(|subject| (subject["kind"].as_str().unwrap(), subject["name"].as_str().unwrap()))
            .collect();
        assert_eq!(names, [("Group", "developers"), ("Group", "a: b")]);
    }
}
