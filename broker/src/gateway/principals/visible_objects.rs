//! Objects that a caller may see through reads with the broker's credential. Their tenants give
//! the right. RBAC cannot express it, so the gateway decides.

use std::collections::BTreeSet;

use super::Principal;
use crate::{
    cluster::{BrokerRead, BrokerReadError, BrokerReadResource, ClusterList, RequiredLabels},
    tenant::TenantName,
};

/// The objects of a resource that a caller may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct VisibleObjects {
    resource: BrokerReadResource,
    /// The tenants that give the right, by name.
    tenants: Vec<TenantName>,
    /// Of nodes: the labels by which these tenants select theirs.
    node_selectors: BTreeSet<RequiredLabels>,
}

impl VisibleObjects {
    /// No object of a resource.
    #[cfg(test)]
    pub(in crate::gateway) fn nothing(resource: BrokerReadResource) -> Self {
        Self { resource, tenants: Vec::new(), node_selectors: BTreeSet::new() }
    }

    /// The resource.
    pub(in crate::gateway) fn resource(&self) -> BrokerReadResource {
        self.resource
    }

    /// The tenants that give the right, by name.
    pub(in crate::gateway) fn tenants(&self) -> &[TenantName] {
        &self.tenants
    }

    /// Whether no tenant gives the right.
    pub(in crate::gateway) fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// The read of these objects, with the parameters of a client's query.
    ///
    /// # Errors
    /// See [`BrokerReadError`].
    pub(in crate::gateway) fn read(
        &self,
        query: &str,
        is_watch: bool,
    ) -> Result<BrokerRead, BrokerReadError> {
        match self.resource {
            _ if self.is_empty() => Err(BrokerReadError::NoTenant),
            BrokerReadResource::Namespaces => {
                let names = self.tenants.iter().map(TenantName::as_str);
                BrokerRead::namespaces(names, query, is_watch)
            }
            BrokerReadResource::ClusterList(list) => {
                BrokerRead::cluster_list(list, &self.node_selectors, query, is_watch)
            }
        }
    }
}

impl Principal {
    /// The objects of a resource that the caller may see: by the tenants in which they have rights,
    /// or that grant the list, and an active membership, so that a suspension ends reads too.
    pub(in crate::gateway) fn shown(
        &self,
        cluster: &str,
        resource: BrokerReadResource,
    ) -> VisibleObjects {
        let is_active = |tenant: &&TenantName| self.is_active_member(cluster, tenant);
        match resource {
            BrokerReadResource::Namespaces => VisibleObjects {
                resource,
                tenants: self.tenants().iter().filter(is_active).cloned().collect(),
                node_selectors: BTreeSet::new(),
            },
            BrokerReadResource::ClusterList(list) => {
                let grants = self.list_grants().iter();
                let grants = grants.filter(|it| it.lists.contains(&list) && is_active(&&it.tenant));
                let mut shown = VisibleObjects {
                    resource,
                    tenants: Vec::new(),
                    node_selectors: BTreeSet::new(),
                };
                for grant in grants {
                    shown.tenants.push(grant.tenant.clone());
                    if list == ClusterList::Nodes {
                        shown.node_selectors.insert(grant.node_selector.clone());
                    }
                }
                shown
            }
        }
    }
}
