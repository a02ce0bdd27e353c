//! Settings of tenants (`tenants.*`), as `config` reads them.

use std::{fmt, str::FromStr};

use tenant_shared::NAMESPACE_DELETER_ROLE;

use super::ClusterRoleName;

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
    /// Names of namespaces that no tenant gets: a regular expression of RE2, matched as a part of
    /// the name.
    pub protected_names: String,
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
            protected_names: DEFAULT_PROTECTED_NAMES.to_owned(),
            free_names: false,
            write: false,
            direct_namespaces: false,
            groups: Vec::new(),
            everybody: DEFAULT_EVERYBODY.to_owned(),
            cluster_lists: Vec::new(),
        }
    }
}

/// A cluster-scoped resource of which members of a tenant may get a list
/// (`tenants.cluster_lists`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClusterList {
    StorageClasses,
    IngressClasses,
    PriorityClasses,
    RuntimeClasses,
    Nodes,
    PersistentVolumes,
}

/// A text that names no [`ClusterList`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "storageclasses, ingressclasses, priorityclasses, runtimeclasses, nodes and persistentvolumes \
     are possible, with commas between them"
)]
pub struct UnknownClusterList;

impl ClusterList {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::StorageClasses,
        Self::IngressClasses,
        Self::PriorityClasses,
        Self::RuntimeClasses,
        Self::Nodes,
        Self::PersistentVolumes,
    ];

    /// Name of the API group; empty for the core group.
    pub fn group(self) -> &'static str {
        match self {
            Self::StorageClasses => "storage.k8s.io",
            Self::IngressClasses => "networking.k8s.io",
            Self::PriorityClasses => "scheduling.k8s.io",
            Self::RuntimeClasses => "node.k8s.io",
            Self::Nodes | Self::PersistentVolumes => "",
        }
    }

    /// Name of the resource in paths of the API server.
    pub fn resource(self) -> &'static str {
        match self {
            Self::StorageClasses => "storageclasses",
            Self::IngressClasses => "ingressclasses",
            Self::PriorityClasses => "priorityclasses",
            Self::RuntimeClasses => "runtimeclasses",
            Self::Nodes => "nodes",
            Self::PersistentVolumes => "persistentvolumes",
        }
    }
}

impl fmt::Display for ClusterList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.resource())
    }
}

impl FromStr for ClusterList {
    type Err = UnknownClusterList;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|list| list.resource() == text).ok_or(UnknownClusterList)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_default_cluster_roles_are_names() {
        assert_eq!(TenantSettings::default().cluster_roles.len(), DEFAULT_CLUSTER_ROLES.len());
    }

    #[test]
    fn lists_round_trip_and_other_resources_are_none() {
        for list in ClusterList::ALL {
            assert_eq!(list.to_string().parse(), Ok(list));
        }
        for text in ["", "Nodes", "secrets", "clusterroles", "namespaces"] {
            assert_eq!(text.parse::<ClusterList>(), Err(UnknownClusterList), "{text}");
        }
    }
}
