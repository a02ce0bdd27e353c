//! Permissions of the tiers' ClusterRoles beyond the built-in `admin`.
//!
//! The default role `admin` is aggregated: every ClusterRole with the label `aggregate-to-admin`
//! adds permissions to it, also one that is installed years later, and Kubernetes operators use
//! that. The controller manager writes the union into the role's own `rules`, so reading the role
//! by its name is enough. The role is compared with a table of the built-in `admin` of Kubernetes
//! ([`builtin`]). The ClusterRoles that it is aggregated from could be read as well, but somebody
//! may have extended them, and clusters that were created before 1.22 keep permissions in them that
//! new clusters do not have.

mod builtin;
mod escapes;
mod watcher;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};

pub use escapes::escape_reason;
pub use watcher::RoleWatcher;

use crate::cluster::{Cluster, ClusterError};

/// Maximum number of permissions in one text.
const MAX_LISTED: usize = 20;

/// Verbs on a resource that the built-in `admin` does not have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExtraPermission {
    /// API group; empty for the core, `*` for all.
    pub group: String,
    /// Resource, perhaps with a subresource; `*` for all.
    pub resource: String,
    /// The verbs, for example `get`; `*` for all.
    pub verbs: BTreeSet<String>,
}

impl fmt::Display for ExtraPermission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.group.is_empty() { "" } else { "." };
        let verbs: Vec<&str> = self.verbs.iter().map(String::as_str).collect();
        write!(f, "{}{dot}{} ({})", self.resource, self.group, verbs.join(", "))
    }
}

/// Result of the inspection of a tier's ClusterRole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleReport {
    /// The role does not exist.
    Missing,
    /// The broker may not read the role.
    Refused,
    /// The permissions that the role grants beyond the built-in `admin`.
    Grants(Vec<ExtraPermission>),
}

impl RoleReport {
    /// The permissions that are known to allow an escape from the namespace, each with the reason.
    pub fn escapes(&self) -> Vec<(&ExtraPermission, &'static str)> {
        match self {
            Self::Grants(all) => {
                all.iter().filter_map(|one| escape_reason(one).map(|why| (one, why))).collect()
            }
            Self::Missing | Self::Refused => Vec::new(),
        }
    }
}

/// Reads a tier's ClusterRole and compares it with the built-in `admin`.
///
/// # Errors
/// The cluster does not answer.
pub async fn inspect(cluster: &Cluster, role: &str) -> Result<RoleReport, ClusterError> {
    match cluster.get_opt::<ClusterRole>(role).await {
        Ok(Some(role)) => {
            Ok(RoleReport::Grants(extra_permissions(&role.rules.unwrap_or_default())))
        }
        Ok(None) => Ok(RoleReport::Missing),
        Err(ClusterError::Refused(_)) => Ok(RoleReport::Refused),
        Err(error) => Err(error),
    }
}

/// The permissions as one text: the first 20 of them, and the number of the others.
pub fn summary<T: ToString>(permissions: &[T]) -> String {
    let mut names: Vec<String> =
        permissions.iter().take(MAX_LISTED).map(ToString::to_string).collect();
    if permissions.len() > MAX_LISTED {
        names.push(format!("and {} more", permissions.len() - MAX_LISTED));
    }
    names.join("; ")
}

/// The permissions that these rules grant, in the namespace of their RoleBinding, beyond the
/// built-in `admin`. Non-resource URLs are not among them, because a RoleBinding does not grant
/// them.
fn extra_permissions(rules: &[PolicyRule]) -> Vec<ExtraPermission> {
    let builtin = builtin::permissions();
    let mut extra: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                let known = builtin.get(&(group.as_str(), resource.as_str()));
                let is_known = |verb: &str| known.is_some_and(|verbs| verbs.contains(verb));
                let more: Vec<String> =
                    rule.verbs.iter().filter(|verb| !is_known(verb)).cloned().collect();
                if !more.is_empty() {
                    let place = (group.clone(), resource.clone());
                    extra.entry(place).or_default().extend(more);
                }
            }
        }
    }
    extra
        .into_iter()
        .map(|((group, resource), verbs)| ExtraPermission { group, resource, verbs })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(group: &str, resource: &str, verbs: &[&str]) -> PolicyRule {
        PolicyRule {
            api_groups: Some(vec![group.to_owned()]),
            resources: Some(vec![resource.to_owned()]),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            ..PolicyRule::default()
        }
    }

    fn texts(rules: &[PolicyRule]) -> Vec<String> {
        extra_permissions(rules).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn permissions_of_the_built_in_admin_are_not_extra() {
        let rules = [
            rule("", "pods", &["create", "get", "deletecollection"]),
            rule("apps", "deployments", &["patch"]),
            rule("", "endpoints", &["get", "list", "watch"]),
        ];
        assert_eq!(texts(&rules), Vec::<String>::new());
    }

    #[test]
    fn extra_permissions_are_listed_once_with_their_verbs() {
        let rules = [
            rule("", "endpoints", &["update", "get"]),
            rule("", "endpoints", &["create"]),
            rule("metrics.k8s.io", "pods", &["get"]),
            rule("*", "*", &["*"]),
        ];
        assert_eq!(
            texts(&rules),
            ["endpoints (create, update)", "*.* (*)", "pods.metrics.k8s.io (get)"]
        );
        let report = RoleReport::Grants(extra_permissions(&rules));
        let out: Vec<&str> = report.escapes().iter().map(|(one, _)| &*one.resource).collect();
        assert_eq!(out, ["endpoints", "*"]);
    }

    #[test]
    fn a_long_list_is_truncated() {
        let rules: Vec<PolicyRule> =
            (10..40).map(|n| rule("x.example", &format!("r{n}"), &["get"])).collect();
        let text = summary(&extra_permissions(&rules));
        assert!(
            text.starts_with("r10.x.example (get); ") && text.ends_with("; and 10 more"),
            "{text}"
        );
    }
}
