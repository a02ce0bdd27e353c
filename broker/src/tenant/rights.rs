//! The rights that a Tenant gives a person, and the entries that give them. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{ClusterRoleName, Subject, Tenant, TenantName, TenantSettings};
use crate::{
    cluster::{ClusterList, RequiredLabels},
    identity::RbacUser,
};

/// The entry of a Tenant that gives a person a right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The owner entry of this subject.
    Owner(Subject),
    /// A subject of an additional role binding.
    AdditionalRoleBinding {
        /// Position in `spec.additionalRoleBindings`.
        index: usize,
        /// The subject that the person matches.
        subject: Subject,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(subject) => write!(f, "owner {subject}"),
            Self::AdditionalRoleBinding { index, subject } => {
                write!(f, "spec.additionalRoleBindings[{index}], subject {subject}")
            }
        }
    }
}

/// The rights of one person in one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Whether the person makes namespaces of the tenant, also if they can only view them.
    pub is_owner: bool,
    /// ClusterRoles in each namespace, with all entries that give them. Roles that the operator
    /// does not allow are left out.
    pub roles: BTreeMap<ClusterRoleName, Vec<Reason>>,
    /// Cluster-scoped resources that the gateway lists for the person.
    pub cluster_lists: BTreeSet<ClusterList>,
}

impl Rights {
    /// Whether the person is a member of the tenant.
    pub fn is_member(&self) -> bool {
        self.is_owner || !self.roles.is_empty()
    }
}

/// The cluster-scoped resources that a Tenant lets a person list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListGrant {
    pub tenant: TenantName,
    pub lists: BTreeSet<ClusterList>,
    /// The labels of the nodes that a list of nodes shows.
    pub node_selector: RequiredLabels,
}

impl ListGrant {
    /// What a Tenant grants a person with these rights; `None` if that is nothing.
    pub fn of(tenant: &Tenant, rights: &Rights) -> Option<Self> {
        (!rights.cluster_lists.is_empty()).then(|| Self {
            tenant: tenant.name.clone(),
            lists: rights.cluster_lists.clone(),
            node_selector: tenant.node_selector.clone(),
        })
    }
}

