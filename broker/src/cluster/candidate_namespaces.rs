//! Names of namespaces that RBAC may let a user read, with the broker's credential. They are no
//! answer to anybody: whoever asks for them reads each with the user's own token.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{RoleBinding, Subject},
};
use kube::api::ListParams;
use serde::Deserialize;

use super::{
    Cluster, ClusterError, UserInfo,
    pages::{Form, Pages},
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
        let mut pages: Pages<Binding> =
            Pages::new::<RoleBinding>(self.client(), Form::Full, ListParams::default());
        while let Some((bindings, is_full)) = pages.next_or_metadata().await? {
            for Binding { metadata, subjects } in bindings {
                let Some(namespace) = metadata.namespace else { continue };
                let mut subjects = subjects.iter().flatten();
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

/// What is read of a RoleBinding.
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
