//! Owners and additional role bindings.

use std::{collections::BTreeSet, str::FromStr};

use tenant_shared::{CAPSULE_NAMESPACE_DELETER_ROLE, NAMESPACE_DELETER_ROLE};

use super::{
    raw::{RawBinding, RawOwner, RawProxySetting, RawSubject},
    violations::Violations,
};
use crate::{
    cluster::ClusterList,
    tenant::{
        ClusterRoleName, Subject,
        limits::{MAX_BINDINGS, MAX_CLUSTER_ROLES, MAX_OWNERS, MAX_PROXY_SETTINGS, MAX_SUBJECTS},
        schema::{DEFAULT_CLUSTER_ROLES, PROXY_KINDS, PROXY_OPERATIONS},
    },
};

/// The operation of proxy settings that is carried out.
const LIST: &str = "List";

/// An owner with their ClusterRoles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub subject: Subject,
    pub cluster_roles: Vec<ClusterRoleName>,
    /// Cluster-scoped resources that the owner may list (`proxySettings` with the operation
    /// `List`).
    pub cluster_lists: BTreeSet<ClusterList>,
}

/// A ClusterRole for subjects that do not own the tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdditionalRoleBinding {
    pub cluster_role: ClusterRoleName,
    pub subjects: Vec<Subject>,
}

/// The owners. Operations other than `List`, `PersistentVolumes`, and `Nodes` without a node selector
/// are added to `not_carried_out`.
pub(super) fn owners(
    raw: Vec<RawOwner>,
    has_node_selector: bool,
    violations: &mut Violations,
    not_carried_out: &mut Vec<String>,
) -> Vec<Owner> {
    violations.not_empty("spec.owners", &raw);
    violations.limit("spec.owners", raw.len(), MAX_OWNERS);
    let mut owners = Vec::new();
    let mut known = BTreeSet::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let at = format!("spec.owners[{index}]");
        let cluster_roles = cluster_roles(&at, raw.cluster_roles, violations);
        let cluster_lists =
            cluster_lists(&at, &raw.proxy_settings, has_node_selector, violations, not_carried_out);
        match Subject::owner(&raw.kind, &raw.name) {
            Err(error) => violations.add(format!("{at}.{}", error.field()), error),
            Ok(subject) if !known.insert(subject.clone()) => {
                violations.add(at, "an owner is named once only");
            }
            Ok(subject) => owners.push(Owner { subject, cluster_roles, cluster_lists }),
        }
    }
    owners
}

/// The roles of an owner; those that are missing are the default of the definition.
fn cluster_roles(
    at: &str,
    raw: Option<Vec<String>>,
    violations: &mut Violations,
) -> Vec<ClusterRoleName> {
    let field = format!("{at}.clusterRoles");
    let raw = raw.unwrap_or_else(|| DEFAULT_CLUSTER_ROLES.map(str::to_owned).to_vec());
    violations.limit(&field, raw.len(), MAX_CLUSTER_ROLES);
    let roles = raw.iter().enumerate();
    roles
        .filter_map(|(index, name)| {
            violations.ok_or_record(&format!("{field}[{index}]"), cluster_role(name))
        })
        .collect()
}

/// Parses the name of a ClusterRole. That of Capsule for the right to delete a namespace stands for ours.
fn cluster_role(name: &str) -> Result<ClusterRoleName, <ClusterRoleName as FromStr>::Err> {
    let is_of_capsule = name == CAPSULE_NAMESPACE_DELETER_ROLE;
    if is_of_capsule { NAMESPACE_DELETER_ROLE } else { name }.parse()
}

fn cluster_lists(
    at: &str,
    raw: &[RawProxySetting],
    has_node_selector: bool,
    violations: &mut Violations,
    not_carried_out: &mut Vec<String>,
) -> BTreeSet<ClusterList> {
    let field = format!("{at}.proxySettings");
    violations.limit(&field, raw.len(), MAX_PROXY_SETTINGS);
    let mut lists = BTreeSet::new();
    for (index, setting) in raw.iter().enumerate() {
        let at = format!("{field}[{index}]");
        if !PROXY_KINDS.contains(&setting.kind.as_str()) {
            violations.add(format!("{at}.kind"), PROXY_KINDS.join(", "));
            continue;
        }
        for operation in &setting.operations {
            if !PROXY_OPERATIONS.contains(&operation.as_str()) {
                violations.add(format!("{at}.operations"), PROXY_OPERATIONS.join(", "));
            } else if operation != LIST {
                not_carried_out.push(format!("{at}.operations {operation}"));
            }
        }
        if !setting.operations.iter().any(|operation| operation == LIST) {
            continue;
        }
        match cluster_list(&setting.kind) {
            None => not_carried_out.push(format!("{at}.kind {}", setting.kind)),
            Some(ClusterList::Nodes) if !has_node_selector => {
                not_carried_out.push(format!("{at}.kind Nodes without spec.nodeSelector"));
            }
            Some(list) => {
                lists.insert(list);
            }
        }
    }
    lists
}

/// The resource with the name that Capsule gives it: that of the API in mixed case. `None` if the
/// broker does not list it.
fn cluster_list(kind: &str) -> Option<ClusterList> {
    kind.to_ascii_lowercase().parse().ok()
}

pub(super) fn bindings(
    raw: Vec<RawBinding>,
    violations: &mut Violations,
) -> Vec<AdditionalRoleBinding> {
    violations.limit("spec.additionalRoleBindings", raw.len(), MAX_BINDINGS);
    let mut bindings = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let at = format!("spec.additionalRoleBindings[{index}]");
        let name = cluster_role(&raw.cluster_role_name);
        let cluster_role = violations.ok_or_record(&format!("{at}.clusterRoleName"), name);
        let subjects = subjects(&format!("{at}.subjects"), &raw.subjects, violations);
        if let Some(cluster_role) = cluster_role {
            bindings.push(AdditionalRoleBinding { cluster_role, subjects });
        }
    }
    bindings
}

fn subjects(field: &str, raw: &[RawSubject], violations: &mut Violations) -> Vec<Subject> {
    violations.not_empty(field, raw);
    violations.limit(field, raw.len(), MAX_SUBJECTS);
    let mut subjects = Vec::new();
    for (index, raw) in raw.iter().enumerate() {
        let (namespace, api_group) = (raw.namespace.as_deref(), raw.api_group.as_deref());
        match Subject::bound(&raw.kind, &raw.name, namespace, api_group) {
            Ok(subject) => subjects.push(subject),
            Err(error) => violations.add(format!("{field}[{index}].{}", error.field()), error),
        }
    }
    subjects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_the_definition_but_one_is_listed() {
        let lists: BTreeSet<ClusterList> =
            PROXY_KINDS.iter().filter_map(|kind| cluster_list(kind)).collect();
        assert_eq!(lists, BTreeSet::from(ClusterList::ALL));
        let others: Vec<&str> =
            PROXY_KINDS.into_iter().filter(|kind| cluster_list(kind).is_none()).collect();
        assert_eq!(others, ["PersistentVolumes"]);
    }
}
