//! Taking rights away, step by step; every step is idempotent.

use std::{fmt::Debug, time::Duration};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{Namespace, ServiceAccount},
        rbac::v1::RoleBinding,
    },
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tenant_shared::{ROLE_BINDING_NAME, SERVICE_ACCOUNT_NAME, SUSPENDED_LABEL};

use super::{Cluster, ClusterError};

/// How often the list of RoleBindings is asked for until it is empty.
const MAX_ROUNDS: u32 = 50;
/// Pause between rounds, because another API server may lag behind by as much.
const ROUND_PAUSE: Duration = Duration::from_millis(50);
/// RoleBindings that one round looks at.
const MAX_LISTED: u32 = 500;
/// Finalizers that are taken off at once.
const MAX_RELEASES_IN_FLIGHT: usize = 8;

impl Cluster {
    /// Puts the suspended label on a workspace's namespace, or takes it off. With a uid only on the
    /// namespace of this uid.
    ///
    /// # Errors
    /// The cluster's; [`ClusterError::Conflict`] if the namespace has another uid.
    pub async fn mark_suspended(
        &self,
        namespace: &str,
        uid: Option<&str>,
        suspended: bool,
    ) -> Result<(), ClusterError> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let value = if suspended { json!("true") } else { json!(null) };
        let mut patch = json!({"metadata": {"labels": {SUSPENDED_LABEL: value}}});
        if let Some(uid) = uid {
            patch["metadata"]["uid"] = json!(uid);
        }
        api.patch(namespace, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Deletes every RoleBinding of a namespace and lists until none is left, because a 404 proves
    /// nothing: the tenant may have renamed it. Our own goes first, which carries the people's tokens,
    /// so that however many a tenant made do not delay it.
    ///
    /// A binding that a finalizer or a dependent holds grants its role until it is gone, so bindings are
    /// deleted in the background, and what is still there loses its finalizers.
    ///
    /// # Errors
    /// Some are still there after all rounds; the cluster's.
    pub async fn delete_role_bindings(&self, namespace: &str) -> Result<(), ClusterError> {
        let api: Api<RoleBinding> = Api::namespaced(self.client.clone(), namespace);
        let ours = ListParams::default().fields(&format!("metadata.name={ROLE_BINDING_NAME}"));
        let background = DeleteParams::background();
        // As a collection, for which the broker has the right anyway. A refusal stops nothing: the
        // rounds below meet it again.
        let first = api.delete_collection(&background, &ours).await;
        let mut failed = first.err().map(ClusterError::from);
        for round in 0..MAX_ROUNDS {
            // The first list is to see whether there are others, the second whether they are gone.
            if round > 1 {
                tokio::time::sleep(ROUND_PAUSE).await;
            }
            let left = match api.list_metadata(&ListParams::default().limit(MAX_LISTED)).await {
                Ok(list) => list.items,
                // What cannot be listed can be deleted all the same.
                Err(error) => {
                    api.delete_collection(&background, &ListParams::default()).await?;
                    return Err(error.into());
                }
            };
            if left.is_empty() {
                return Ok(());
            }
            let held: Vec<String> = left
                .iter()
                .filter(|it| {
                    it.metadata.deletion_timestamp.is_some() && !it.finalizers().is_empty()
                })
                .map(|it| it.name_any())
                .collect();
            let released = stream::iter(held)
                .map(|name| {
                    let api = &api;
                    async move { release(api, &name).await }
                })
                .buffer_unordered(MAX_RELEASES_IN_FLIGHT)
                .collect::<Vec<_>>()
                .await;
            let deleted = api.delete_collection(&background, &ListParams::default()).await;
            let deleted = deleted.map(drop).map_err(ClusterError::from);
            let refused = released.into_iter().chain([deleted]).find_map(Result::err);
            // The same refusal twice will not go away by itself.
            if failed.is_some() && refused.is_some() {
                return Err(refused.or(failed).unwrap_or_else(|| keep_appearing(namespace)));
            }
            failed = refused;
        }
        Err(failed.unwrap_or_else(|| keep_appearing(namespace)))
    }

    /// Deletes the ServiceAccount, so that its tokens stay dead when a new one is made, and takes off the
    /// finalizers that hold it. With a uid only the one of this uid: another one in its place stays.
    ///
    /// # Errors
    /// The cluster's.
    pub async fn delete_service_account(
        &self,
        namespace: &str,
        uid: Option<&str>,
    ) -> Result<(), ClusterError> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        match delete_if_there(&api, SERVICE_ACCOUNT_NAME, uid).await? {
            Some(held) if !held.finalizers().is_empty() => {
                release(&api, SERVICE_ACCOUNT_NAME).await
            }
            _ => Ok(()),
        }
    }
}

fn keep_appearing(namespace: &str) -> ClusterError {
    ClusterError::Conflict(format!("RoleBindings keep appearing in {namespace}"))
}

/// Takes all finalizers off an object; one that is being deleted is gone then.
async fn release<K>(api: &Api<K>, name: &str) -> Result<(), ClusterError>
where
    K: Clone + DeserializeOwned + Debug + Resource<Scope = NamespaceResourceScope>,
{
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    match api.patch_metadata(name, &PatchParams::default(), &patch).await.map_err(Into::into) {
        Ok(_) | Err(ClusterError::NotFound(_) | ClusterError::Conflict(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Deletes an object. With a uid only the one of this uid; it is gone if there is another. Returns the
/// object if the API server showed it, for example because it is still there.
pub(super) async fn delete_if_there<K>(
    api: &Api<K>,
    name: &str,
    uid: Option<&str>,
) -> Result<Option<K>, ClusterError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let preconditions =
        uid.map(|uid| Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() });
    let params = DeleteParams { preconditions, ..DeleteParams::background() };
    match api.delete(name, &params).await.map_err(ClusterError::from) {
        Ok(answer) => Ok(answer.left()),
        Err(ClusterError::NotFound(_)) => Ok(None),
        Err(ClusterError::Conflict(_)) if uid.is_some() => Ok(None),
        Err(error) => Err(error),
    }
}
