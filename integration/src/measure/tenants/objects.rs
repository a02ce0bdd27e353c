//! Objects that the measurement creates, and their paths.

use serde_json::{Value, json};
use tenant_shared::{HOME_LABEL, MANAGED_BY_LABEL, MANAGED_BY_VALUE, TENANT_LABEL};

pub(super) const NAMESPACES: &str = "api/v1/namespaces";
pub(super) const TENANTS: &str = "apis/tenant-broker.io/v1alpha1/tenants";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const RBAC: &str = "apis/rbac.authorization.k8s.io/v1";

/// Path of the RoleBindings of a namespace.
pub(super) fn role_bindings(namespace: &str) -> String {
    format!("{RBAC}/namespaces/{namespace}/rolebindings")
}

/// Path of all RoleBindings of a tenant.
pub(super) fn role_bindings_of_tenant(tenant: &str) -> String {
    format!("{RBAC}/rolebindings?labelSelector={TENANT_LABEL}%3D{tenant}")
}

/// Path of the ConfigMaps of a namespace, a small list.
pub(super) fn config_maps(namespace: &str) -> String {
    format!("{NAMESPACES}/{namespace}/configmaps")
}

pub(super) fn user(name: &str) -> Value {
    json!({"apiGroup": RBAC_GROUP, "kind": "User", "name": name})
}

pub(super) fn group(name: &str) -> Value {
    json!({"apiGroup": RBAC_GROUP, "kind": "Group", "name": name})
}

/// A Tenant with this specification.
pub(super) fn tenant(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "tenant-broker.io/v1alpha1", "kind": "Tenant",
        "metadata": {"name": name}, "spec": spec})
}

/// The specification of a Tenant with one owner, a subject, who has these roles.
pub(super) fn owned_by(subject: &Value, roles: &[&str]) -> Value {
    json!({"owners": [owner(subject, roles)]})
}

/// An owner with these roles.
pub(super) fn owner(subject: &Value, roles: &[&str]) -> Value {
    json!({"kind": subject["kind"], "name": subject["name"], "clusterRoles": roles})
}

/// A namespace without labels.
pub(super) fn plain_namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// A namespace of a tenant, as its owner creates it directly.
pub(super) fn namespace(name: &str, tenant: &str) -> Value {
    let labels = json!({TENANT_LABEL: tenant, MANAGED_BY_LABEL: MANAGED_BY_VALUE,
        "pod-security.kubernetes.io/enforce": "baseline"});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

/// The home of a tenant, as the broker creates it.
pub(super) fn home(tenant: &str) -> Value {
    let labels = json!({TENANT_LABEL: tenant, MANAGED_BY_LABEL: MANAGED_BY_VALUE, HOME_LABEL: "true",
        "pod-security.kubernetes.io/enforce": "restricted"});
    json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": format!("tenant-{tenant}"), "labels": labels}})
}

/// A RoleBinding of a subject to a ClusterRole.
pub(super) fn role_binding(namespace: &str, name: &str, role: &str, subject: &Value) -> Value {
    json!({"apiVersion": format!("{RBAC_GROUP}/v1"), "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [subject]})
}
