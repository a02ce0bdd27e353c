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

/// RoleBindings of a page, from the usual page to the smallest. Tenants may make each RoleBinding as
/// large as 1.5 MiB.
const PAGE_SIZES: [u32; 4] = [500, 50, 5, 1];
/// The largest page of RoleBindings, in bytes.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;
/// The largest page of their metadata, in bytes. One object has up to 1.5 MiB of it, which is up to six
/// times as much in JSON.
const MAX_METADATA_BYTES: usize = 16 * 1024 * 1024;
/// Pages that have to fit before the next one is larger. The number doubles with each page that does not
/// fit.
const MIN_FITTING_PAGES: u32 = 8;
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
        let (mut names, mut next, mut size) = (BTreeSet::new(), None, PageSize::default());
        loop {
            let page = ListParams { continue_token: next.clone(), ..ListParams::default() };
            let found = if let Some(found) = self.binding_page(&page, &mut size).await? {
                let is_bound = |binding: &Binding| {
                    let namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
                    let mut subjects = binding.subjects.iter().flatten();
                    subjects.any(|subject| is_subject(subject, user, namespace))
                };
                let items = found.items.into_iter().flatten().filter(is_bound).collect();
                BindingPage { items: Some(items), ..found }
            } else {
                // Every namespace in it is a candidate. That gives nobody anything, because each is
                // read as the user, and costs less than to read the page again in parts.
                self.binding_metadata(&page, &mut size).await?
            };
            let items = found.items.into_iter().flatten();
            names.extend(items.filter_map(|binding| binding.metadata.namespace));
            next = found.metadata.continue_token.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(names);
            }
        }
    }

    /// A page of RoleBindings; `None` if it is too large.
    async fn binding_page(
        &self,
        page: &ListParams,
        size: &mut PageSize,
    ) -> Result<Option<BindingPage>, ClusterError> {
        let page = page.clone().limit(size.limit());
        let request = Request::new(RoleBinding::url_path(&(), None)).list(&page);
        let found = self.limited_page(request, MAX_PAGE_BYTES).await?;
        if found.is_some() {
            size.fits();
        }
        Ok(found)
    }

    /// The metadata of the RoleBindings of a page that is too large, or of the first of them.
    async fn binding_metadata(
        &self,
        page: &ListParams,
        size: &mut PageSize,
    ) -> Result<BindingPage, ClusterError> {
        let mut limit = Some(size.limit());
        while let Some(at_most) = limit {
            let page = page.clone().limit(at_most);
            limit = size.shrink();
            let request = Request::new(RoleBinding::url_path(&(), None)).list_metadata(&page);
            if let Some(found) = self.limited_page(request, MAX_METADATA_BYTES).await? {
                return Ok(found);
            }
        }
        Err(kube::Error::Service("a RoleBinding is too large".into()).into())
    }

    /// A page; `None` if it has more bytes than the limit.
    async fn limited_page(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
        max_bytes: usize,
    ) -> Result<Option<BindingPage>, ClusterError> {
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

/// The size of the next page. The API server encodes a page completely before its first byte is read, so
/// larger pages are tried rarely once one did not fit.
#[derive(Debug)]
struct PageSize {
    index: usize,
    fitting: u32,
    min_fitting: u32,
}

impl Default for PageSize {
    fn default() -> Self {
        Self { index: 0, fitting: 0, min_fitting: MIN_FITTING_PAGES }
    }
}

impl PageSize {
    fn limit(&self) -> u32 {
        PAGE_SIZES.get(self.index).copied().unwrap_or(1)
    }

    /// A page of this size was small enough.
    fn fits(&mut self) {
        self.fitting = self.fitting.saturating_add(1);
        if self.fitting >= self.min_fitting {
            (self.index, self.fitting) = (self.index.saturating_sub(1), 0);
        }
    }

    /// A page of this size was too large. Returns the next smaller size; `None` if there is none.
    fn shrink(&mut self) -> Option<u32> {
        (self.fitting, self.min_fitting) = (0, self.min_fitting.saturating_mul(2));
        let smaller = PAGE_SIZES.get(self.index + 1).copied()?;
        self.index += 1;
        Some(smaller)
    }
}

/// A page of RoleBindings, of which nothing else is read.
#[derive(Debug, Deserialize)]
struct BindingPage {
    metadata: PageMeta,
    /// Null in an empty list of metadata.
    items: Option<Vec<Binding>>,
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
    fn pages_shrink_at_once_and_grow_rarely() {
        let mut size = PageSize::default();
        for _ in 0..100 {
            size.fits();
        }
        assert_eq!(size.limit(), 500);
        assert_eq!((size.shrink(), size.shrink()), (Some(50), Some(5)));
        for _ in 1..32 {
            size.fits();
        }
        assert_eq!(size.limit(), 5);
        size.fits();
        assert_eq!(size.limit(), 50);
        assert_eq!((size.shrink(), size.shrink(), size.shrink()), (Some(5), Some(1), None));
        assert_eq!(size.limit(), 1);
        // Among a million objects that do not fit only a few larger pages are tried.
        let (mut size, mut too_large) = (PageSize::default(), 0);
        for _ in 0..1_000_000 {
            if size.limit() > 1 {
                size.shrink();
                too_large += 1;
            } else {
                size.fits();
            }
        }
        assert!(too_large < 20, "{too_large}");
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
