//! Looking at the objects of all workspaces: a few paged lists instead of a question for each.

use k8s_openapi::api::{
    core::v1::{Namespace, ResourceQuota, ServiceAccount},
    rbac::v1::RoleBinding,
};
use kube::{Api, ResourceExt as _, api::ListParams};
use serde::de::DeserializeOwned;
use tenant_shared::{SERVICE_ACCOUNT_NAME, WORKSPACE_LABEL};

use super::{
    Cluster, ClusterError,
    difference::{Compared, is_marked_suspended},
};

/// Objects of one page; more are never held at once.
const PAGE: u32 = 500;

impl Cluster {
    /// Shows every object of a kind that carries the broker's label, page by page.
    ///
    /// # Errors
    /// The cluster's; what was shown until then is not all.
    pub async fn survey<K>(&self, mut show: impl FnMut(K)) -> Result<(), ClusterError>
    where
        K: Compared + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let all = ListParams::default().labels(WORKSPACE_LABEL).limit(PAGE);
        let mut next = None;
        loop {
            let params = ListParams { continue_token: next, ..all.clone() };
            let page = api.list(&params).await?;
            page.items.into_iter().for_each(&mut show);
            next = page.metadata.continue_.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(());
            }
        }
    }

    /// Whether a namespace carries the suspended label; false if it is not there.
    ///
    /// # Errors
    /// The cluster's.
    pub async fn is_marked_suspended(&self, namespace: &str) -> Result<bool, ClusterError> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        Ok(api.get_opt(namespace).await?.is_some_and(|there| is_marked_suspended(&there)))
    }

    /// Whether there is any RoleBinding in a namespace, whoever made it.
    ///
    /// # Errors
    /// The cluster's.
    pub async fn has_role_bindings(&self, namespace: &str) -> Result<bool, ClusterError> {
        let api: Api<RoleBinding> = Api::namespaced(self.client.clone(), namespace);
        Ok(!api.list(&ListParams::default().limit(1)).await?.items.is_empty())
    }

    /// The uid of the account that sessions act as, whoever made it; `None` if it is not there.
    ///
    /// # Errors
    /// The cluster's.
    pub async fn service_account_uid(
        &self,
        namespace: &str,
    ) -> Result<Option<String>, ClusterError> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let there = api.get_metadata_opt(SERVICE_ACCOUNT_NAME).await?;
        Ok(there.map(|there| there.uid().unwrap_or_default()))
    }

    /// Whether the API server enforces everything that a ResourceQuota of the namespace asks for:
    /// quota admission reads `status.hard`, which the controller writes some time after the quota is
    /// made, and admits whatever is not in it.
    ///
    /// # Errors
    /// The cluster's; [`ClusterError::NotFound`] if there is no such quota.
    pub async fn quota_is_enforced(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<bool, ClusterError> {
        let api: Api<ResourceQuota> = Api::namespaced(self.client.clone(), namespace);
        let quota = api.get(name).await?;
        let wanted = quota.spec.and_then(|spec| spec.hard).unwrap_or_default();
        let enforced = quota.status.and_then(|status| status.hard).unwrap_or_default();
        Ok(wanted.keys().all(|key| enforced.contains_key(key)))
    }
}
