//! The broker's ClusterRole: the least verbs that its workflows need, each with its reason.
//!
//! That each is needed is shown by an end-to-end test (`rights.rs`), which takes one after the other
//! away.

use tenant_shared::SERVICE_ACCOUNT_NAME;

use super::Parameters;

/// Name of the ClusterRole and of its binding.
pub const ROLE_NAME: &str = "tenant-broker";

/// One thing that the broker may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right<'a> {
    /// For example `create`.
    pub verb: &'static str,
    /// API group; empty for the core.
    pub group: &'static str,
    /// Resource, perhaps with a subresource.
    pub resource: &'static str,
    /// The one name that it is for; all if it is empty.
    pub name: &'a str,
}

/// The rights of these rules, one by one.
pub(super) fn rights<'a>(rules: &[Rule<'a>]) -> Vec<Right<'a>> {
    let mut rights = Vec::new();
    for rule in rules {
        let names = if rule.names.is_empty() { &[""][..] } else { &rule.names };
        for &resource in rule.resources {
            for &name in names {
                rights.extend(rule.verbs.iter().map(|&verb| Right {
                    verb,
                    group: rule.group,
                    resource,
                    name,
                }));
            }
        }
    }
    rights
}

/// One rule of the ClusterRole.
pub(super) struct Rule<'a> {
    pub(super) reason: &'static str,
    pub(super) group: &'static str,
    pub(super) resources: &'static [&'static str],
    /// `resourceNames`; all names if there are none.
    pub(super) names: Vec<&'a str>,
    pub(super) verbs: &'static [&'static str],
}

/// What the broker does with Secrets, where it may.
pub(super) const SECRET_VERBS: [&str; 2] = ["create", "delete"];

const RBAC: &str = "rbac.authorization.k8s.io";

/// The rules for these tiers' roles and policies.
pub(super) fn rules<'a>(parameters: &'a Parameters, policies: &[&'a str]) -> Vec<Rule<'a>> {
    let rule =
        |reason, group, resources, names, verbs| Rule { reason, group, resources, names, verbs };
    let mut rules = vec![
        rule(
            "make a tenant's namespace; read it back, and see when it is altered or gone",
            "",
            &["namespaces"],
            vec![],
            &["create", "get", "list"],
        ),
        rule(
            "make what limits and carries a tenant; see when it is altered or gone",
            "",
            &["serviceaccounts", "resourcequotas", "limitranges"],
            vec![],
            &["create", "get", "list"],
        ),
        rule(
            "make the binding; see when it is altered or gone, and what a suspension left",
            RBAC,
            &["rolebindings"],
            vec![],
            &["create", "get", "list"],
        ),
        rule(
            "bind the tiers' roles without holding their rights (bind instead of escalate)",
            RBAC,
            &["clusterroles"],
            parameters.roles.iter().map(String::as_str).collect(),
            &["bind"],
        ),
        rule(
            "see what the tiers' roles really give, also what others' roles add to them",
            RBAC,
            &["clusterroles"],
            parameters.roles.iter().map(String::as_str).collect(),
            &["get"],
        ),
        rule(
            "TokenRequest, for this one ServiceAccount name only",
            "",
            &["serviceaccounts/token"],
            vec![SERVICE_ACCOUNT_NAME],
            &["create"],
        ),
        rule(
            "suspend and resume: the label tenant-broker.io/suspended",
            "",
            &["namespaces"],
            vec![],
            &["patch"],
        ),
        rule(
            "suspend: no binding of the tenant may be left, whoever made it; replace one that was altered",
            RBAC,
            &["rolebindings"],
            vec![],
            &["delete"],
        ),
        rule(
            "suspend: a binding that a finalizer holds grants its role until it is gone. RBAC lets nobody \
             change anything but finalizers and owners without the right to bind, and the fence \
             finalizers only",
            RBAC,
            &["rolebindings"],
            vec![],
            &["patch"],
        ),
        rule(
            "suspend: a new ServiceAccount on resume keeps old tokens dead; the old one is deleted, \
             with the finalizers that hold it",
            "",
            &["serviceaccounts"],
            vec![SERVICE_ACCOUNT_NAME],
            &["delete", "patch"],
        ),
        rule(
            "see at start that the admission policies below are there and not weakened",
            "admissionregistration.k8s.io",
            &["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
            policies.to_vec(),
            &["get"],
        ),
    ];
    rules.extend(optional_rules(parameters));
    rules
}

/// The rules for what the configuration switches on.
fn optional_rules(parameters: &Parameters) -> Vec<Rule<'static>> {
    let rule = |reason, group, resources, verbs| Rule {
        reason,
        group,
        resources,
        names: Vec::new(),
        verbs,
    };
    let mut rules = Vec::new();
    if parameters.bind_tokens {
        rules.push(rule(
            "bind each token to an empty Secret of its own, so that it can be revoked alone \
             (cluster.bind_tokens_to_secrets); never read one",
            "",
            &["secrets"],
            &SECRET_VERBS,
        ));
    }
    if !parameters.network_policy_tiers.is_empty() {
        rules.push(rule(
            "make the NetworkPolicy of tiers that have one (network_policy); see when it is altered or \
             gone",
            "networking.k8s.io",
            &["networkpolicies"],
            &["create", "get", "list"],
        ));
    }
    rules
}
