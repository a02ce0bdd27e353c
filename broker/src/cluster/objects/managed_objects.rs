//! Reads of the objects of workspaces. Those of all workspaces are read with a few paged lists
//! instead of one request for each.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, ResourceQuota, ServiceAccount};
use kube::{Api, ResourceExt as _, api::ListParams};
use serde::de::DeserializeOwned;
use tenant_shared::{TENANT_LABEL, WORKSPACE_LABEL};

use super::{
    difference::{Compared, is_marked_suspended, same_amounts},
    revoke::bindings_in,
};
use crate::cluster::{
    Cluster, ClusterError,
    pages::{Pages, Representation},
};

/// How long the API server may take to enforce a new quota.
const QUOTA_TIMEOUT: Duration = Duration::from_secs(5);
/// First interval between two reads of a quota's status. It doubles up to
/// [`MAX_QUOTA_POLL_INTERVAL`].
const MIN_QUOTA_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Longest interval between two reads of a quota's status.
const MAX_QUOTA_POLL_INTERVAL: Duration = Duration::from_millis(200);

impl Cluster {
    /// Lists all objects of a kind that carry the workspace label, page by page, and passes each
    /// to `visit`.
    ///
    /// # Errors
    /// A request failed; the objects passed until then are not all.
    pub async fn list_managed<K>(&self, visit: impl FnMut(K)) -> Result<(), ClusterError>
    where
        K: Compared + DeserializeOwned + Send + 'static,
    {
        self.list_labelled(WORKSPACE_LABEL, visit).await
    }

    /// Like [`Self::list_managed`], for the objects that carry the tenant label.
    ///
    /// # Errors
    /// See [`Self::list_managed`].
    pub async fn list_of_tenants<K>(&self, visit: impl FnMut(K)) -> Result<(), ClusterError>
    where
        K: Compared + DeserializeOwned + Send + 'static,
    {
        self.list_labelled(TENANT_LABEL, visit).await
    }

    async fn list_labelled<K>(
        &self,
        label: &str,
        mut visit: impl FnMut(K),
    ) -> Result<(), ClusterError>
    where
        K: Compared + DeserializeOwned + Send + 'static,
    {
        let selected = ListParams::default().labels(label);
        let mut pages = Pages::new::<K>(self.client(), Representation::Full, selected);
        while let Some(page) = pages.next().await? {
            page.into_iter().for_each(&mut visit);
        }
        Ok(())
    }

    /// Whether a namespace carries the suspended label; false if it does not exist.
    ///
    /// # Errors
    /// The request failed.
    pub async fn is_marked_suspended(&self, namespace: &str) -> Result<bool, ClusterError> {
        let api: Api<Namespace> = Api::all(self.client());
        Ok(api.get_opt(namespace).await?.is_some_and(|namespace| is_marked_suspended(&namespace)))
    }

    /// Whether a namespace has any RoleBinding, no matter who made it.
    ///
    /// # Errors
    /// The request failed.
    pub async fn has_role_bindings(&self, namespace: &str) -> Result<bool, ClusterError> {
        let mut pages = bindings_in(self.client(), namespace).one_by_one();
        Ok(pages.next().await?.is_some_and(|first| !first.is_empty()))
    }

    /// The uid of the ServiceAccount of this name, no matter who made it; `None` if it does not
    /// exist.
    ///
    /// # Errors
    /// The request failed.
    pub async fn service_account_uid(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<String>, ClusterError> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        let account = api.get_metadata_opt(name).await?;
        Ok(account.map(|account| account.uid().unwrap_or_default()))
    }

    /// Waits until the API server enforces every limit of a ResourceQuota, at most 5 s.
    ///
    /// # Errors
    /// A request failed; [`ClusterError::NotFound`] if there is no such quota, and
    /// [`ClusterError::QuotaNotEnforced`] after 5 s.
    pub async fn wait_for_quota(&self, namespace: &str, quota: &str) -> Result<(), ClusterError> {
        let mut pause = MIN_QUOTA_POLL_INTERVAL;
        let enforced = async {
            while !self.quota_is_enforced(namespace, quota).await? {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_QUOTA_POLL_INTERVAL);
            }
            Ok(())
        };
        let late = |_| {
            let (namespace, quota) = (namespace.to_owned(), quota.to_owned());
            Err(ClusterError::QuotaNotEnforced { namespace, quota })
        };
        tokio::time::timeout(QUOTA_TIMEOUT, enforced).await.unwrap_or_else(late)
    }

    /// Whether the API server enforces every limit of a ResourceQuota. Quota admission reads
    /// `status.hard`, which the quota controller writes some time after the quota is created, and
    /// admits every resource that is not in it.
    pub(in crate::cluster) async fn quota_is_enforced(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<bool, ClusterError> {
        let api: Api<ResourceQuota> = Api::namespaced(self.client(), namespace);
        let quota = api.get(name).await?;
        let wanted = quota.spec.and_then(|spec| spec.hard);
        let enforced = quota.status.and_then(|status| status.hard);
        Ok(same_amounts(wanted.as_ref(), enforced.as_ref()))
    }
}
