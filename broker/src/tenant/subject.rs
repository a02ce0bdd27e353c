//! Subjects of a Tenant: its owners, and the subjects of its additional role bindings. The rules
//! are here as Rust and as rules of the definition (CEL).

use std::fmt;

use serde_json::{Value, json};

use super::limits::MAX_SUBJECT_LENGTH;
use tenant_shared::is_dns_label;

use crate::cluster::RBAC;

/// Prefix of the user name of a ServiceAccount: `system:serviceaccount:NAMESPACE:NAME`.
pub(super) const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// Prefix of the group of all ServiceAccounts of a namespace.
pub(super) const SERVICE_ACCOUNTS_OF: &str = "system:serviceaccounts:";
/// Prefix of names that Kubernetes reserves.
const SYSTEM: &str = "system:";
/// The values of `kind`.
const KINDS: [&str; 3] = ["User", "Group", "ServiceAccount"];

/// A subject of Kubernetes' RBAC.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A user, by name. It does not begin with `system:`.
    User(String),
    /// A group, by name. It does not begin with `system:`, except for the ServiceAccounts of one
    /// namespace: `system:serviceaccounts:NAMESPACE`.
    Group(String),
    /// A ServiceAccount.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// Reason for refusing a subject of a Tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    #[error("a name of 1 to 339 characters, without control characters")]
    Name,
    #[error("User, Group or ServiceAccount")]
    Kind,
    #[error(
        "users whose names begin with system: belong to Kubernetes; a ServiceAccount has the kind \
         ServiceAccount"
    )]
    SystemUser,
    #[error(
        "groups whose names begin with system: belong to Kubernetes or contain everybody, except \
         for system:serviceaccounts:NAMESPACE"
    )]
    SystemGroup,
    #[error("an owner of the kind ServiceAccount is written system:serviceaccount:NAMESPACE:NAME")]
    OwnerServiceAccount,
    #[error("a ServiceAccount, and nothing else, has a namespace")]
    Namespace,
    #[error("a ServiceAccount has its plain name here")]
    ServiceAccountName,
    #[error("the API group of users and groups; a ServiceAccount has none")]
    ApiGroup,
}

impl SubjectError {
    /// The field of the subject that has to be changed.
    pub fn field(self) -> &'static str {
        match self {
            Self::Kind => "kind",
            Self::Namespace => "namespace",
            Self::ApiGroup => "apiGroup",
            Self::Name
            | Self::SystemUser
            | Self::SystemGroup
            | Self::OwnerServiceAccount
            | Self::ServiceAccountName => "name",
        }
    }
}

impl Subject {
    /// Parses an owner. A ServiceAccount has its user name: `system:serviceaccount:NAMESPACE:NAME`.
    pub fn owner(kind: &str, name: &str) -> Result<Self, SubjectError> {
        if kind != "ServiceAccount" {
            return user_or_group(kind, name);
        }
        let account = name.strip_prefix(SERVICE_ACCOUNT).and_then(|rest| rest.split_once(':'));
        let (namespace, name) = account
            .filter(|(namespace, name)| is_dns_label(namespace) && is_account_name(name))
            .ok_or(SubjectError::OwnerServiceAccount)?;
        Ok(Self::ServiceAccount { namespace: namespace.into(), name: name.into() })
    }

    /// Parses a subject of a role binding (`rbac.authorization.k8s.io/v1`, `Subject`). A missing
    /// `apiGroup` is that of the kind.
    pub fn bound(
        kind: &str,
        name: &str,
        namespace: Option<&str>,
        api_group: Option<&str>,
    ) -> Result<Self, SubjectError> {
        let is_account = kind == "ServiceAccount";
        let api_group = api_group.unwrap_or_default();
        if !api_group.is_empty() && (is_account || api_group != RBAC) {
            return Err(SubjectError::ApiGroup);
        }
        match namespace {
            Some(namespace) if is_account && is_dns_label(namespace) => {
                // The API server refuses a whole RoleBinding for one malformed name.
                if !is_account_name(name) {
                    return Err(SubjectError::ServiceAccountName);
                }
                Ok(Self::ServiceAccount { namespace: namespace.into(), name: name.into() })
            }
            None if !is_account => user_or_group(kind, name),
            _ => Err(SubjectError::Namespace),
        }
    }

    /// The namespace, if this is a ServiceAccount of one, or the group of all of them.
    pub fn namespace_of_accounts(&self) -> Option<&str> {
        match self {
            Self::User(_) => None,
            Self::Group(name) => name.strip_prefix(SERVICE_ACCOUNTS_OF),
            Self::ServiceAccount { namespace, .. } => Some(namespace),
        }
    }
}

