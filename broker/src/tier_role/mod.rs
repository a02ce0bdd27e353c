//! What the tiers' ClusterRoles really give.
//!
//! The default role `admin` is aggregated: every ClusterRole with the label `aggregate-to-admin` adds
//! to it, also one that is installed years later, and operators use that. The controller manager
//! writes the sum into the role's own `rules`, so that reading the role by its name is enough. It is
//! compared with the built-in `admin` of Kubernetes as a table ([`builtin`]): the ClusterRoles that it
//! is aggregated from are there to be read as well, but somebody may have added to those, and clusters
//! that are older than 1.22 keep rights in them that new ones do not have.

mod builtin;
mod known;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};

pub use known::leads_out;
pub use watch::Watch;

use crate::cluster::{Cluster, ClusterError};

/// Rights that are named in one text at most.
const MAX_NAMED: usize = 20;

/// Verbs on a resource that the built-in `admin` has not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Excess {
    /// API group; empty for the core, `*` for all.
    pub group: String,
    /// Resource, perhaps with a subresource; `*` for all.
    pub resource: String,
    /// What may be done with it.
    pub verbs: BTreeSet<String>,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.group.is_empty() { "" } else { "." };
        let verbs: Vec<&str> = self.verbs.iter().map(String::as_str).collect();
        write!(f, "{}{dot}{} ({})", self.resource, self.group, verbs.join(", "))
    }
}

/// A tier's ClusterRole, looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It is not there.
    Missing,
    /// The broker may not read it.
    Refused,
    /// What it gives beyond the built-in `admin`.
    Gives(Vec<Excess>),
}

impl Seen {
    /// The rights among these that are known to lead out of the namespace, each with the reason.
    pub fn leading_out(&self) -> Vec<(&Excess, &'static str)> {
        match self {
            Self::Gives(all) => {
                all.iter().filter_map(|one| leads_out(one).map(|why| (one, why))).collect()
            }
            Self::Missing | Self::Refused => Vec::new(),
        }
    }
}

/// Looks at a tier's ClusterRole.
///
/// # Errors
/// The cluster does not answer.
pub async fn look(cluster: &Cluster, role: &str) -> Result<Seen, ClusterError> {
    match cluster.look_at::<ClusterRole>(role).await {
        Ok(Some(role)) => Ok(Seen::Gives(beyond_admin(&role.rules.unwrap_or_default()))),
        Ok(None) => Ok(Seen::Missing),
        Err(ClusterError::Refused(_)) => Ok(Seen::Refused),
        Err(error) => Err(error),
    }
}

/// The rights as one text; of very many the first ones.
pub fn named<T: ToString>(rights: &[T]) -> String {
    let mut names: Vec<String> = rights.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    if rights.len() > MAX_NAMED {
        names.push(format!("and {} more", rights.len() - MAX_NAMED));
    }
    names.join("; ")
}

/// What these rules give, in the namespace that they are bound in, beyond the built-in `admin`. URLs
/// that are no resources are not among it: a RoleBinding does not give them.
fn beyond_admin(rules: &[PolicyRule]) -> Vec<Excess> {
    let builtin = builtin::rights();
    let mut excess: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                let known = builtin.get(&(group.as_str(), resource.as_str()));
                let is_known = |verb: &str| known.is_some_and(|verbs| verbs.contains(verb));
                let more: Vec<String> =
                    rule.verbs.iter().filter(|verb| !is_known(verb)).cloned().collect();
                if !more.is_empty() {
                    let place = (group.clone(), resource.clone());
                    excess.entry(place).or_default().extend(more);
                }
            }
        }
    }
    excess.into_iter().map(|((group, resource), verbs)| Excess { group, resource, verbs }).collect()
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
        beyond_admin(rules).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_the_built_in_admin_has_is_nothing_more() {
        let rules = [
            rule("", "pods", &["create", "get", "deletecollection"]),
            rule("apps", "deployments", &["patch"]),
            rule("", "endpoints", &["get", "list", "watch"]),
        ];
        assert_eq!(texts(&rules), Vec::<String>::new());
    }

    #[test]
    fn what_it_has_not_is_listed_once_with_its_verbs() {
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
        let seen = Seen::Gives(beyond_admin(&rules));
        let out: Vec<&str> = seen.leading_out().iter().map(|(one, _)| &*one.resource).collect();
        assert_eq!(out, ["endpoints", "*"]);
    }

    #[test]
    fn of_very_many_the_first_are_named() {
        let rules: Vec<PolicyRule> =
            (10..40).map(|n| rule("x.example", &format!("r{n}"), &["get"])).collect();
        let text = named(&beyond_admin(&rules));
        assert!(
            text.starts_with("r10.x.example (get); ") && text.ends_with("; and 10 more"),
            "{text}"
        );
    }
}
