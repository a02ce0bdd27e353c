//! Revocation of access in the cluster; every step is idempotent.

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
use tenant_shared::{ROLE_BINDING_NAME, SUSPENDED_LABEL};

use crate::cluster::{Cluster, ClusterError};

/// RoleBindings of a page, as metadata. Each has up to 1.5 MiB, and a page is in memory as a whole.
const PAGE_SIZE: u32 = 50;
/// The number of list requests for RoleBindings until two in a row have to be empty.
const MAX_ROUNDS: u32 = 500;
/// Pause between rounds, because another API server may lag behind by as much.
const ROUND_INTERVAL: Duration = Duration::from_millis(50);
/// RoleBindings that are deleted or lose their finalizers concurrently. It is the number that the
/// quota allows, so that a slow admission webhook delays the broker once.
const MAX_IN_FLIGHT: usize = 20;
/// The number of requests that remove the finalizers of one object, because each may conflict with
/// a concurrent change.
const MAX_FINALIZER_ATTEMPTS: u32 = 5;
/// Pause before the next of these requests.
const FINALIZER_INTERVAL: Duration = Duration::from_millis(50);
/// The characters that are percent-encoded in a path segment (RFC 3986 section 3.3). The API server
/// accepts nearly any name for RBAC objects, including `?` and spaces.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl Cluster {
    /// Sets the suspended label on a workspace's namespace, or removes it; with a uid, only on a
    /// namespace of this uid.
    ///
    /// # Errors
    /// The request failed; [`ClusterError::Conflict`] if the namespace has another uid.
    pub async fn mark_suspended(
        &self,
        namespace: &str,
        uid: Option<&str>,
        suspended: bool,
    ) -> Result<(), ClusterError> {
        let api: Api<Namespace> = Api::all(self.client());
        let value = if suspended { json!("true") } else { json!(null) };
        let mut patch = json!({"metadata": {"labels": {SUSPENDED_LABEL: value}}});
        if let Some(uid) = uid {
            patch["metadata"]["uid"] = json!(uid);
        }
        api.patch(namespace, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Deletes all RoleBindings of a namespace, in rounds until two lists are empty: a 404 proves
    /// nothing, because the tenant may have renamed the binding, and another API server may have
    /// accepted a new one that the first list does not show yet. The broker's own binding, which
    /// gives the issued tokens their role, is deleted without waiting for the list.
    ///
    /// Each binding is deleted with its own request, because the API server stops the deletion of a
    /// collection at the first object whose deletion is refused. A binding that is held by a
    /// finalizer or a dependent grants its role until it is gone. So bindings are deleted with
    /// background propagation, and those that still exist lose their finalizers.
    ///
    /// Returns how many were deleted, without the broker's own one.
    ///
    /// # Errors
    /// Some bindings still exist after all rounds; in one round, no binding could be deleted.
    pub async fn delete_role_bindings(&self, namespace: &str) -> Result<usize, ClusterError> {
        let api: Api<RoleBinding> = Api::namespaced(self.client(), namespace);
        let (ours, others) = tokio::join!(
            delete_if_exists(&api, ROLE_BINDING_NAME, None),
            delete_all(&api, namespace)
        );
        // If our own binding could not be deleted, the rounds have tried it as well.
        others.or_else(|error| ours.and(Err(error)))
    }

    /// Deletes the ServiceAccount of this name, so that its tokens stay invalid when a new one is
    /// created, and removes the finalizers that hold it. With a uid, only a ServiceAccount of this
    /// uid is deleted.
    ///
    /// # Errors
    /// The request failed.
    pub async fn delete_service_account(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
    ) -> Result<(), ClusterError> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        match delete_if_exists(&api, name, uid).await? {
            Some(held) if !held.finalizers().is_empty() => {
                remove_finalizers(&api, name, held.uid().as_deref()).await
            }
            _ => Ok(()),
        }
    }
}