/// As a Tenant names owners: kind and name.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "User {name}"),
            Self::Group(name) => write!(f, "Group {name}"),
            Self::ServiceAccount { namespace, name } => {
                write!(f, "ServiceAccount {SERVICE_ACCOUNT}{namespace}:{name}")
            }
        }
    }
}

fn user_or_group(kind: &str, name: &str) -> Result<Subject, SubjectError> {
    let is_system = name.starts_with(SYSTEM);
    match kind {
        "User" if is_system => Err(SubjectError::SystemUser),
        "User" => checked_name(name).map(Subject::User),
        "Group" if is_system && !is_account_group(name) => Err(SubjectError::SystemGroup),
        "Group" => checked_name(name).map(Subject::Group),
        _ => Err(SubjectError::Kind),
    }
}

fn checked_name(name: &str) -> Result<String, SubjectError> {
    let has_length = (1..=MAX_SUBJECT_LENGTH).contains(&name.chars().count());
    if !has_length || name.contains(|c: char| c.is_ascii_control()) {
        return Err(SubjectError::Name);
    }
    Ok(name.to_owned())
}

/// Whether a group contains the ServiceAccounts of one namespace.
fn is_account_group(name: &str) -> bool {
    name.strip_prefix(SERVICE_ACCOUNTS_OF).is_some_and(|namespace| !namespace.is_empty())
}

/// Whether a text has the characters of a ServiceAccount's name.
fn is_account_name(text: &str) -> bool {
    let at_ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=253).contains(&text.len())
        && text.chars().all(|c| at_ends(c) || c == '-' || c == '.')
        && text.starts_with(at_ends)
        && text.ends_with(at_ends)
}

/// The fields of an owner that say who it is, and their rules.
pub(super) fn owner_schema() -> (Value, Value) {
    let label = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?";
    let account = format!("^{SERVICE_ACCOUNT}{label}:[a-z0-9]([-.a-z0-9]{{0,251}}[a-z0-9])?$");
    let properties = json!({
        "kind": kind_schema("Kind of the owner."),
        "name": name_schema(
            "Name of the user or group; of a ServiceAccount system:serviceaccount:NAMESPACE:NAME.",
        ),
    });
    let rules = json!([
        no_system_user(),
        no_system_group(),
        rule(
            &format!("self.kind != 'ServiceAccount' || self.name.matches('{account}')"),
            SubjectError::OwnerServiceAccount,
        ),
    ]);
    (properties, rules)
}

