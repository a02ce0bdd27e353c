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
    api::{DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, Preconditions},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
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
/// RoleBindings that are deleted or released at once. It is the quota's number of them, so that a slow admission
/// webhook holds the broker up once.
const MAX_IN_FLIGHT: usize = 20;
/// What a path segment may not hold as it is (RFC 3986 section 3.3). The API server takes nearly any name for
/// RBAC objects, `?` and spaces among it.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

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

    /// Deletes every RoleBinding of a namespace and lists until none is left in two lists, because a 404
    /// proves nothing (the tenant may have renamed it), and another API server may have taken a new one
    /// that the first list does not show yet. Our own, which carries the people's tokens, does not wait for
    /// the list.
    ///
    /// Each is deleted by itself, because the API server ends the deletion of a collection at the first one
    /// that something refuses. A binding that a finalizer or a dependent holds grants its role until it is
    /// gone, so bindings are deleted in the background, and what is still there loses its finalizers.
    ///
    /// # Errors
    /// Some are still there after all rounds; the cluster's, for one that a round could not delete while it
    /// got no other one away.
    pub async fn delete_role_bindings(&self, namespace: &str) -> Result<(), ClusterError> {
        let api: Api<RoleBinding> = Api::namespaced(self.client.clone(), namespace);
        let (ours, others) = tokio::join!(
            delete_if_there(&api, ROLE_BINDING_NAME, None),
            delete_all(&api, namespace)
        );
        // If ours could not be deleted, the others' list has met it as well.
        others.or_else(|error| ours.map(drop).and(Err(error)))
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
                release(&api, SERVICE_ACCOUNT_NAME, held.uid().as_deref()).await
            }
            _ => Ok(()),
        }
    }
}

/// Deletes RoleBindings in rounds until two lists are empty.
async fn delete_all(api: &Api<RoleBinding>, namespace: &str) -> Result<(), ClusterError> {
    let mut empty_lists = 0;
    for round in 0..MAX_ROUNDS {
        if round > 0 {
            tokio::time::sleep(ROUND_PAUSE).await;
        }
        let left = api.list_metadata(&ListParams::default().limit(MAX_LISTED)).await?.items;
        if left.is_empty() {
            empty_lists += 1;
            if empty_lists == 2 {
                return Ok(());
            }
            continue;
        }
        empty_lists = 0;
        let results: Vec<_> = stream::iter(left)
            .map(|binding| delete_or_release(api.clone(), binding))
            .buffer_unordered(MAX_IN_FLIGHT)
            .collect()
            .await;
        // While some go, the others are met again in the next round.
        if results.iter().all(Result::is_err) {
            return results.into_iter().collect();
        }
    }
    Err(ClusterError::Conflict(format!("RoleBindings keep appearing in {namespace}")))
}

/// Deletes an object that is there; takes the finalizers off one that is being deleted.
async fn delete_or_release<K>(api: Api<K>, there: PartialObjectMeta<K>) -> Result<(), ClusterError>
where
    K: Clone
        + DeserializeOwned
        + Debug
        + Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    let (name, uid) = (there.name_any(), there.uid());
    if there.metadata.deletion_timestamp.is_some() && !there.finalizers().is_empty() {
        release(&api, &name, uid.as_deref()).await
    } else {
        delete_if_there(&api, &name, uid.as_deref()).await.map(drop)
    }
}

/// Takes all finalizers off an object of this uid; one that is being deleted is gone then.
async fn release<K>(api: &Api<K>, name: &str, uid: Option<&str>) -> Result<(), ClusterError>
where
    K: Clone + DeserializeOwned + Debug + Resource<Scope = NamespaceResourceScope>,
{
    let patch = Patch::Merge(json!({"metadata": {"uid": uid, "finalizers": null}}));
    let segment = segment(name);
    match api.patch_metadata(&segment, &PatchParams::default(), &patch).await.map_err(Into::into) {
        Ok(_) | Err(ClusterError::NotFound(_) | ClusterError::Conflict(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A name as kube puts it into a path: as it is.
fn segment(name: &str) -> String {
    utf8_percent_encode(name, SEGMENT).to_string()
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
    match api.delete(&segment(name), &params).await.map_err(ClusterError::from) {
        Ok(answer) => Ok(answer.left()),
        Err(ClusterError::NotFound(_)) => Ok(None),
        Err(ClusterError::Conflict(_)) if uid.is_some() => Ok(None),
        Err(error) => Err(error),
    }
}
