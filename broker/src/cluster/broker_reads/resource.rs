//! The resources that reads with the broker's own credential are for.

use std::{fmt, str::FromStr};

/// A resource that the gateway lists and watches with the broker's own credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BrokerReadResource {
    /// The namespaces of tenants.
    Namespaces,
    /// A cluster-scoped resource that Tenants grant.
    ClusterList(ClusterList),
}

impl BrokerReadResource {
    /// The path of the collection at the API server.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Namespaces => "/api/v1/namespaces",
            Self::ClusterList(list) => list.path(),
        }
    }

    /// Name of the API group; empty for the core group.
    pub fn group(self) -> &'static str {
        match self {
            Self::Namespaces => "",
            Self::ClusterList(list) => list.group(),
        }
    }

    /// Name of the resource in paths of the API server.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::ClusterList(list) => list.resource(),
        }
    }
}

/// A cluster-scoped resource of which members of a tenant may get a list
/// (`tenants.cluster_lists`). `PersistentVolumes` are not among them, because no selector of the API
/// server selects volumes by the namespace of their claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClusterList {
    StorageClasses,
    IngressClasses,
    PriorityClasses,
    RuntimeClasses,
    Nodes,
}

/// A text that names no [`ClusterList`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "storageclasses, ingressclasses, priorityclasses, runtimeclasses and nodes are possible, with \
     commas between them"
)]
pub struct UnknownClusterList;

impl ClusterList {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::StorageClasses,
        Self::IngressClasses,
        Self::PriorityClasses,
        Self::RuntimeClasses,
        Self::Nodes,
    ];

    /// The version of all of them.
    pub const VERSION: &str = "v1";

    /// Name of the API group; empty for the core group.
    pub fn group(self) -> &'static str {
        match self {
            Self::StorageClasses => "storage.k8s.io",
            Self::IngressClasses => "networking.k8s.io",
            Self::PriorityClasses => "scheduling.k8s.io",
            Self::RuntimeClasses => "node.k8s.io",
            Self::Nodes => "",
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
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::StorageClasses => "/apis/storage.k8s.io/v1/storageclasses",
            Self::IngressClasses => "/apis/networking.k8s.io/v1/ingressclasses",
            Self::PriorityClasses => "/apis/scheduling.k8s.io/v1/priorityclasses",
            Self::RuntimeClasses => "/apis/node.k8s.io/v1/runtimeclasses",
            Self::Nodes => "/api/v1/nodes",
        }
    }

    /// The resource whose collection has exactly this path.
    pub fn of_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|list| list.path() == path)
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
    fn lists_round_trip_and_other_resources_are_none() {
        for list in ClusterList::ALL {
            assert_eq!(list.to_string().parse(), Ok(list));
        }
        for text in ["", "Nodes", "secrets", "clusterroles", "namespaces", "persistentvolumes"] {
            assert_eq!(text.parse::<ClusterList>(), Err(UnknownClusterList), "{text}");
        }
    }

    #[test]
    fn the_path_of_a_list_is_that_of_its_group_and_resource() {
        for list in ClusterList::ALL {
            let prefix = match list.group() {
                "" => "/api".to_owned(),
                group => format!("/apis/{group}"),
            };
            let path = format!("{prefix}/{}/{}", ClusterList::VERSION, list.resource());
            assert_eq!((list.path(), ClusterList::of_path(&path)), (&*path, Some(list)));
            for other in [format!("{path}/"), format!("{path}/a"), path.replace("v1", "v1beta1")] {
                assert_eq!(ClusterList::of_path(&other), None, "{other}");
            }
        }
        for other in ["", "/", "/api/v1/watch/nodes", "/api/v1/namespaces", "/api/v1/secrets"] {
            assert_eq!(ClusterList::of_path(other), None, "{other}");
        }
    }
}
