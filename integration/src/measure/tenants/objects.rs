//! Objects of tenants that the measurement creates, and their paths.

use serde_json::{Value, json};
use tenant_shared::{HOME_LABEL, MANAGED_BY_LABEL, MANAGED_BY_VALUE, TENANT_LABEL};

use crate::measure::objects::RBAC;
pub(super) use crate::measure::objects::{
    NAMESPACES, config_maps, group, plain_namespace, role_binding, role_bindings, user,
};

pub(super) const TENANTS: &str = "apis/tenant-broker.io/v1alpha1/tenants";

/// Path of all RoleBindings of a tenant.
pub(super) fn role_bindings_of_tenant(tenant: &str) -> String {
    format!("{RBAC}/rolebindings?labelSelector={TENANT_LABEL}%3D{tenant}")
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
