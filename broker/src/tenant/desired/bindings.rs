//! RoleBindings: one for each ClusterRole in each namespace, and that of the owners in the home.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::{self, RoleBinding, RoleRef};
use tenant_shared::{TENANT_OWNER_ROLE, is_tenant_namespace};

use super::{Inputs, objects};
use crate::{
    cluster::{Object, RBAC},
    tenant::{
        ClusterRoleName, Rights, Subject, Tenant, home_name, member_account_name, rights_of,
        role_binding_name, tenant_of_home,
    },
};

/// A ClusterRole with all its subjects.
pub(super) struct Grant<'a> {
    cluster_role: &'a str,
    subjects: BTreeSet<Subject>,
}

impl Grant<'_> {
    /// The RoleBinding in a namespace.
    pub(super) fn in_namespace(&self, tenant: &Tenant, namespace: &str) -> Object {
        let name = role_binding_name(&tenant.name, self.cluster_role);
        Object::RoleBinding(Box::new(RoleBinding {
            metadata: objects::meta(tenant, Some(namespace), name),
            role_ref: RoleRef {
                api_group: RBAC.to_owned(),
                kind: "ClusterRole".to_owned(),
                name: self.cluster_role.to_owned(),
            },
            subjects: Some(self.subjects.iter().map(api_subject).collect()),
        }))
    }
}

/// The RoleBinding in the home by which admission policies know the owners.
pub(super) fn of_owners(inputs: &Inputs<'_>) -> Option<Object> {
    let tenant = inputs.tenant;
    let named = tenant.owners.iter().map(|owner| owner.subject.clone()).filter(is_bindable);
    let members = members(inputs).filter(|(_, rights)| rights.is_owner).map(|(subject, _)| subject);
    let grant = Grant { cluster_role: TENANT_OWNER_ROLE, subjects: named.chain(members).collect() };
    (!grant.subjects.is_empty()).then(|| grant.in_namespace(tenant, &home_name(&tenant.name)))
}

/// The allowed ClusterRoles by name, with everybody who has them in each namespace.
pub(super) fn grants<'a>(inputs: &Inputs<'a>) -> Vec<Grant<'a>> {
    let tenant = inputs.tenant;
    let mut subjects: BTreeMap<&ClusterRoleName, BTreeSet<Subject>> = BTreeMap::new();
    for owner in &tenant.owners {
        for role in &owner.cluster_roles {
            subjects.entry(role).or_default().insert(owner.subject.clone());
        }
    }
    for binding in &tenant.additional_role_bindings {
        let all = subjects.entry(&binding.cluster_role).or_default();
        all.extend(binding.subjects.iter().cloned());
    }
    for all in subjects.values_mut() {
        all.retain(is_bindable);
    }
    // Only roles that an entry names are in the rights of a member.
    for (subject, rights) in members(inputs) {
        for (role, all) in &mut subjects {
            if rights.roles.contains_key(*role) {
                all.insert(subject.clone());
            }
        }
    }
    subjects
        .into_iter()
        .filter(|(role, all)| inputs.settings.cluster_roles.contains(role) && !all.is_empty())
        .map(|(role, subjects)| Grant { cluster_role: role.as_str(), subjects })
        .collect()
}

/// The ServiceAccounts of members who are not suspended, with the rights of their persons.
fn members(inputs: &Inputs<'_>) -> impl Iterator<Item = (Subject, Rights)> {
    let Inputs { tenant, settings, members, .. } = *inputs;
    members.iter().filter(|member| !member.suspended).map(move |member| {
        let account = Subject::ServiceAccount {
            namespace: home_name(&tenant.name),
            name: member_account_name(member.user),
        };
        (account, rights_of(tenant, &member.person, settings))
    })
}

/// Whether the broker binds a subject that a Tenant names. ServiceAccounts in homes and in
/// namespaces of personal workspaces have the rights of a person, and those of `kube-*` are parts of
/// Kubernetes.
pub(super) fn is_bindable(subject: &Subject) -> bool {
    match subject {
        Subject::User(_) => true,
        Subject::Group(name) => {
            !name.strip_prefix("system:serviceaccounts:").is_some_and(is_reserved_namespace)
        }
        Subject::ServiceAccount { namespace, .. } => !is_reserved_namespace(namespace),
    }
}

fn is_reserved_namespace(namespace: &str) -> bool {
    tenant_of_home(namespace).is_some()
        || is_tenant_namespace(namespace)
        || namespace.starts_with("kube-")
}

/// A subject as the API server returns it: a ServiceAccount has no API group.
fn api_subject(subject: &Subject) -> v1::Subject {
    let named = |kind: &str, name: &str| v1::Subject {
        api_group: Some(RBAC.to_owned()),
        kind: kind.to_owned(),
        name: name.to_owned(),
        namespace: None,
    };
    match subject {
        Subject::User(name) => named("User", name),
        Subject::Group(name) => named("Group", name),
        Subject::ServiceAccount { namespace, name } => v1::Subject {
            api_group: None,
            namespace: Some(namespace.clone()),
            ..named("ServiceAccount", name)
        },
    }
}
