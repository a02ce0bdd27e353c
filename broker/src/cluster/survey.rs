//! Looking at the objects of all workspaces: a few paged lists instead of a question for each.

use k8s_openapi::api::{
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::RoleBinding,
};
use kube::{Api, api::ListParams};
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

    /// Whether the account that sessions act as is there, whoever made it.
    ///
    /// # Errors
    /// The cluster's.
    pub async fn has_service_account(&self, namespace: &str) -> Result<bool, ClusterError> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        Ok(api.get_opt(SERVICE_ACCOUNT_NAME).await?.is_some())
    }
}