/// Deletes RoleBindings in rounds until two lists are empty. Returns how many were deleted.
async fn delete_all(api: &Api<RoleBinding>, namespace: &str) -> Result<usize, ClusterError> {
    let (mut empty_lists, mut deleted, mut next) = (0, 0, None);
    for round in 0..MAX_ROUNDS {
        if round > 0 {
            tokio::time::sleep(ROUND_INTERVAL).await;
        }
        let page = ListParams { continue_token: next.take(), ..ListParams::default() };
        let is_first_page = page.continue_token.is_none();
        let page = api.list_metadata(&page.limit(PAGE_SIZE)).await?;
        let (left, further) = (page.items, page.metadata.continue_);
        if left.is_empty() {
            empty_lists += u32::from(is_first_page);
            if empty_lists == 2 {
                return Ok(deleted);
            }
            continue;
        }
        empty_lists = 0;
        let results: Vec<_> = stream::iter(left)
            .map(|binding| delete_or_remove_finalizers(api.clone(), binding))
            .buffer_unordered(MAX_IN_FLIGHT)
            .collect()
            .await;
        // As long as some are deleted, the next round tries the others again. A page of bindings that
        // cannot be deleted does not protect those behind it.
        if results.iter().all(Result::is_err) {
            next = further.filter(|token| !token.is_empty());
            if next.is_some() {
                continue;
            }
            return results.into_iter().collect::<Result<(), _>>().map(|()| deleted);
        }
        deleted += results.iter().filter(|result| result.is_ok()).count();
    }
    Err(ClusterError::Conflict(format!("RoleBindings keep appearing in {namespace}")))
}

/// Deletes an object; removes the finalizers of one that is being deleted.
async fn delete_or_remove_finalizers<K>(
    api: Api<K>,
    existing: PartialObjectMeta<K>,
) -> Result<(), ClusterError>
where
    K: Clone
        + DeserializeOwned
        + Debug
        + Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    let (name, uid) = (existing.name_any(), existing.uid());
    if existing.metadata.deletion_timestamp.is_some() && !existing.finalizers().is_empty() {
        remove_finalizers(&api, &name, uid.as_deref()).await
    } else {
        delete_if_exists(&api, &name, uid.as_deref()).await.map(drop)
    }
}

