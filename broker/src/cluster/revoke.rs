//! Taking rights away, step by step; every step may be run again.

use std::{fmt::Debug, time::Duration};

use k8s_openapi::api::{
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::RoleBinding,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tenant_shared::{ROLE_BINDING_NAME, SERVICE_ACCOUNT_NAME, SUSPENDED_LABEL};
use uuid::Uuid;

use super::{Cluster, ClusterError, object};

/// How often the list of RoleBindings is asked for until it is empty.
const ROUNDS: u32 = 50;
/// Pause between rounds: another API server may lag behind by as much.
const ROUND_PAUSE: Duration = Duration::from_millis(50);

impl Cluster {
    /// Puts the suspended label on a workspace's namespace, or takes it off.
    ///
    /// # Errors
    /// [`ClusterError::Conflict`] if the namespace is not this workspace's.
    pub async fn mark_suspended(
        &self,
        namespace: &str,
        workspace: Uuid,
        suspended: bool,
    ) -> Result<(), ClusterError> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let there = api.get(namespace).await?;
        let mut ours = Namespace::default();
        ours.metadata.labels = Some(object::labels_of(workspace));
        if !object::is_ours(&there, &ours) {
            return Err(ClusterError::Conflict(format!("Namespace {namespace} is not ours")));
        }
        let value = if suspended { json!("true") } else { json!(null) };
        let patch = json!({"metadata": {"labels": {SUSPENDED_LABEL: value}}});
        api.patch(namespace, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Deletes every RoleBinding of a namespace and lists until none is left: one that answers
    /// "not found" proves nothing, for the tenant may have renamed it. Ours, which carries the
    /// people's tokens, goes first: the API server deletes one after the other, and however many a
    /// tenant has made, they do not keep it waiting.
    ///
    /// # Errors
    /// Some are still there after all rounds.
    pub async fn delete_role_bindings(&self, namespace: &str) -> Result<(), ClusterError> {
        let api: Api<RoleBinding> = Api::namespaced(self.client.clone(), namespace);
        let ours = ListParams::default().fields(&format!("metadata.name={ROLE_BINDING_NAME}"));
        // As a collection, for which the broker has the right anyway.
        api.delete_collection(&DeleteParams::default(), &ours).await?;
        for round in 0..ROUNDS {
            // The first list is to see whether there are others, the second whether they are gone.
            if round > 1 {
                tokio::time::sleep(ROUND_PAUSE).await;
            }
            if api.list(&ListParams::default().limit(1)).await?.items.is_empty() {
                return Ok(());
            }
            api.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        }
        Err(ClusterError::Conflict(format!("RoleBindings keep appearing in {namespace}")))
    }

    /// Deletes the ServiceAccount, so that its tokens stay dead when a new one is made. With a uid
    /// only the one of this uid: another one in its place stays.
    ///
    /// # Errors
    /// The cluster's.
    pub async fn delete_service_account(
        &self,
        namespace: &str,
        uid: Option<&str>,
    ) -> Result<(), ClusterError> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        delete_if_there(&api, SERVICE_ACCOUNT_NAME, uid).await
    }
}

/// Deletes an object. With a uid only the one of this uid; it is gone if there is another.
pub(super) async fn delete_if_there<K>(
    api: &Api<K>,
    name: &str,
    uid: Option<&str>,
) -> Result<(), ClusterError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let preconditions =
        uid.map(|uid| Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    match api.delete(name, &params).await.map_err(ClusterError::from) {
        Ok(_) | Err(ClusterError::NotFound(_)) => Ok(()),
        Err(ClusterError::Conflict(_)) if uid.is_some() => Ok(()),
        Err(error) => Err(error),
    }
}
