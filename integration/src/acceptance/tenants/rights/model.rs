//! The rights that people have by the documentation of Tenants. Pure, and written without the code
//! of the broker.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// The group that everybody who signs in at the broker is in.
const EVERYBODY: &str = "projectcapsule.dev";
/// ClusterRoles that the operator allows, by default.
pub(super) const ALLOWED_ROLES: [&str; 4] = ["admin", "edit", "view", "tenant-namespace-deleter"];
/// The ClusterRole of owners in the home of their tenant.
pub(super) const OWNER_ROLE: &str = "tenant-owner";

/// A subject of a Tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String },
}

/// Somebody with a credential for the API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Identity {
    /// The ServiceAccount of a person's membership in a tenant.
    Member { person: usize, tenant: String },
    /// A ServiceAccount that was deleted by a suspension.
    Ended { number: usize },
    /// A user of the cluster.
    User { name: String, groups: Vec<String> },
    /// A ServiceAccount outside of the homes of tenants.
    ServiceAccount { namespace: String, name: String },
}

/// A person at the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Person {
    pub(super) email: String,
    pub(super) groups: BTreeSet<String>,
}

/// A tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tenant {
    /// Owners with their ClusterRoles.
    pub(super) owners: Vec<(Subject, Vec<&'static str>)>,
    /// Additional role bindings.
    pub(super) bindings: Vec<(&'static str, Vec<Subject>)>,
    pub(super) namespaces: BTreeSet<String>,
    pub(super) is_suspended: bool,
    /// Persons whose memberships are suspended.
    pub(super) suspended_members: BTreeSet<usize>,
}

/// All people and tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) people: Vec<Person>,
    pub(super) tenants: BTreeMap<String, Tenant>,
}

/// Names by which a Tenant gives rights to somebody.
struct Names<'a> {
    user: Option<&'a str>,
    groups: BTreeSet<&'a str>,
    account: Option<(&'a str, &'a str)>,
}

impl Model {
    /// All namespaces of tenants, and their homes.
    pub(super) fn namespaces(&self) -> Vec<String> {
        let homes = self.tenants.keys().map(|name| format!("tenant-{name}"));
        let others = self.tenants.values().flat_map(|tenant| tenant.namespaces.iter().cloned());
        homes.chain(others).collect()
    }

    /// The tenant of a namespace or of a home.
    pub(super) fn tenant_of(&self, namespace: &str) -> Option<&str> {
        let mut tenants = self.tenants.iter();
        tenants.find_map(|(name, tenant)| {
            let is_home = namespace.strip_prefix("tenant-") == Some(name.as_str());
            (is_home || tenant.namespaces.contains(namespace)).then_some(name.as_str())
        })
    }

    /// Whether somebody is a member of another tenant than that of a namespace. Nothing that a
    /// Tenant says gives such a membership a right in it.
    pub(super) fn is_foreign(&self, who: &Identity, namespace: &str) -> bool {
        let Identity::Member { tenant, .. } = who else { return false };
        self.tenant_of(namespace).is_some_and(|of| of != tenant.as_str())
    }

