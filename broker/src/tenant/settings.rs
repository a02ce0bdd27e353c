//! Settings of tenants (`tenants.*`), as `config` reads them.

use std::collections::BTreeMap;

use regex::Regex;
use tenant_shared::NAMESPACE_DELETER_ROLE;

use super::ClusterRoleName;
use crate::cluster::ClusterList;

/// ClusterRoles of `tenants.cluster_roles` that the operator does not have to name.
const DEFAULT_CLUSTER_ROLES: [&str; 4] = ["admin", "edit", "view", NAMESPACE_DELETER_ROLE];
/// Namespaces that are no tenant's, whatever a Tenant says.
const DEFAULT_PROTECTED_NAMES: &str =
    "^(default|kube-.*|openshift-.*|cert-manager|ingress-nginx|istio-system)$";
/// The group that Capsule gives everybody, so that its files need not change.
const DEFAULT_EVERYBODY: &str = "projectcapsule.dev";

/// Settings of tenants (`tenants.*`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct TenantSettings {
    /// Whether the cluster has Tenants.
    pub enabled: bool,
    /// The ClusterRoles that the broker may bind in namespaces of tenants.
    pub cluster_roles: Vec<ClusterRoleName>,
    /// Names of namespaces that no tenant gets.
    pub protected_names: ProtectedPattern,
    /// Keys of labels that no namespace gets through the broker or from its owners; `None`: all are
    /// free but those of Kubernetes and the broker.
    pub protected_labels: Option<ProtectedPattern>,
    /// Whether a Tenant may have namespaces that do not begin with its name
    /// (`spec.namespaceOptions.forceTenantPrefix: false`).
    pub free_names: bool,
    /// Whether the broker may create, change and delete Tenants, for administrators who use its
    /// API.
    pub write: bool,
    /// Whether owners may create namespaces directly at the API server.
    pub direct_namespaces: bool,
    /// The groups whose people may be members of tenants; empty: everybody.
    pub groups: Vec<String>,
    /// The group that everybody is in.
    pub everybody: String,
    /// Cluster-scoped resources that the broker may read, for lists that a Tenant grants.
    pub cluster_lists: Vec<ClusterList>,
    /// Whether the API server has the admission plugin `PodNodeSelector`.
    pub pod_node_selector: bool,
}

impl Default for TenantSettings {
    fn default() -> Self {
        let roles = DEFAULT_CLUSTER_ROLES.iter();
        Self {
            enabled: false,
            // The unit test shows that all of them are names.
            cluster_roles: roles.filter_map(|role| role.parse().ok()).collect(),
            protected_names: DEFAULT_PROTECTED_NAMES.to_owned().into(),
            protected_labels: None,
            free_names: false,
            write: false,
            direct_namespaces: false,
            groups: Vec::new(),
            everybody: DEFAULT_EVERYBODY.to_owned(),
            cluster_lists: Vec::new(),
            pod_node_selector: false,
        }
    }
}

impl TenantSettings {
    /// Whether the operator keeps a label from tenants.
    pub fn protects_label(&self, key: &str) -> bool {
        self.protected_labels.as_ref().is_some_and(|pattern| pattern.matches(key))
    }

    /// The labels that the operator does not keep from tenants.
    pub fn without_protected(&self, labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut labels = labels.clone();
        labels.retain(|key, _| !self.protects_label(key));
        labels
    }
}

/// A regular expression of RE2 that is matched as a part of names of namespaces or of keys of labels,
/// compiled once.
#[derive(Clone, Debug)]
pub struct ProtectedPattern {
    pattern: String,
    /// `None` if the pattern is invalid.
    compiled: Option<Regex>,
}

impl ProtectedPattern {
    /// The expression.
    pub fn as_str(&self) -> &str {
        &self.pattern
    }

    /// Whether the expression matches a name. The configuration is checked when it is read; an
    /// invalid expression matches every name.
    pub fn matches(&self, name: &str) -> bool {
        self.compiled.as_ref().is_none_or(|compiled| compiled.is_match(name))
    }
}

impl From<String> for ProtectedPattern {
    fn from(pattern: String) -> Self {
        Self { compiled: Regex::new(&pattern).ok(), pattern }
    }
}

impl PartialEq for ProtectedPattern {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern
    }
}

impl Eq for ProtectedPattern {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_names_are_matched_as_parts_and_an_invalid_expression_protects_all() {
        let matches =
            |pattern: &str, name| ProtectedPattern::from(pattern.to_owned()).matches(name);
        assert!(matches("kube-", "my-kube-x") && !matches("^kube-", "my-kube-x"));
        assert!(matches("(", "solar-x"));
        assert_eq!(ProtectedPattern::from("^a$".to_owned()).as_str(), "^a$");
    }

    #[test]
    fn protected_labels_are_left_out_and_by_default_there_are_none() {
        let labels = ["team", "kubernetes.azure.com/x", "control-plane"];
        let labels: BTreeMap<String, String> =
            labels.map(|key| (key.to_owned(), String::new())).into();
        let default = TenantSettings::default();
        assert_eq!(default.without_protected(&labels), labels);
        let pattern = "^control-plane$|azure".to_owned().into();
        let settings = TenantSettings { protected_labels: Some(pattern), ..default };
        let left: Vec<String> = settings.without_protected(&labels).into_keys().collect();
        assert_eq!(left, ["team"]);
    }

    #[test]
    fn all_default_cluster_roles_are_names() {
        assert_eq!(TenantSettings::default().cluster_roles.len(), DEFAULT_CLUSTER_ROLES.len());
    }
}
