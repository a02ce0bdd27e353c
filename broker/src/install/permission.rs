//! Rules of the broker's ClusterRole, and the permissions that they expand to.

/// One permission of the ClusterRole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// The verb, for example `create`.
    pub verb: &'static str,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The resource, with a subresource if there is one: `serviceaccounts/token`.
    pub resource: &'static str,
    /// The only object name that is allowed; empty for all names.
    pub name: String,
}

/// One rule of the ClusterRole.
pub(super) struct Rule {
    pub(super) reason: &'static str,
    pub(super) group: &'static str,
    pub(super) resources: Vec<&'static str>,
    /// `resourceNames`; empty for all names.
    pub(super) names: Vec<String>,
    pub(super) verbs: &'static [&'static str],
}

/// Makes a rule.
pub(super) fn rule(
    reason: &'static str,
    group: &'static str,
    resources: impl Into<Vec<&'static str>>,
    names: Vec<String>,
    verbs: &'static [&'static str],
) -> Rule {
    Rule { reason, group, resources: resources.into(), names, verbs }
}

/// Expands the rules to one permission per verb, resource and name.
pub(super) fn permissions(rules: &[Rule]) -> Vec<Permission> {
    let mut permissions = Vec::new();
    for rule in rules {
        let all_names = [String::new()];
        let names = if rule.names.is_empty() { &all_names[..] } else { &rule.names };
        for &resource in &rule.resources {
            for name in names {
                permissions.extend(rule.verbs.iter().map(|&verb| Permission {
                    verb,
                    group: rule.group,
                    resource,
                    name: name.clone(),
                }));
            }
        }
    }
    permissions
}