    /// The ClusterRoles of somebody in a namespace.
    pub(super) fn roles(&self, who: &Identity, namespace: &str) -> BTreeSet<&'static str> {
        let mut tenants = self.tenants.iter();
        let place = tenants.find_map(|(name, tenant)| {
            let is_home = namespace.strip_prefix("tenant-") == Some(name);
            (is_home || tenant.namespaces.contains(namespace)).then_some((name, tenant, is_home))
        });
        let Some((name, tenant, is_home)) = place else { return BTreeSet::new() };
        let Some(names) = self.names(who, name, tenant) else { return BTreeSet::new() };
        if tenant.is_suspended {
            BTreeSet::new()
        } else if is_home {
            let is_owner = tenant.owners.iter().any(|(owner, _)| names.match_subject(owner));
            is_owner.then_some(OWNER_ROLE).into_iter().collect()
        } else {
            tenant.roles(&names)
        }
    }

    /// Whether a Tenant names a person, and nobody suspended the membership or the tenant.
    pub(super) fn may_be_member(&self, person: usize, tenant: &str) -> bool {
        let who = Identity::Member { person, tenant: tenant.to_owned() };
        let Some((it, names)) =
            self.tenants.get(tenant).and_then(|it| Some((it, self.names(&who, tenant, it)?)))
        else {
            return false;
        };
        let is_owner = it.owners.iter().any(|(owner, _)| names.match_subject(owner));
        !it.is_suspended && (is_owner || !it.roles(&names).is_empty())
    }

    /// The names of somebody in a tenant; `None` if they can have no rights in it.
    fn names<'a>(&'a self, who: &'a Identity, name: &str, tenant: &Tenant) -> Option<Names<'a>> {
        match who {
            Identity::Member { person, tenant: of } => {
                let is_member = of == name && !tenant.suspended_members.contains(person);
                let person = self.people.get(*person).filter(|_| is_member)?;
                let groups = person.groups.iter().map(String::as_str).chain([EVERYBODY]).collect();
                Some(Names { user: Some(&person.email), groups, account: None })
            }
            Identity::Ended { .. } => None,
            Identity::User { name, groups } => {
                let groups = groups.iter().map(String::as_str).collect();
                Some(Names { user: Some(name), groups, account: None })
            }
            Identity::ServiceAccount { namespace, name } => Some(Names {
                user: None,
                groups: BTreeSet::new(),
                account: Some((namespace, name)),
            }),
        }
    }
}

impl Tenant {
    fn roles(&self, names: &Names<'_>) -> BTreeSet<&'static str> {
        let owned = self.owners.iter().filter(|(owner, _)| names.match_subject(owner));
        let owned = owned.flat_map(|(_, roles)| roles.iter().copied());
        let bound = self.bindings.iter();
        let bound = bound.filter(|(_, all)| all.iter().any(|it| names.match_subject(it)));
        let bound = bound.map(|(role, _)| *role);
        owned.chain(bound).filter(|role| ALLOWED_ROLES.contains(role)).collect()
    }

    /// `spec` of the Tenant.
    pub(super) fn spec(&self) -> Value {
        let owners = self.owners.iter().map(|(owner, roles)| {
            let mut entry = owner.as_owner();
            entry["clusterRoles"] = json!(roles);
            entry
        });
        let bindings = self.bindings.iter().map(|(role, subjects)| {
            let subjects: Vec<Value> = subjects.iter().map(Subject::as_subject).collect();
            json!({"clusterRoleName": role, "subjects": subjects})
        });
        json!({
            "owners": owners.collect::<Vec<_>>(),
            "additionalRoleBindings": bindings.collect::<Vec<_>>(),
        })
    }
}

impl Names<'_> {
    fn match_subject(&self, subject: &Subject) -> bool {
        const ACCOUNTS: &str = "system:serviceaccounts:";
        match subject {
            Subject::User(name) => self.user == Some(name),
            Subject::Group(group) => match (group.strip_prefix(ACCOUNTS), self.account) {
                // Those of a home act for people.
                (Some(namespace), _) if namespace.starts_with("tenant-") => false,
                (Some(namespace), Some((own, _))) => namespace == own,
                _ => self.groups.contains(group.as_str()),
            },
            Subject::ServiceAccount { namespace, name } => {
                !namespace.starts_with("tenant-") && self.account == Some((namespace, name))
            }
        }
    }
}

impl Subject {
    /// The fields of an owner entry.
    fn as_owner(&self) -> Value {
        match self {
            Self::User(name) => json!({"kind": "User", "name": name}),
            Self::Group(name) => json!({"kind": "Group", "name": name}),
            Self::ServiceAccount { namespace, name } => {
                let name = format!("system:serviceaccount:{namespace}:{name}");
                json!({"kind": "ServiceAccount", "name": name})
            }
        }
    }

    /// The fields of a subject of an additional role binding.
    fn as_subject(&self) -> Value {
        match self {
            Self::ServiceAccount { namespace, name } => {
                json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
            }
            named => {
                let mut subject = named.as_owner();
                subject["apiGroup"] = json!("rbac.authorization.k8s.io");
                subject
            }
        }
    }
}
