//! Looking through the namespaces of all tenants, whoever made what is in them.

use k8s_openapi::api::{core::v1::Namespace, rbac::v1::RoleBinding};
use kube::{Api, Resource, ResourceExt as _, api::ListParams, core::PartialObjectMeta};
use serde::de::DeserializeOwned;
use tenant_shared::{TIER_LABEL, WORKSPACE_LABEL};
use uuid::Uuid;

use super::{Cluster, ClusterError};

/// Objects of one page; more are never held at once.
const PAGE: u32 = 500;

/// A binding that its deletion would not end at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBinding {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Cluster {
    /// RoleBindings in tenants' namespaces that have finalizers or owner references.
    ///
    /// # Errors
    /// The cluster's.
    pub async fn held_bindings(&self) -> Result<Vec<HeldBinding>, ClusterError> {
        let mut held = Vec::new();
        self.metadata(&ListParams::default(), |binding: PartialObjectMeta<RoleBinding>| {
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

    /// Names of tenants' namespaces that do not say their tier.
    ///
    /// # Errors
    /// The cluster's.
    pub async fn namespaces_without_tier(&self) -> Result<Vec<String>, ClusterError> {
        let mut names = Vec::new();
        let selector = format!("{WORKSPACE_LABEL},!{TIER_LABEL}");
        self.metadata(
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

    /// Shows the metadata of every object of a kind, page by page.
    async fn metadata<K>(
        &self,
        which: &ListParams,
        mut show: impl FnMut(PartialObjectMeta<K>),
    ) -> Result<(), ClusterError>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let mut next = None;
        loop {
            let page = ListParams { continue_token: next, ..which.clone() }.limit(PAGE);
            let page = api.list_metadata(&page).await?;
            page.items.into_iter().for_each(&mut show);
            next = page.metadata.continue_.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(());
            }
        }
    }
}

/// Whether a namespace has the name of a tenant's: `tenant-<uuid>`.
fn is_tenant(namespace: &str) -> bool {
    namespace.strip_prefix("tenant-").is_some_and(|id| Uuid::try_parse(id).is_ok())
}
