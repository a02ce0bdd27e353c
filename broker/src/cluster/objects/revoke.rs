//! Revocation of access in the cluster; every step is idempotent.

use std::{collections::BTreeSet, fmt::Debug, ops::ControlFlow, time::Duration};

use futures_util::{
    FutureExt as _, StreamExt as _, TryStreamExt as _,
    future::{self, BoxFuture},
    stream,
};
use http::{Request, header};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{Namespace, ServiceAccount},
        rbac::v1::RoleBinding,
    },
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenant_shared::{ROLE_BINDING_NAME, SUSPENDED_LABEL};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    deletion_rounds::{DeletionRounds, TooManyRounds},
    object_identity::{ObjectIdentity, send_for_status},
};
use crate::cluster::{
    Cluster, ClusterError,
    pages::{Pages, Representation},
};

/// Responses with large objects that this process reads at once. Each is up to 16 MiB of JSON.
const MAX_LARGE_RESPONSES: usize = 4;
static LARGE_RESPONSES: Semaphore = Semaphore::const_new(MAX_LARGE_RESPONSES);
/// The number of lists of RoleBindings until two in a row have to be empty.
const MAX_ROUNDS: u32 = 500;
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

    /// Sets the suspended label on a namespace with these labels, of which those that are `None` must
    /// not exist, in one request (RFC 6902, `test`; the API server takes a missing value for null).
    /// Returns false if the namespace has others, or does not exist, or if a policy refused.
    ///
    /// # Errors
    /// The request failed.
    pub async fn mark_suspended_if_labelled(
        &self,
        namespace: &str,
        labels: &[(&str, Option<&str>)],
    ) -> Result<bool, ClusterError> {
        let path = |label: &str| {
            format!("/metadata/labels/{}", label.replace('~', "~0").replace('/', "~1"))
        };
        let tests = labels
            .iter()
            .map(|(label, value)| json!({"op": "test", "path": path(label), "value": value}));
        let add = json!({"op": "add", "path": path(SUSPENDED_LABEL), "value": "true"});
        let operations: Vec<Value> = tests.chain([add]).collect();
        let request = Request::patch(format!("/api/v1/namespaces/{}", segment(namespace)))
            .header(header::CONTENT_TYPE, "application/json-patch+json")
            .body(json!(operations).to_string().into_bytes())
            .map_err(|error| ClusterError::from(kube::Error::Service(error.into())))?;
        match self.client().request_text(request).await {
            Ok(_) => Ok(true),
            // 422 is a `test` that fails, or a policy without a reason.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 422) => Ok(false),
            Err(error) => Err(error.into()),
        }
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
    /// # Errors
    /// Some bindings still exist after all rounds; in one round, no binding could be deleted.
    pub async fn delete_role_bindings(&self, namespace: &str) -> Result<(), ClusterError> {
        let api: Api<RoleBinding> = Api::namespaced(self.client(), namespace);
        let kept = BTreeSet::new();
        let (ours, others) = tokio::join!(
            delete_if_exists(&api, ROLE_BINDING_NAME, None),
            self.delete_role_bindings_except(namespace, &kept, |_| future::ready(()).boxed())
        );
        // If our own binding could not be deleted, the rounds have tried it as well.
        others.or_else(|error| ours.and(Err(error)))
    }

    /// Like [`Self::delete_role_bindings`], for all RoleBindings but those of these names. The names of
    /// each page are given to `record`, and deleted once its future has ended: what a process that crashes
    /// has deleted is on record.
    ///
    /// # Errors
    /// As [`Self::delete_role_bindings`].
    pub async fn delete_role_bindings_except(
        &self,
        namespace: &str,
        kept: &BTreeSet<&str>,
        record: impl Fn(Vec<String>) -> BoxFuture<'static, ()> + Send + Sync,
    ) -> Result<(), ClusterError> {
        let api: Api<RoleBinding> = Api::namespaced(self.client(), namespace);
        let mut pages = bindings_in(self.client(), namespace);
        let mut rounds = DeletionRounds::at_most(MAX_ROUNDS);
        loop {
            let (deleted, failure) = delete_listed(&api, &mut pages, kept, &record).await;
            // As long as some are deleted, the next round tries the others again.
            let was_empty = deleted == 0 && failure.is_none();
            if let Some(error) = failure.filter(|_| deleted == 0) {
                return Err(error);
            }
            match rounds.end_round(was_empty).await {
                Ok(ControlFlow::Break(())) => return Ok(()),
                Ok(ControlFlow::Continue(())) => pages.restart(),
                Err(TooManyRounds) => {
                    let text = format!("RoleBindings keep appearing in {namespace}");
                    return Err(ClusterError::Conflict(text));
                }
            }
        }
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

/// Waits until a response with large objects may be read: others may make each RoleBinding as large as
/// the API server accepts, and revocations of many namespaces take place at once.
async fn large_response() -> Option<SemaphorePermit<'static>> {
    // It is never closed.
    LARGE_RESPONSES.acquire().await.ok()
}

/// All RoleBindings in a namespace.
pub(in crate::cluster) fn bindings_in(client: Client, namespace: &str) -> Pages<ObjectIdentity> {
    Pages::protobuf::<RoleBinding>(client, Representation::Metadata, ListParams::default())
        .in_namespace::<RoleBinding>(namespace)
        .with_small_pages()
}

/// Deletes the objects of a list. Returns the number of deletions and the first error.
async fn delete_listed(
    api: &Api<RoleBinding>,
    pages: &mut Pages<ObjectIdentity>,
    kept: &BTreeSet<&str>,
    record: &(impl Fn(Vec<String>) -> BoxFuture<'static, ()> + Send + Sync),
) -> (usize, Option<ClusterError>) {
    // A page of large bindings has few of them, so the next one is read meanwhile.
    let listed = stream::try_unfold(pages, |pages| async {
        let Some(mut page) = next_page(pages).await? else { return Ok(None) };
        page.retain(|binding| !kept.contains(binding.name().as_str()));
        if !page.is_empty() {
            record(page.iter().map(ObjectIdentity::name).collect()).await;
        }
        Ok::<_, ClusterError>(Some((stream::iter(page).map(Ok::<_, ClusterError>), pages)))
    });
    // A binding that cannot be deleted does not protect those behind it.
    let mut results = listed
        .try_flatten()
        .map(|binding| {
            let api = api.clone();
            async move { delete_or_remove_finalizers(&api, &binding?).await }
        })
        .buffer_unordered(MAX_IN_FLIGHT)
        .boxed();
    let (mut deleted, mut failure) = (0, None);
    while let Some(result) = results.next().await {
        match result {
            Ok(()) => deleted += 1,
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    (deleted, failure)
}

async fn next_page(
    pages: &mut Pages<ObjectIdentity>,
) -> Result<Option<Vec<ObjectIdentity>>, ClusterError> {
    let _permit = large_response().await;
    Ok(pages.next().await?)
}

/// Deletes an object; removes the finalizers of one that is being deleted.
async fn delete_or_remove_finalizers<K>(
    api: &Api<K>,
    existing: &ObjectIdentity,
) -> Result<(), ClusterError>
where
    K: Clone + DeserializeOwned + Debug + Resource<Scope = NamespaceResourceScope>,
{
    let (name, uid) = (existing.name(), existing.uid());
    if existing.is_held() {
        return remove_finalizers(api, &name, uid).await;
    }
    let request = requests_of(api).delete(&segment(&name), &delete_params(uid));
    let request = request.map_err(kube::Error::BuildRequest)?;
    let deleted = send_for_status(&api.clone().into_client(), request).await;
    ignore_missing(api, &name, uid, deleted).await
}

/// The requests for objects of a kind.
fn requests_of<K: Resource>(api: &Api<K>) -> kube::core::Request {
    kube::core::Request::new(api.resource_url())
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
    // Managers that are reset are not compared with the change.
    let metadata = json!({"uid": uid, "finalizers": null, "managedFields": [{}]});
    let patch = Patch::Merge(json!({"metadata": metadata}));
    let (segment, parameters) = (segment(name), PatchParams::default());
    let mut attempt = 1;
    loop {
        let request = requests_of(api).patch(&segment, &parameters, &patch);
        let request = request.map_err(kube::Error::BuildRequest)?;
        match send_for_status(&api.clone().into_client(), request).await {
            Ok(()) | Err(ClusterError::NotFound(_)) => return Ok(()),
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
    let _permit = large_response().await;
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
    match api.delete(&segment(name), &delete_params(uid)).await.map_err(ClusterError::from) {
        Ok(response) => Ok(response.left()),
        Err(error) => ignore_missing(api, name, uid, Err(error)).await.map(|()| None),
    }
}

/// How objects are deleted; with a uid, only an object of this uid.
fn delete_params(uid: Option<&str>) -> DeleteParams {
    let preconditions =
        uid.map(|uid| Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() });
    DeleteParams { preconditions, ..DeleteParams::background() }
}

/// The result of a deletion, without the error for an object that does not exist; with a uid, also
/// for one that has another uid.
async fn ignore_missing<K>(
    api: &Api<K>,
    name: &str,
    uid: Option<&str>,
    deleted: Result<(), ClusterError>,
) -> Result<(), ClusterError>
where
    K: Clone + DeserializeOwned + Debug,
{
    match deleted {
        Err(ClusterError::NotFound(_)) => Ok(()),
        // Not only the precondition answers 409: a webhook may refuse with any status.
        Err(error @ ClusterError::Conflict(_)) if uid.is_some() => {
            if exists(api, name, uid).await? { Err(error) } else { Ok(()) }
        }
        result => result,
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
