//! Names of namespaces that RBAC may let a user read, with the broker's credential. They are no
//! answer to anybody: whoever asks for them reads each with the user's own token.

use std::collections::BTreeSet;

use http_body_util::{BodyExt as _, Limited};
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{RoleBinding, Subject},
};
use kube::{Api, Resource as _, api::ListParams, client::Body, core::Request};
use serde::Deserialize;

use super::{Cluster, ClusterError, UserInfo, page_size};

/// RoleBindings of a page, while they are as small as usual.
const LARGE_PAGE: u32 = 500;
/// The largest body of such a page, in bytes.
const MAX_LARGE_PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Beginning of the user names of ServiceAccounts.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

impl Cluster {
    /// The names of all namespaces.
    ///
    /// # Errors
    /// A request failed.
    pub async fn namespace_names(&self) -> Result<BTreeSet<String>, ClusterError> {
        let mut names = BTreeSet::new();
        self.list_metadata(
            &ListParams::default(),
            |namespace: kube::core::PartialObjectMeta<Namespace>| {
                names.extend(namespace.metadata.name);
            },
        )
        .await?;
        Ok(names)
    }

    /// The namespaces with a RoleBinding that has the user, one of their groups or their
    /// ServiceAccount as a subject, whatever it gives.
    ///
    /// # Errors
    /// A request failed.
    pub async fn namespaces_that_bind(
        &self,
        user: &UserInfo,
    ) -> Result<BTreeSet<String>, ClusterError> {
        let (mut names, mut next, mut is_large) = (BTreeSet::new(), None, true);
        loop {
            let page = ListParams { continue_token: next, ..ListParams::default() };
            let large = if is_large { self.large_page(&page).await? } else { None };
            is_large = large.is_some();
            let found = match large {
                Some(found) => found,
                None => self.small_page(page).await?,
            };
            for Binding { metadata: BindingMeta { namespace }, subjects } in found.items {
                let namespace = namespace.unwrap_or_default();
                let mut subjects = subjects.iter().flatten();
                if subjects.any(|subject| is_subject(subject, user, &namespace)) {
                    names.insert(namespace);
                }
            }
            next = found.metadata.continue_token.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(names);
            }
        }
    }

    /// A page of many RoleBindings; `None` if it has more bytes than the limit, because tenants may
    /// make RoleBindings large, or if it cannot be read: a small page says why.
    async fn large_page(&self, page: &ListParams) -> Result<Option<BindingPage>, ClusterError> {
        let page = page.clone().limit(LARGE_PAGE);
        let path = RoleBinding::url_path(&(), None);
        let Ok(request) = Request::new(path).list(&page) else { return Ok(None) };
        let response = self.client().send(request.map(Body::from)).await?;
        if !response.status().is_success() {
            return Ok(None);
        }
        let body = Limited::new(response.into_body(), MAX_LARGE_PAGE_BYTES).collect().await;
        Ok(body.ok().and_then(|body| serde_json::from_slice(&body.to_bytes()).ok()))
    }

    async fn small_page(&self, page: ListParams) -> Result<BindingPage, ClusterError> {
        let api: Api<RoleBinding> = Api::all(self.client());
        let found = api.list(&page.limit(page_size::listed::<RoleBinding>())).await?;
        let items = found.items.into_iter().map(|binding| Binding {
            metadata: BindingMeta { namespace: binding.metadata.namespace },
            subjects: binding.subjects,
        });
        let metadata = PageMeta { continue_token: found.metadata.continue_ };
        Ok(BindingPage { metadata, items: items.collect() })
    }
}

/// A page of RoleBindings, of which nothing else is read.
#[derive(Debug, Deserialize)]
struct BindingPage {
    metadata: PageMeta,
    items: Vec<Binding>,
}

#[derive(Debug, Deserialize)]
struct PageMeta {
    #[serde(rename = "continue")]
    continue_token: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Binding {
    metadata: BindingMeta,
    subjects: Option<Vec<Subject>>,
}

#[derive(Debug, Deserialize)]
struct BindingMeta {
    namespace: Option<String>,
}

/// Whether a subject of a RoleBinding in this namespace is the user. A ServiceAccount without a
/// namespace is one of the binding's.
fn is_subject(subject: &Subject, user: &UserInfo, namespace: &str) -> bool {
    match subject.kind.as_str() {
        "User" => subject.name == user.user,
        "Group" => user.groups.contains(&subject.name),
        "ServiceAccount" => {
            let own = subject.namespace.as_deref().filter(|own| !own.is_empty());
            let account = user.user.strip_prefix(SERVICE_ACCOUNT_PREFIX);
            let account = account.and_then(|account| account.split_once(':'));
            account == Some((own.unwrap_or(namespace), subject.name.as_str()))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(kind: &str, name: &str, namespace: Option<&str>) -> Subject {
        let namespace = namespace.map(str::to_owned);
        let (kind, name) = (kind.to_owned(), name.to_owned());
        Subject { kind, name, namespace, ..Subject::default() }
    }

    #[test]
    fn subjects_are_users_groups_and_service_accounts() {
        let user = UserInfo { user: "alice".to_owned(), groups: vec!["dev".to_owned()] };
        let account = UserInfo {
            user: "system:serviceaccount:ns:builder".to_owned(),
            groups: vec!["system:serviceaccounts".to_owned()],
        };
        for (user, subject, expected) in [
            (&user, subject("User", "alice", None), true),
            (&user, subject("Group", "alice", None), false),
            (&user, subject("Group", "dev", None), true),
            (&user, subject("ServiceAccount", "alice", None), false),
            (&account, subject("ServiceAccount", "builder", None), true),
            (&account, subject("ServiceAccount", "builder", Some("")), true),
            (&account, subject("ServiceAccount", "builder", Some("ns")), true),
            (&account, subject("ServiceAccount", "builder", Some("other")), false),
            (&account, subject("User", "system:serviceaccount:ns:builder", None), true),
            (&account, subject("Group", "system:serviceaccounts", None), true),
        ] {
            assert_eq!(is_subject(&subject, user, "ns"), expected, "{subject:?}");
        }
        let elsewhere = subject("ServiceAccount", "builder", None);
        assert!(!is_subject(&elsewhere, &account, "other"));
    }
}
