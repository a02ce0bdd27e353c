//! Reads of the objects of one tenant: lists by its label, and RoleBindings by name.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::{
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::RoleBinding,
};
use kube::{Api, Resource, api::ListParams};
use serde::de::DeserializeOwned;

use super::{
    messages::{NamespaceMessage, RoleBindingMessage},
    revoke::segment,
};
use crate::cluster::{
    Cluster, ClusterError,
    pages::{Metadata, Pages, Representation},
};

/// RoleBindings that are read concurrently by name.
const MAX_READS: usize = 8;
/// Names whose requests are in memory.
const MAX_NAMES: usize = 1_000;

impl Cluster {
    /// All objects of a kind with this value of a label, in all namespaces.
    ///
    /// # Errors
    /// A request failed.
    pub async fn list_with_label<K>(&self, label: &str, value: &str) -> Result<Vec<K>, ClusterError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
    {
        self.list_selected(label, value, |_| true).await
    }

    /// Like [`Self::list_with_label`], without the objects that `keep` refuses. They are dropped
    /// with their page, so any number of them does not fill the memory.
    ///
    /// # Errors
    /// See [`Self::list_with_label`].
    pub async fn list_selected<K>(
        &self,
        label: &str,
        value: &str,
        keep: impl Fn(&K) -> bool,
    ) -> Result<Vec<K>, ClusterError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
    {
        let selected = ListParams::default().labels(&format!("{label}={value}"));
        let pages = Pages::new::<K>(self.client(), Representation::Full, selected);
        let select = |object: K| keep(&object).then_some(object);
        Ok(list_within(pages, usize::MAX, select).await?.unwrap_or_default())
    }

    /// The RoleBindings with this value of a label, in all namespaces, without those that `keep`
    /// refuses. `None` if there are more than `max_others` of these: others may have made any number of
    /// them, and the list takes as long. The list is in Protobuf, because a tenant may have thousands.
    ///
    /// # Errors
    /// A request failed.
    pub async fn role_bindings_within(
        &self,
        label: &str,
        value: &str,
        max_others: usize,
        keep: impl Fn(&RoleBinding) -> bool,
    ) -> Result<Option<Vec<RoleBinding>>, ClusterError> {
        let selected = ListParams::default().labels(&format!("{label}={value}"));
        let pages =
            Pages::from_protobuf::<RoleBinding, RoleBindingMessage>(self.client(), selected);
        let select = |binding: RoleBinding| keep(&binding).then_some(binding);
        list_within(pages, max_others, select).await
    }

    /// The namespaces with this value of a label, with their metadata and phase, as `map` leaves them.
    /// What it leaves out is dropped with the page. The list is in Protobuf, because a tenant may have
    /// thousands.
    ///
    /// # Errors
    /// A request failed.
    pub async fn namespaces_with_label(
        &self,
        label: &str,
        value: &str,
        map: impl Fn(Namespace) -> Namespace,
    ) -> Result<Vec<Namespace>, ClusterError> {
        let selected = ListParams::default().labels(&format!("{label}={value}"));
        let pages = Pages::from_protobuf::<Namespace, NamespaceMessage>(self.client(), selected);
        let listed = list_within(pages, usize::MAX, |namespace| Some(map(namespace))).await?;
        Ok(listed.unwrap_or_default())
    }

    /// Names and uids of the ServiceAccounts with this value of a label in a namespace.
    ///
    /// # Errors
    /// A request failed.
    pub async fn service_accounts_in(
        &self,
        namespace: &str,
        (label, value): (&str, &str),
    ) -> Result<Vec<(String, String)>, ClusterError> {
        let selected = ListParams::default().labels(&format!("{label}={value}"));
        let pages = Pages::new::<ServiceAccount>(self.client(), Representation::Metadata, selected)
            .in_namespace::<ServiceAccount>(namespace);
        let listed = list_within(pages, usize::MAX, |it: Metadata| Some(it)).await?;
        let identity = |it: Metadata| Some((it.metadata.name?, it.metadata.uid?));
        Ok(listed.unwrap_or_default().into_iter().filter_map(identity).collect())
    }

    /// The RoleBindings that exist among these, by namespace and name.
    ///
    /// # Errors
    /// A request failed.
    pub async fn role_bindings_named(
        &self,
        named: &[(String, String)],
    ) -> Result<Vec<RoleBinding>, ClusterError> {
        let mut found = Vec::new();
        // There may be any number of names, so their requests are not made in advance.
        for names in named.chunks(MAX_NAMES) {
            let requests: Vec<_> = names
                .iter()
                .map(|(namespace, name)| {
                    let api: Api<RoleBinding> = Api::namespaced(self.client(), namespace);
                    let name = segment(name);
                    async move { api.get_opt(&name).await }
                })
                .collect();
            let read: Vec<Option<RoleBinding>> =
                stream::iter(requests).buffer_unordered(MAX_READS).try_collect().await?;
            found.extend(read.into_iter().flatten());
        }
        Ok(found)
    }
}

async fn list_within<K: Send + 'static>(
    mut pages: Pages<K>,
    max_others: usize,
    select: impl Fn(K) -> Option<K>,
) -> Result<Option<Vec<K>>, ClusterError> {
    let (mut objects, mut others) = (Vec::new(), 0);
    while let Some(page) = pages.next().await? {
        let (listed, kept) = (page.len(), objects.len());
        objects.extend(page.into_iter().filter_map(&select));
        others += listed - (objects.len() - kept);
        if others > max_others && !pages.is_complete() {
            return Ok(None);
        }
    }
    Ok(Some(objects))
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use kube::ResourceExt as _;
    use serde_json::json;

    use super::*;
    use crate::testing::StubApiServer;

    /// An API server whose list of RoleBindings has this many pages, each with a binding `ours` and
    /// 49 others. The token of a page is its number.
    fn server(pages: usize) -> StubApiServer {
        StubApiServer::new(move |request| {
            let number = request.number("continue") + 1;
            let items: Vec<_> = (0..50)
                .map(|item| {
                    let name = if item == 0 { "ours".to_owned() } else { format!("other-{item}") };
                    let role = json!({"apiGroup": "", "kind": "ClusterRole", "name": "view"});
                    json!({"metadata": {"namespace": "solar-a", "name": name}, "roleRef": role})
                })
                .collect();
            let token = if number < pages { number.to_string() } else { String::new() };
            let list = json!({"kind": "RoleBindingList", "apiVersion": "rbac.authorization.k8s.io/v1",
                "metadata": {"continue": token}, "items": items});
            (StatusCode::OK, list)
        })
    }

    async fn list(pages: usize, max_others: usize) -> (Option<usize>, usize) {
        let server = server(pages);
        let is_ours = |binding: RoleBinding| (binding.name_any() == "ours").then_some(binding);
        let selected = ListParams::default().labels("a=b");
        let pages = Pages::new::<RoleBinding>(server.client(), Representation::Full, selected);
        let listed = list_within(pages, max_others, is_ours).await.unwrap();
        (listed.map(|all| all.len()), server.requests().len())
    }

    /// Owners could make a list take longer than a run.
    #[tokio::test]
    async fn a_list_with_many_objects_of_others_is_given_up() {
        assert_eq!(list(3, 200).await, (Some(3), 3));
        assert_eq!(list(1000, 200).await, (None, 5));
        assert_eq!(list(30, usize::MAX).await, (Some(30), 30));
        // They are all read already.
        assert_eq!(list(1, 10).await, (Some(1), 1));
    }
}