/// The schema of a subject of a role binding.
///
/// The rules match no pattern, because the API server multiplies the cost of a pattern with the
/// number of subjects in all bindings, and refuses a definition whose rules may cost too much.
pub(super) fn bound_schema() -> Value {
    json!({
        "type": "object",
        "required": ["kind", "name"],
        "properties": {
            "apiGroup": {
                "description": "rbac.authorization.k8s.io for users and groups; may be left out.",
                "type": "string",
                "enum": ["", RBAC],
            },
            "kind": kind_schema("Kind of the subject."),
            "name": name_schema("Name of the user, group or ServiceAccount."),
            "namespace": {
                "description": "Namespace of the ServiceAccount.",
                "type": "string",
                "maxLength": 63,
                "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            },
        },
        "x-kubernetes-validations": [
            no_system_user(),
            no_system_group(),
            // `namespace` is a reserved word of CEL, which Kubernetes escapes like this.
            rule(
                "(self.kind == 'ServiceAccount') == has(self.__namespace__)",
                SubjectError::Namespace,
            ),
            rule(
                "self.kind != 'ServiceAccount' || !self.name.contains(':')",
                SubjectError::ServiceAccountName,
            ),
            rule(
                "self.kind != 'ServiceAccount' || !has(self.apiGroup) || self.apiGroup == ''",
                SubjectError::ApiGroup,
            ),
        ],
    })
}

fn no_system_user() -> Value {
    rule(
        &format!("self.kind != 'User' || !self.name.startsWith('{SYSTEM}')"),
        SubjectError::SystemUser,
    )
}

fn no_system_group() -> Value {
    rule(
        &format!(
            "self.kind != 'Group' || !self.name.startsWith('{SYSTEM}') || \
             (self.name.startsWith('{SERVICE_ACCOUNTS_OF}') && size(self.name) > {})",
            SERVICE_ACCOUNTS_OF.len()
        ),
        SubjectError::SystemGroup,
    )
}

fn rule(rule: &str, error: SubjectError) -> Value {
    json!({
        "rule": rule,
        "message": error.to_string(),
        "fieldPath": format!(".{}", error.field()),
    })
}

fn kind_schema(description: &str) -> Value {
    json!({"description": description, "type": "string", "enum": KINDS})
}

fn name_schema(description: &str) -> Value {
    json!({
        "description": description,
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_SUBJECT_LENGTH,
        "pattern": r"^[^\x00-\x1f\x7f]+$",
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn account() -> Subject {
        Subject::ServiceAccount { namespace: "tenant-system".into(), name: "robot".into() }
    }

    #[test]
    fn owners_are_users_groups_and_service_accounts() {
        let owner = |kind, name| Subject::owner(kind, name).unwrap();
        assert_eq!(owner("User", "alice"), Subject::User("alice".into()));
        assert_eq!(owner("Group", "solar-users"), Subject::Group("solar-users".into()));
        let accounts = "system:serviceaccounts:tenant-system";
        assert_eq!(owner("Group", accounts), Subject::Group(accounts.into()));
        assert_eq!(owner("ServiceAccount", "system:serviceaccount:tenant-system:robot"), account());
    }

    #[test]
    fn everybody_and_parts_of_kubernetes_own_nothing() {
        for (kind, name, error) in [
            ("User", "system:anonymous", SubjectError::SystemUser),
            ("User", "system:serviceaccount:a:b", SubjectError::SystemUser),
            ("Group", "system:unauthenticated", SubjectError::SystemGroup),
            ("Group", "system:authenticated", SubjectError::SystemGroup),
            ("Group", "system:masters", SubjectError::SystemGroup),
            ("Group", "system:serviceaccounts", SubjectError::SystemGroup),
            ("Group", "system:serviceaccounts:", SubjectError::SystemGroup),
            ("ServiceAccount", "robot", SubjectError::OwnerServiceAccount),
            ("ServiceAccount", "system:serviceaccount:robot", SubjectError::OwnerServiceAccount),
            ("ServiceAccount", "system:serviceaccount::robot", SubjectError::OwnerServiceAccount),
            ("ServiceAccount", "system:serviceaccount:a:b:c", SubjectError::OwnerServiceAccount),
            ("Role", "alice", SubjectError::Kind),
            ("User", "", SubjectError::Name),
            ("Group", "a\u{7f}b", SubjectError::Name),
        ] {
            assert_eq!(Subject::owner(kind, name), Err(error), "{kind} {name}");
            assert!(["kind", "name"].contains(&error.field()));
        }
        let longest = "u".repeat(339);
        assert!(Subject::owner("User", &longest).is_ok());
        assert_eq!(Subject::owner("User", &(longest + "u")), Err(SubjectError::Name));
    }

    #[test]
    fn a_bound_service_account_has_its_namespace_in_a_field() {
        let bound = Subject::bound;
        assert_eq!(bound("ServiceAccount", "robot", Some("tenant-system"), None), Ok(account()));
        assert_eq!(bound("User", "joe", None, Some(RBAC)), Ok(Subject::User("joe".into())));
        assert_eq!(bound("Group", "ops", None, Some("")), Ok(Subject::Group("ops".into())));
        for (subject, error) in [
            (bound("ServiceAccount", "robot", None, None), SubjectError::Namespace),
            (bound("ServiceAccount", "robot", Some("A"), None), SubjectError::Namespace),
            (bound("User", "joe", Some("default"), None), SubjectError::Namespace),
            (bound("ServiceAccount", "a:b", Some("x"), None), SubjectError::ServiceAccountName),
            (bound("ServiceAccount", "A b", Some("x"), None), SubjectError::ServiceAccountName),
            (bound("ServiceAccount", "", Some("x"), None), SubjectError::ServiceAccountName),
            (bound("ServiceAccount", "robot", Some("x"), Some(RBAC)), SubjectError::ApiGroup),
            (bound("User", "joe", None, Some("apps")), SubjectError::ApiGroup),
            (bound("Group", "system:authenticated", None, None), SubjectError::SystemGroup),
            (bound("Everybody", "x", None, None), SubjectError::Kind),
        ] {
            assert_eq!(subject, Err(error));
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(
            kind in "User|Group|ServiceAccount|.{0,9}",
            name in "(system:(serviceaccounts?:)?)?.{0,60}",
            namespace in proptest::option::of(".{0,70}"),
        ) {
            let _ = Subject::owner(&kind, &name);
            let _ = Subject::bound(&kind, &name, namespace.as_deref(), None);
        }
    }
}
