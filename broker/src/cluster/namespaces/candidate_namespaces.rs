//! Names of namespaces that RBAC may let a user read, with the broker's credential. The list is
//! never sent to a client: each namespace is read again with the user's own token.

use std::collections::BTreeSet;

use k8s_openapi::api::{core::v1::Namespace, rbac::v1::RoleBinding};
use kube::api::ListParams;
use prost::Message;

use crate::cluster::{
    Cluster, ClusterError, UserInfo,
    pages::{Pages, Representation},
};

/// Beginning of the user names of ServiceAccounts.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

impl Cluster {
    /// The names of all namespaces.
    ///
    /// # Errors
    /// A request failed.
    pub async fn namespace_names(&self) -> Result<BTreeSet<String>, ClusterError> {
        let mut names = BTreeSet::new();
        self.list_metadata::<Namespace>(&ListParams::default(), |metadata| {
            names.extend(metadata.name);
        })
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
        let mut names = BTreeSet::new();
        // All RoleBindings of a cluster are half as many bytes as in JSON.
        let mut pages: Pages<Binding> = Pages::protobuf::<RoleBinding>(
            self.client(),
            Representation::Full,
            ListParams::default(),
        );
        while let Some((bindings, is_full)) = pages.next_or_metadata().await? {
            for Binding { metadata, subjects } in bindings {
                let namespace = metadata.unwrap_or_default().namespace;
                let mut subjects = subjects.iter();
                // Without subjects, every namespace is a candidate. That gives nobody anything,
                // because each is read as the user.
                if !is_full || subjects.any(|subject| is_subject(subject, user, &namespace)) {
                    names.insert(namespace);
                }
            }
        }
        Ok(names)
    }
}

/// The fields of a `rbac/v1.RoleBinding` that are read.
#[derive(Message)]
struct Binding {
    #[prost(message, optional, tag = "1")]
    metadata: Option<BindingMeta>,
    #[prost(message, repeated, tag = "2")]
    subjects: Vec<Subject>,
}

/// The fields of a `meta/v1.ObjectMeta` that are read.
#[derive(Message)]
struct BindingMeta {
    #[prost(string, tag = "3")]
    namespace: String,
}

/// The fields of a `rbac/v1.Subject` that are read. The API server accepts strings that are not
/// UTF-8.
#[derive(Message)]
struct Subject {
    #[prost(bytes = "vec", tag = "1")]
    kind: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    name: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    namespace: Vec<u8>,
}

/// Whether a subject of a RoleBinding in this namespace is the user. A ServiceAccount without a
/// namespace is one of the binding's.
fn is_subject(subject: &Subject, user: &UserInfo, namespace: &str) -> bool {
    let is_name = |name: &str| subject.name == name.as_bytes();
    match &*subject.kind {
        b"User" => is_name(&user.user),
        b"Group" => user.groups.iter().any(|group| is_name(group)),
        b"ServiceAccount" => {
            let own = Some(&*subject.namespace).filter(|own| !own.is_empty());
            let account = user.user.strip_prefix(SERVICE_ACCOUNT_PREFIX);
            account.and_then(|account| account.split_once(':')).is_some_and(|(of, name)| {
                of.as_bytes() == own.unwrap_or(namespace.as_bytes()) && is_name(name)
            })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(kind: &str, name: &str, namespace: Option<&str>) -> Subject {
        let [kind, name, namespace] =
            [kind, name, namespace.unwrap_or_default()].map(|text| text.as_bytes().to_vec());
        Subject { kind, name, namespace }
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