/// Removes all finalizers of an object of this uid, which completes a deletion in progress. An
/// object that is gone, or has another uid by now, counts as done.
///
/// # Errors
/// The request failed; [`ClusterError::Conflict`] if the object still exists after
/// [`MAX_FINALIZER_ATTEMPTS`] requests that conflicted.
pub(in crate::cluster) async fn remove_finalizers<K>(
    api: &Api<K>,
    name: &str,
    uid: Option<&str>,
) -> Result<(), ClusterError>
where
    K: Clone + DeserializeOwned + Debug + Resource<Scope = NamespaceResourceScope>,
{
    let patch = Patch::Merge(json!({"metadata": {"uid": uid, "finalizers": null}}));
    let (segment, parameters) = (segment(name), PatchParams::default());
    let mut attempt = 1;
    loop {
        match api.patch_metadata(&segment, &parameters, &patch).await.map_err(ClusterError::from) {
            Ok(_) | Err(ClusterError::NotFound(_)) => return Ok(()),
            // The uid differs, a concurrent change interfered, or a webhook refused with 409.
            Err(error @ ClusterError::Conflict(_)) => {
                if !exists(api, name, uid).await? {
                    return Ok(());
                }
                if attempt == MAX_FINALIZER_ATTEMPTS {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        attempt += 1;
        tokio::time::sleep(FINALIZER_INTERVAL).await;
    }
}

/// Whether an object of this name exists; with a uid, whether the object has this uid.
async fn exists<K>(api: &Api<K>, name: &str, uid: Option<&str>) -> Result<bool, ClusterError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let existing = api.get_metadata_opt(&segment(name)).await?;
    Ok(existing.is_some_and(|existing| uid.is_none() || existing.metadata.uid.as_deref() == uid))
}

/// A name, percent-encoded because kube puts names into paths unchanged.
pub(in crate::cluster) fn segment(name: &str) -> String {
    utf8_percent_encode(name, SEGMENT).to_string()
}

/// Deletes an object, if it exists. With a uid, only an object of this uid is deleted; another one
/// in its place counts as deleted. Returns the object if the API server returned it, for example
/// because a finalizer holds it.
pub(in crate::cluster) async fn delete_if_exists<K>(
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
        Ok(response) => Ok(response.left()),
        Err(ClusterError::NotFound(_)) => Ok(None),
        // Not only the precondition answers 409: a webhook may refuse with any status.
        Err(error @ ClusterError::Conflict(_)) if uid.is_some() => {
            if exists(api, name, uid).await? { Err(error) } else { Ok(None) }
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, StatusCode};
    use tenant_shared::SERVICE_ACCOUNT_NAME;

    use super::*;
    use crate::testing::{StubApiServer, StubResponse, status};

    /// The ServiceAccount with this uid.
    fn account(uid: &str) -> StubResponse {
        let metadata = json!({"name": SERVICE_ACCOUNT_NAME, "uid": uid, "finalizers": ["a/b"]});
        (StatusCode::OK, json!({"metadata": metadata}))
    }

    fn conflict() -> StubResponse {
        status(StatusCode::CONFLICT, "Conflict")
    }

    fn not_found() -> StubResponse {
        status(StatusCode::NOT_FOUND, "NotFound")
    }

    /// Removes the finalizers of the ServiceAccount with the uid `old` at an API server with these
    /// responses. Returns also the methods of the requests.
    async fn remove(
        responses: impl IntoIterator<Item = StubResponse>,
    ) -> (Result<(), ClusterError>, Vec<Method>) {
        let server = StubApiServer::in_order(responses);
        let api: Api<ServiceAccount> = Api::namespaced(server.client(), "tenant-a");
        let result = remove_finalizers(&api, SERVICE_ACCOUNT_NAME, Some("old")).await;
        (result, server.requests().into_iter().map(|request| request.method).collect())
    }

    #[tokio::test]
    async fn an_object_that_is_gone_or_replaced_needs_no_removal_of_finalizers() {
        for (responses, requests) in [
            (vec![account("old")], vec![Method::PATCH]),
            (vec![not_found()], vec![Method::PATCH]),
            (vec![conflict(), not_found()], vec![Method::PATCH, Method::GET]),
            (vec![conflict(), account("new")], vec![Method::PATCH, Method::GET]),
        ] {
            let (result, methods) = remove(responses).await;
            assert!(result.is_ok(), "{result:?}");
            assert_eq!(methods, requests);
        }
    }

    #[tokio::test]
    async fn a_conflict_with_a_concurrent_change_is_retried() {
        let (result, methods) = remove([conflict(), account("old"), account("old")]).await;
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(methods, [Method::PATCH, Method::GET, Method::PATCH]);
    }

    #[tokio::test]
    async fn an_object_that_keeps_its_finalizers_is_an_error() {
        let conflicts = (0..MAX_FINALIZER_ATTEMPTS).flat_map(|_| [conflict(), account("old")]);
        let (result, methods) = remove(conflicts).await;
        assert!(matches!(result, Err(ClusterError::Conflict(_))), "{result:?}");
        let requests = (0..MAX_FINALIZER_ATTEMPTS).flat_map(|_| [Method::PATCH, Method::GET]);
        assert_eq!(methods, requests.collect::<Vec<_>>());
        let refused = status(StatusCode::FORBIDDEN, "Forbidden");
        let (result, methods) = remove([conflict(), refused]).await;
        assert!(matches!(result, Err(ClusterError::Refused(_))), "{result:?}");
        assert_eq!(methods, [Method::PATCH, Method::GET]);
    }
}
