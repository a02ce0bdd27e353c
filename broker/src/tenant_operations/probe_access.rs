//! The probe: an access by which a review tells whether the authorizer knows the last of several
//! RoleBindings. Pure.

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::cluster::AccessReview;

/// Accesses of a role that are compared with those before it. Roles that are aggregated from the kinds
/// of many operators have thousands.
const MAX_ACCESSES: usize = 1_000;

/// An access that the last of these roles grants and none of the roles before it. A role that grants
/// nothing else than those before it does not matter, so the one before it counts as the last. `None`
/// if no role grants anything in a namespace.
pub(super) fn probe_access<'a>(roles: &[&'a [PolicyRule]]) -> Option<AccessReview<'a>> {
    let (last, others) = roles.split_last()?;
    let is_probe = |access: &AccessReview<'_>| {
        !others.iter().flat_map(|rules| rules.iter()).any(|rule| is_granted(access, rule))
    };
    let mut granted = last.iter().flat_map(accesses).take(MAX_ACCESSES);
    granted.find(is_probe).or_else(|| probe_access(others))
}

/// The accesses that a rule names. Those to URLs are left out, because a RoleBinding does not grant
/// them.
fn accesses(rule: &PolicyRule) -> impl Iterator<Item = AccessReview<'_>> {
    let groups = || rule.api_groups.iter().flatten();
    let all_names = rule.resource_names.as_ref().is_none_or(Vec::is_empty).then_some("");
    let names = move || {
        all_names.into_iter().chain(rule.resource_names.iter().flatten().map(String::as_str))
    };
    let resources = rule.resources.iter().flatten();
    resources.flat_map(move |resource| {
        groups().flat_map(move |group| {
            names().flat_map(move |name| {
                let access = AccessReview { group, resource, name, ..AccessReview::default() };
                rule.verbs.iter().map(move |verb| AccessReview { verb, ..access })
            })
        })
    })
}

/// Whether a rule grants an access, as the RBAC authorizer decides.
fn is_granted(access: &AccessReview<'_>, rule: &PolicyRule) -> bool {
    let has = |all: &[String], one: &str| all.iter().any(|it| it == "*" || it == one);
    let list = |all: &Option<Vec<String>>, one: &str| has(all.as_deref().unwrap_or_default(), one);
    let subresource = access.resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
    let names = rule.resource_names.as_deref().unwrap_or_default();
    has(&rule.verbs, access.verb)
        && list(&rule.api_groups, access.group)
        && (list(&rule.resources, access.resource)
            || subresource.is_some_and(|any| list(&rule.resources, &any)))
        && (names.is_empty() || names.iter().any(|name| name == access.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(group: &str, resources: &[&str], verbs: &[&str], names: &[&str]) -> PolicyRule {
        let list = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        PolicyRule {
            api_groups: Some(list(&[group])),
            resources: Some(list(resources)),
            verbs: list(verbs),
            resource_names: Some(list(names)).filter(|names| !names.is_empty()),
            non_resource_urls: None,
        }
    }

    fn access(roles: &[Vec<PolicyRule>]) -> Option<String> {
        let roles: Vec<&[PolicyRule]> = roles.iter().map(Vec::as_slice).collect();
        probe_access(&roles)
            .map(|it| format!("{} {}.{} {}", it.verb, it.resource, it.group, it.name))
    }

    #[test]
    fn an_access_is_granted_by_the_last_role_alone() {
        let view = || vec![rule("", &["pods", "pods/log"], &["get", "list"], &[])];
        let edit = || vec![rule("", &["pods", "pods/log"], &["get", "list", "create"], &[])];
        let delete = || vec![rule("", &["namespaces"], &["delete"], &[])];
        assert_eq!(access(&[view()]).as_deref(), Some("get pods. "));
        assert_eq!(access(&[view(), delete()]).as_deref(), Some("delete namespaces. "));
        assert_eq!(access(&[view(), edit()]).as_deref(), Some("create pods. "));
        let of_first = access(&[delete(), view()]);
        assert_eq!(of_first.as_deref(), Some("get pods. "));
    }

    #[test]
    fn a_role_that_adds_nothing_does_not_matter() {
        let all = || vec![rule("*", &["*"], &["*"], &[])];
        let view = || vec![rule("apps", &["deployments/scale"], &["get"], &["web"])];
        assert_eq!(access(&[all(), view()]).as_deref(), Some("* *.* "));
        assert_eq!(access(&[view(), view()]).as_deref(), Some("get deployments/scale.apps web"));
        assert_eq!(access(&[view(), all()]).as_deref(), Some("* *.* "));
        let url = PolicyRule {
            non_resource_urls: Some(vec!["/healthz".to_owned()]),
            verbs: vec!["get".to_owned()],
            ..PolicyRule::default()
        };
        assert_eq!(access(&[view(), vec![url], Vec::new()]), access(&[view()]));
        assert_eq!(access(&[Vec::new()]), None);
        assert_eq!(access(&[]), None);
    }

    #[test]
    fn names_and_subresources_are_compared_as_the_authorizer_does() {
        let scale = vec![rule("apps", &["deployments/scale"], &["get"], &[])];
        let any_scale = vec![rule("apps", &["*/scale"], &["get"], &[])];
        let web = vec![rule("apps", &["deployments/scale"], &["get"], &["web", "api"])];
        let of = |first: &[PolicyRule], last: &[PolicyRule]| access(&[first.into(), last.into()]);
        // The role before grants it as well, so that one is asked for.
        assert_eq!(of(&any_scale, &scale).as_deref(), Some("get */scale.apps "));
        assert_eq!(of(&scale, &web).as_deref(), Some("get deployments/scale.apps "));
        // A rule with names grants no access to all of them.
        assert_eq!(of(&web, &scale).as_deref(), Some("get deployments/scale.apps "));
    }
}
