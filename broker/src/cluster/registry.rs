//! The clusters that workspaces can be in.

use std::sync::Arc;

use super::{Cluster, ClusterError};

/// Registry of clusters by name. Clones share the connections. The configuration names one cluster.
#[derive(Clone, Debug)]
pub struct Clusters {
    clusters: Arc<[Cluster]>,
}

impl Clusters {
    /// A registry with one cluster, which new workspaces are created in.
    pub fn new(cluster: Cluster) -> Self {
        Self { clusters: Arc::new([cluster]) }
    }

    /// The cluster of a workspace whose row has this cluster name. A name that is not configured is
    /// an earlier name of the only cluster.
    ///
    /// # Errors
    /// There are several clusters, and none has this name.
    pub fn get(&self, name: &str) -> Result<&Cluster, ClusterError> {
        match (self.find(name), &*self.clusters) {
            (Some(cluster), _) => Ok(cluster),
            (None, [only]) => Ok(only),
            (None, _) => Err(ClusterError::NotConfigured(name.to_owned())),
        }
    }

    /// The cluster of exactly this name.
    pub fn find(&self, name: &str) -> Option<&Cluster> {
        self.clusters.iter().find(|cluster| cluster.name() == name)
    }

    /// The cluster that new workspaces are created in.
    pub fn for_new_workspaces(&self) -> &Cluster {
        &self.clusters[0]
    }

    /// All clusters.
    pub fn iter(&self) -> impl Iterator<Item = &Cluster> {
        self.clusters.iter()
    }
}
