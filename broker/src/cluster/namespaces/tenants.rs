//! Cluster-wide checks of tenants' namespaces and their RoleBindings, no matter who made them.

use k8s_openapi::api::{core::v1::Namespace, rbac::v1::RoleBinding};
use kube::{
    Resource,
    api::{ListParams, ObjectMeta},
};
use tenant_shared::{TENANT_LABEL, TIER_LABEL, WORKSPACE_LABEL, is_tenant_namespace};

use crate::cluster::{
    Cluster, ClusterError,
    pages::{Metadata, Pages, Representation},
};

/// A RoleBinding that a delete request would not remove at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingWithFinalizers {
    /// Namespace of the RoleBinding.
    pub namespace: String,
    /// Name of the RoleBinding.
    pub name: String,
}

impl Cluster {
    /// Lists RoleBindings in tenants' namespaces that have finalizers or owner references.
    ///
    /// # Errors
    /// The request failed.
    pub async fn bindings_with_finalizers(
        &self,
    ) -> Result<Vec<BindingWithFinalizers>, ClusterError> {
        let mut held = Vec::new();
        self.list_metadata::<RoleBinding>(&ListParams::default(), |metadata| {
            let is_held = metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty())
                || metadata.owner_references.as_ref().is_some_and(|all| !all.is_empty());
            let namespace = metadata.namespace.unwrap_or_default();
            if is_held && is_tenant_namespace(&namespace) {
                held.push(BindingWithFinalizers {
                    namespace,
                    name: metadata.name.unwrap_or_default(),
                });
            }
        })
        .await?;
        Ok(held)
    }

    /// Lists the names of tenants' namespaces without the tier label.
    ///
    /// # Errors
    /// The request failed.
    pub async fn namespaces_without_tier(&self) -> Result<Vec<String>, ClusterError> {
        let mut names = Vec::new();
        let selector = format!("{WORKSPACE_LABEL},!{TIER_LABEL}");
        self.list_metadata::<Namespace>(&ListParams::default().labels(&selector), |metadata| {
            names.extend(metadata.name.filter(|name| is_tenant_namespace(name)));
        })
        .await?;
        Ok(names)
    }

    /// Lists the metadata of all objects of a kind that carry the label of a tenant, page by page,
    /// and passes each to `visit`.
    ///
    /// # Errors
    /// A request failed; the objects passed until then are not all.
    pub async fn list_metadata_of_tenants<K>(
        &self,
        visit: impl FnMut(ObjectMeta),
    ) -> Result<(), ClusterError>
    where
        K: Resource<DynamicType = ()>,
    {
        self.list_metadata::<K>(&ListParams::default().labels(TENANT_LABEL), visit).await
    }

    /// Lists the metadata of all selected objects of a kind, page by page, and passes each to
    /// `visit`.
    pub(in crate::cluster) async fn list_metadata<K>(
        &self,
        selected: &ListParams,
        mut visit: impl FnMut(ObjectMeta),
    ) -> Result<(), ClusterError>
    where
        K: Resource<DynamicType = ()>,
    {
        let mut pages: Pages<Metadata> =
            Pages::new::<K>(self.client(), Representation::Metadata, selected.clone());
        while let Some(page) = pages.next().await? {
            for object in page {
                visit(object.metadata);
            }
        }
        Ok(())
    }
}
