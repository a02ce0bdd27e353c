//! Settings of tenants (`tenants.*`), as `config` reads them.

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
    pub protected_names: ProtectedNames,
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
}

impl Default for TenantSettings {
    fn default() -> Self {
        let roles = DEFAULT_CLUSTER_ROLES.iter();
        Self {
            enabled: false,
            // The unit test shows that all of them are names.
            cluster_roles: roles.filter_map(|role| role.parse().ok()).collect(),
            protected_names: DEFAULT_PROTECTED_NAMES.to_owned().into(),
            free_names: false,
            write: false,
            direct_namespaces: false,
            groups: Vec::new(),
            everybody: DEFAULT_EVERYBODY.to_owned(),
            cluster_lists: Vec::new(),
        }
    }
}

/// A regular expression of RE2 that is matched as a part of names, compiled once.
#[derive(Clone, Debug)]
pub struct ProtectedNames {
    pattern: String,
    /// `None` if the pattern is invalid.
    compiled: Option<Regex>,
}

impl ProtectedNames {
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

impl From<String> for ProtectedNames {
    fn from(pattern: String) -> Self {
        Self { compiled: Regex::new(&pattern).ok(), pattern }
    }
}

impl PartialEq for ProtectedNames {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern
    }
}

impl Eq for ProtectedNames {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_names_are_matched_as_parts_and_an_invalid_expression_protects_all() {
        let matches = |pattern: &str, name| ProtectedNames::from(pattern.to_owned()).matches(name);
        assert!(matches("kube-", "my-kube-x") && !matches("^kube-", "my-kube-x"));
        assert!(matches("(", "solar-x"));
        assert_eq!(ProtectedNames::from("^a$".to_owned()).as_str(), "^a$");
    }

    #[test]
    fn all_default_cluster_roles_are_names() {
        assert_eq!(TenantSettings::default().cluster_roles.len(), DEFAULT_CLUSTER_ROLES.len());
    }
}