/// The rights of a person: the union of everything that their user name and their groups match. A
/// person outside of `tenants.groups` has none.
pub fn rights_of(tenant: &Tenant, person: &RbacUser, settings: &TenantSettings) -> Rights {
    let mut rights = Rights::default();
    if !person.is_in_scope(&settings.groups) {
        return rights;
    }
    let allowed = |role: &&ClusterRoleName| settings.cluster_roles.contains(role);
    for owner in tenant.owners.iter().filter(|owner| is_matched(&owner.subject, person)) {
        rights.is_owner = true;
        for role in owner.cluster_roles.iter().filter(allowed) {
            let reasons = rights.roles.entry(role.clone()).or_default();
            let reason = Reason::Owner(owner.subject.clone());
            // An owner entry may name a role twice.
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        let lists = owner.cluster_lists.iter().copied();
        rights.cluster_lists.extend(lists.filter(|list| settings.cluster_lists.contains(list)));
    }
    for (index, binding) in tenant.additional_role_bindings.iter().enumerate() {
        if !settings.cluster_roles.contains(&binding.cluster_role) {
            continue;
        }
        for subject in binding.subjects.iter().filter(|subject| is_matched(subject, person)) {
            let reasons = rights.roles.entry(binding.cluster_role.clone()).or_default();
            let subject = subject.clone();
            reasons.push(Reason::AdditionalRoleBinding { index, subject });
        }
    }
    rights
}

/// Whether a subject names a person. A ServiceAccount names a program, which has a token of its
/// own.
fn is_matched(subject: &Subject, person: &RbacUser) -> bool {
    match subject {
        Subject::User(name) => person.user_name.as_ref() == Some(name),
        Subject::Group(name) => person.groups.contains(name),
        Subject::ServiceAccount { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn person(user_name: &str, groups: &[&str]) -> RbacUser {
        RbacUser {
            user_name: Some(user_name.to_owned()).filter(|name| !name.is_empty()),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        }
    }

    fn tenant(spec: &Value) -> Tenant {
        Tenant::parse("solar", spec).unwrap()
    }

    fn solar() -> Tenant {
        tenant(&json!({
            "owners": [
                {"kind": "User", "name": "alice"},
                {"kind": "User", "name": "joe", "clusterRoles": ["view", "view"]},
                {
                    "kind": "Group",
                    "name": "solar-users",
                    "clusterRoles": ["view"],
                    "proxySettings": [
                        {"kind": "StorageClasses", "operations": ["List"]},
                        {"kind": "Nodes", "operations": ["List"]},
                    ],
                },
                {
                    "kind": "ServiceAccount",
                    "name": "system:serviceaccount:build:robot",
                    "clusterRoles": ["edit"],
                },
            ],
            "additionalRoleBindings": [
                {"clusterRoleName": "edit", "subjects": [{"kind": "User", "name": "joe"}]},
                {"clusterRoleName": "argo", "subjects": [{"kind": "User", "name": "bob"}]},
            ],
            "nodeSelector": {"pool": "solar"},
        }))
    }

    fn reasons(rights: &Rights, role: &str) -> Vec<String> {
        let reasons = rights.roles.get(&role.parse::<ClusterRoleName>().unwrap());
        reasons.into_iter().flatten().map(ToString::to_string).collect()
    }

    #[test]
    fn rights_are_the_union_of_all_entries_with_their_reasons() {
        let joe = rights_of(&solar(), &person("joe", &["solar-users"]), &TenantSettings::default());
        assert!(joe.is_owner && joe.is_member());
        assert_eq!(reasons(&joe, "view"), ["owner User joe", "owner Group solar-users"]);
        assert_eq!(reasons(&joe, "edit"), ["spec.additionalRoleBindings[0], subject User joe"]);
        assert_eq!(joe.roles.len(), 2);
    }

    #[test]
    fn owners_without_roles_of_their_own_have_the_default_roles() {
        let alice = rights_of(&solar(), &person("alice", &[]), &TenantSettings::default());
        let roles: Vec<&str> = alice.roles.keys().map(ClusterRoleName::as_str).collect();
        assert_eq!(roles, ["admin", "tenant-namespace-deleter"]);
    }

    #[test]
    fn roles_and_lists_that_the_operator_does_not_allow_are_left_out() {
        let settings = TenantSettings {
            cluster_lists: vec![ClusterList::StorageClasses],
            ..TenantSettings::default()
        };
        let bob = rights_of(&solar(), &person("bob", &[]), &settings);
        assert!(!bob.is_member() && bob.roles.is_empty());
        let other = rights_of(&solar(), &person("x", &["solar-users"]), &settings);
        assert_eq!(other.cluster_lists, BTreeSet::from([ClusterList::StorageClasses]));
    }

    #[test]
    fn lists_are_granted_by_owner_entries_of_the_person_only() {
        let settings =
            TenantSettings { cluster_lists: ClusterList::ALL.into(), ..TenantSettings::default() };
        let grant = |person| ListGrant::of(&solar(), &rights_of(&solar(), &person, &settings));
        let granted = grant(person("x", &["solar-users"])).unwrap();
        assert_eq!(granted.tenant.as_str(), "solar");
        let lists = [ClusterList::StorageClasses, ClusterList::Nodes];
        assert_eq!(granted.lists, BTreeSet::from(lists));
        assert_eq!(granted.node_selector, [("pool".to_owned(), "solar".to_owned())].into());
        let robot = "system:serviceaccount:build:robot";
        for person in [person("alice", &[]), person("joe", &[]), person(robot, &[robot])] {
            assert_eq!(grant(person.clone()), None, "{person:?}");
        }
    }

    #[test]
    fn people_outside_of_the_scope_and_strangers_have_no_rights() {
        let scoped =
            TenantSettings { groups: vec!["staff".to_owned()], ..TenantSettings::default() };
        assert_eq!(rights_of(&solar(), &person("alice", &[]), &scoped), Rights::default());
        assert!(rights_of(&solar(), &person("alice", &["staff"]), &scoped).is_owner);
        let strangers = [person("", &[]), person("Alice", &["solar"]), person("solar-users", &[])];
        for stranger in strangers {
            let rights = rights_of(&solar(), &stranger, &TenantSettings::default());
            assert_eq!(rights, Rights::default(), "{stranger:?}");
        }
        // Nobody is a ServiceAccount, whatever their provider calls them.
        let robot = person("system:serviceaccount:build:robot", &["robot"]);
        assert!(!rights_of(&solar(), &robot, &TenantSettings::default()).is_member());
    }

    proptest! {
        /// The rights of a person with two groups are those of both groups together.
        #[test]
        fn rights_are_a_union(
            roles in proptest::collection::vec(
                proptest::sample::subsequence(vec!["admin", "edit", "view", "argo"], 0..=4), 3,
            ),
        ) {
            let owners = json!([
                {"kind": "Group", "name": "a", "clusterRoles": roles[0]},
                {"kind": "Group", "name": "b", "clusterRoles": roles[1]},
                {"kind": "User", "name": "u", "clusterRoles": roles[2]},
            ]);
            let tenant = tenant(&json!({"owners": owners}));
            let settings = TenantSettings::default();
            let of = |person: &RbacUser| -> BTreeSet<ClusterRoleName> {
                rights_of(&tenant, person, &settings).roles.into_keys().collect()
            };
            let parts = [person("", &["a"]), person("", &["b"]), person("u", &[])];
            let union: BTreeSet<ClusterRoleName> = parts.iter().flat_map(&of).collect();
            prop_assert_eq!(of(&person("u", &["a", "b"])), union.clone());
            prop_assert!(union.iter().all(|role| settings.cluster_roles.contains(role)));
        }
    }
}
