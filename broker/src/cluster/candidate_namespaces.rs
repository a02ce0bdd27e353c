//! Names of namespaces that RBAC may let a user read, with the broker's credential. They are no
//! answer to anybody: whoever asks for them reads each with the user's own token.

use std::collections::BTreeSet;

use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{RoleBinding, Subject},
};
use kube::{
    Resource as _,
    api::ListParams,
    client::Body,
    core::{Request, Status},
};
use serde::Deserialize;

use super::{Cluster, ClusterError, UserInfo};

/// RoleBindings of a page and its largest body in bytes, from the usual page to the smallest. Tenants may
/// make each RoleBinding as large as 1.5 MiB, which is up to six times as much in JSON.
const PAGES: [(u32, usize); 4] =
    [(500, 4 * 1024 * 1024), (50, 4 * 1024 * 1024), (5, 16 * 1024 * 1024), (1, 16 * 1024 * 1024)];
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
        let (mut names, mut next, mut size) = (BTreeSet::new(), None, 0);
        loop {
            let Some((limit, max_bytes)) = PAGES.get(size) else {
                return Err(kube::Error::Service("a RoleBinding is too large".into()).into());
            };
            let page = ListParams { continue_token: next.clone(), ..ListParams::default() };
            let Some(found) = self.binding_page(&page.limit(*limit), *max_bytes).await? else {
                size += 1;
                continue;
            };
            // A few large objects do not make the rest of the list slow.
            size = size.saturating_sub(1);
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

    /// A page of RoleBindings; `None` if it has more bytes than the limit.
    async fn binding_page(
        &self,
        page: &ListParams,
        max_bytes: usize,
    ) -> Result<Option<BindingPage>, ClusterError> {
        let request = Request::new(RoleBinding::url_path(&(), None)).list(page);
        let request = request.map_err(kube::Error::BuildRequest)?;
        let response = self.client().send(request.map(Body::from)).await?;
        let status = response.status();
        let body = match Limited::new(response.into_body(), max_bytes).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => return Ok(None),
            Err(error) => return Err(kube::Error::Service(error).into()),
        };
        if !status.is_success() {
            let text = String::from_utf8_lossy(&body);
            let parsed: Option<Status> = serde_json::from_slice(&body).ok();
            let refusal =
                parsed.unwrap_or_else(|| Status::failure(&text, "").with_code(status.as_u16()));
            return Err(kube::Error::Api(refusal.boxed()).into());
        }
        // A large page takes milliseconds.
        let parsed = tokio::task::spawn_blocking(move || serde_json::from_slice(&body)).await;
        let parsed = parsed.map_err(|error| kube::Error::Service(error.into()))?;
        Ok(Some(parsed.map_err(kube::Error::SerdeError)?))
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
