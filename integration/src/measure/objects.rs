//! Kubernetes objects that measurements create, and their paths.

use serde_json::{Value, json};

pub(super) const NAMESPACES: &str = "api/v1/namespaces";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
pub(super) const RBAC: &str = "apis/rbac.authorization.k8s.io/v1";

/// Path of the RoleBindings of a namespace.
pub(super) fn role_bindings(namespace: &str) -> String {
    format!("{RBAC}/namespaces/{namespace}/rolebindings")
}

/// Path of the ConfigMaps of a namespace.
pub(super) fn config_maps(namespace: &str) -> String {
    format!("{NAMESPACES}/{namespace}/configmaps")
}

pub(super) fn user(name: &str) -> Value {
    json!({"apiGroup": RBAC_GROUP, "kind": "User", "name": name})
}

pub(super) fn group(name: &str) -> Value {
    json!({"apiGroup": RBAC_GROUP, "kind": "Group", "name": name})
}

/// A namespace without labels.
pub(super) fn plain_namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// A RoleBinding of a subject to a ClusterRole.
pub(super) fn role_binding(namespace: &str, name: &str, role: &str, subject: &Value) -> Value {
    json!({"apiVersion": format!("{RBAC_GROUP}/v1"), "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [subject]})
}
