//! The broker's ClusterRole: the minimum of verbs that its workflows need, each with its reason.
//!
//! The end-to-end test `rights.rs` shows that each is needed: it removes one after the other.

use tenant_shared::SERVICE_ACCOUNT_NAME;

use super::Parameters;

/// Name of the ClusterRole and of its binding.
pub const ROLE_NAME: &str = "tenant-broker";

/// One permission of the ClusterRole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission<'a> {
    /// The verb, for example `create`.
    pub verb: &'static str,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The resource, with a subresource if there is one: `serviceaccounts/token`.
    pub resource: &'static str,
    /// The only object name that is allowed; empty for all names.
    pub name: &'a str,
}

/// Expands the rules to one permission per verb, resource and name.
pub(super) fn permissions<'a>(rules: &[Rule<'a>]) -> Vec<Permission<'a>> {
    let mut permissions = Vec::new();
    for rule in rules {
        let names = if rule.names.is_empty() { &[""][..] } else { &rule.names };
        for &resource in rule.resources {
            for &name in names {
                permissions.extend(rule.verbs.iter().map(|&verb| Permission {
                    verb,
                    group: rule.group,
                    resource,
                    name,
                }));
            }
        }
    }
    permissions
}

/// One rule of the ClusterRole.
pub(super) struct Rule<'a> {
    pub(super) reason: &'static str,
    pub(super) group: &'static str,
    pub(super) resources: &'static [&'static str],
    /// `resourceNames`; empty for all names.
    pub(super) names: Vec<&'a str>,
    pub(super) verbs: &'static [&'static str],
}

/// The verbs on Secrets, granted only with `cluster.bind_tokens_to_secrets`.
pub(super) const SECRET_VERBS: [&str; 2] = ["create", "delete"];

const RBAC: &str = "rbac.authorization.k8s.io";

/// Makes a rule.
fn rule<'a>(
    reason: &'static str,
    group: &'static str,
    resources: &'static [&'static str],
    names: Vec<&'a str>,
    verbs: &'static [&'static str],
) -> Rule<'a> {
    Rule { reason, group, resources, names, verbs }
}

/// The rules of the ClusterRole, for the roles of these tiers and for these policies.
pub(super) fn rules<'a>(parameters: &'a Parameters, policies: &[&'a str]) -> Vec<Rule<'a>> {
    let mut rules = Vec::from(object_rules());
    rules.extend(tier_role_rules(parameters));
    rules.push(token_rule());
    rules.extend(suspension_rules());
    rules.push(policy_rule(policies));
    rules.extend(optional_rules(parameters));
    rules
}

/// The rules for the objects of a workspace: to create them and to detect drift.
fn object_rules() -> [Rule<'static>; 3] {
    [
        rule(
            "create a tenant's namespace; read it back, and detect when it is changed or deleted",
            "",
            &["namespaces"],
            vec![],
            &["create", "get", "list"],
        ),
        rule(
            "create the objects that limit and represent a tenant; detect when they are changed or \
            deleted",
            "",
            &["serviceaccounts", "resourcequotas", "limitranges"],
            vec![],
            &["create", "get", "list"],
        ),
        rule(
            "create the binding; detect when it is changed or deleted, and what a suspension left",
            RBAC,
            &["rolebindings"],
            vec![],
            &["create", "get", "list"],
        ),
    ]
}

/// The rules for the ClusterRoles that tiers grant.
fn tier_role_rules(parameters: &Parameters) -> [Rule<'_>; 2] {
    let roles: Vec<&str> = parameters.roles.iter().map(String::as_str).collect();
    [
        rule(
            "bind the tiers' roles without holding their permissions (bind instead of escalate)",
            RBAC,
            &["clusterroles"],
            roles.clone(),
            &["bind"],
        ),
        rule(
            "read what the tiers' roles really grant, also what other roles add to them by \
            aggregation",
            RBAC,
            &["clusterroles"],
            roles,
            &["get"],
        ),
    ]
}

/// The rule for the tokens of tenants.
fn token_rule() -> Rule<'static> {
    rule(
        "TokenRequest, for this one ServiceAccount name only",
        "",
        &["serviceaccounts/token"],
        vec![SERVICE_ACCOUNT_NAME],
        &["create"],
    )
}

/// The rules for suspending and resuming a workspace.
fn suspension_rules() -> [Rule<'static>; 4] {
    [
        rule(
            "suspend and resume: the label tenant-broker.io/suspended",
            "",
            &["namespaces"],
            vec![],
            &["patch"],
        ),
        rule(
            "suspend: delete every binding of the tenant, whoever created it; replace one that was \
            changed",
            RBAC,
            &["rolebindings"],
            vec![],
            &["delete"],
        ),
        rule(
            "suspend: a binding whose deletion a finalizer blocks grants its role until it is \
            gone. Without the permission to bind, RBAC allows changes of finalizers and owners \
            only, and the admission policy those of finalizers only",
            RBAC,
            &["rolebindings"],
            vec![],
            &["patch"],
        ),
        rule(
            "suspend: a new ServiceAccount on resume keeps old tokens invalid; the old one is \
            deleted, with the finalizers that block its deletion",
            "",
            &["serviceaccounts"],
            vec![SERVICE_ACCOUNT_NAME],
            &["delete", "patch"],
        ),
    ]
}

/// The rule for the periodic check of the admission policies.
fn policy_rule<'a>(policies: &[&'a str]) -> Rule<'a> {
    rule(
        "check that these admission policies are in force and unchanged",
        "admissionregistration.k8s.io",
        &["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
        policies.to_vec(),
        &["get"],
    )
}

/// The rules for optional features of the configuration.
fn optional_rules(parameters: &Parameters) -> Vec<Rule<'static>> {
    let mut rules = Vec::new();
    if parameters.bind_tokens {
        rules.push(rule(
            "bind each token to an empty Secret of its own, so that it can be revoked alone \
             (cluster.bind_tokens_to_secrets); never read one",
            "",
            &["secrets"],
            vec![],
            &SECRET_VERBS,
        ));
    }
    if !parameters.network_policy_tiers.is_empty() {
        rules.push(rule(
            "create the NetworkPolicy of tiers that have one (network_policy); detect when it is \
            changed or deleted",
            "networking.k8s.io",
            &["networkpolicies"],
            vec![],
            &["create", "get", "list"],
        ));
    }
    rules
}
