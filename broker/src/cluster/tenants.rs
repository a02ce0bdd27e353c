//! Cluster-wide checks of tenants' namespaces and their RoleBindings, no matter who made them.

use k8s_openapi::api::{core::v1::Namespace, rbac::v1::RoleBinding};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ListParams, ObjectMeta},
    core::PartialObjectMeta,
};
use serde::de::DeserializeOwned;
use tenant_shared::{TENANT_LABEL, TIER_LABEL, WORKSPACE_LABEL};
use uuid::Uuid;

use super::{Cluster, ClusterError, page_size};

/// A RoleBinding that a delete request would not remove at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBinding {
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
    pub async fn held_bindings(&self) -> Result<Vec<HeldBinding>, ClusterError> {
        let mut held = Vec::new();
        self.list_metadata(&ListParams::default(), |binding: PartialObjectMeta<RoleBinding>| {
            let meta = &binding.metadata;
            let is_held = meta.finalizers.as_ref().is_some_and(|all| !all.is_empty())
                || meta.owner_references.as_ref().is_some_and(|all| !all.is_empty());
            let namespace = binding.namespace().unwrap_or_default();
            if is_held && is_tenant(&namespace) {
                held.push(HeldBinding { namespace, name: binding.name_any() });
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
        self.list_metadata(
            &ListParams::default().labels(&selector),
            |namespace: PartialObjectMeta<Namespace>| {
                let name = namespace.name_any();
                if is_tenant(&name) {
                    names.push(name);
                }
            },
        )
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
        mut visit: impl FnMut(ObjectMeta),
    ) -> Result<(), ClusterError>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let labelled = ListParams::default().labels(TENANT_LABEL);
        self.list_metadata(&labelled, |object: PartialObjectMeta<K>| visit(object.metadata)).await
    }

    /// Lists the metadata of all selected objects of a kind, page by page, and passes each to
    /// `visit`.
    pub(super) async fn list_metadata<K>(
        &self,
        selected: &ListParams,
        mut visit: impl FnMut(PartialObjectMeta<K>),
    ) -> Result<(), ClusterError>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let api: Api<K> = Api::all(self.client());
        let mut next = None;
        loop {
            let page = ListParams { continue_token: next, ..selected.clone() }
                .limit(page_size::listed::<K>());
            let page = api.list_metadata(&page).await?;
            page.items.into_iter().for_each(&mut visit);
            next = page.metadata.continue_.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(());
            }
        }
    }
}

/// Whether a namespace has a tenant's name: `tenant-<uuid>`.
fn is_tenant(namespace: &str) -> bool {
    namespace.strip_prefix("tenant-").is_some_and(|id| Uuid::try_parse(id).is_ok())
}
