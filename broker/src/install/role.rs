//! The broker's ClusterRole: the minimum of verbs that its workflows need, each with its reason.
//!
//! The end-to-end test `rights.rs` shows that each is needed: it removes one after the other.

use std::collections::BTreeSet;

use tenant_shared::SERVICE_ACCOUNT_NAME;

use super::{
    MODEL_ROLES, Parameters, direct_namespaces,
    permission::{Rule, rule},
    policy::SECOND_BINDING,
    tenant_role,
};
use crate::cluster::{CLUSTER_CONFIG, INGRESS, INGRESSES, RBAC};

/// Name of the ClusterRole and of its binding.
pub const ROLE_NAME: &str = "tenant-broker";

/// The verbs on Secrets, granted only with `cluster.bind_tokens_to_secrets`.
pub(super) const SECRET_VERBS: [&str; 2] = ["create", "delete"];

/// The rules of the ClusterRole. `policies` are the names of all admission policies and bindings.
pub(super) fn rules(parameters: &Parameters, policies: Vec<String>) -> Vec<Rule> {
    let mut rules = Vec::from(object_rules());
    rules.extend(tier_role_rules(parameters));
    rules.push(token_rule(parameters));
    rules.extend(suspension_rules(parameters));
    rules.extend(policy_rules(policies));
    if direct_namespaces::is_enabled(parameters) {
        rules.push(mutation_rule());
    }
    rules.extend(optional_rules(parameters));
    rules.extend(tenant_role::rules(parameters));
    rules
}

/// The names of ServiceAccounts that the broker may request tokens of and delete. Those of tenants'
/// members are not known before, so RBAC cannot limit them by name. The admission policies do.
fn account_names(parameters: &Parameters) -> Vec<String> {
    if parameters.tenants.enabled { vec![] } else { vec![SERVICE_ACCOUNT_NAME.to_owned()] }
}

/// The rules for the objects of a workspace: to create them and to detect drift.
fn object_rules() -> [Rule; 3] {
    [
        rule(
            "create a tenant's namespace; read it back, and detect when it is changed or deleted",
            "",
            ["namespaces"],
            vec![],
            &["create", "get", "list"],
        ),
        rule(
            "create the objects that limit and represent a tenant; detect when they are changed or \
            deleted",
            "",
            ["serviceaccounts", "resourcequotas", "limitranges"],
            vec![],
            &["create", "get", "list"],
        ),
        rule(
            "create the binding; detect when it is changed or deleted, and what a suspension left",
            RBAC,
            ["rolebindings"],
            vec![],
            &["create", "get", "list"],
        ),
    ]
}

/// The rules for the ClusterRoles that tiers grant.
fn tier_role_rules(parameters: &Parameters) -> [Rule; 2] {
    [
        rule(
            "bind the tiers' roles without holding their permissions (bind instead of escalate)",
            RBAC,
            ["clusterroles"],
            parameters.roles.clone(),
            &["bind"],
        ),
        rule(
            "read what the tiers' roles really grant, also what other roles add to them by \
            aggregation",
            RBAC,
            ["clusterroles"],
            parameters.roles.clone(),
            &["get"],
        ),
    ]
}

/// The rule for the tokens of tenants.
fn token_rule(parameters: &Parameters) -> Rule {
    rule(
        if parameters.tenants.enabled {
            "TokenRequest, for the ServiceAccounts of workspaces and of tenants' members; the \
             admission policy tenant-tokens limits it by name and by namespace"
        } else {
            "TokenRequest, for this one ServiceAccount name only"
        },
        "",
        ["serviceaccounts/token"],
        account_names(parameters),
        &["create"],
    )
}

/// The rules for suspending and resuming a workspace.
fn suspension_rules(parameters: &Parameters) -> [Rule; 4] {
    [
        rule(
            "suspend and resume: the label tenant-broker.io/suspended",
            "",
            ["namespaces"],
            vec![],
            &["patch"],
        ),
        rule(
            "suspend: delete every binding of the tenant, whoever created it; replace one that was \
            changed",
            RBAC,
            ["rolebindings"],
            vec![],
            &["delete"],
        ),
        rule(
            "suspend: a binding whose deletion a finalizer blocks grants its role until it is \
            gone. Without the permission to bind, RBAC allows changes of finalizers and owners \
            only, and the admission policy those of finalizers only",
            RBAC,
            ["rolebindings"],
            vec![],
            &["patch"],
        ),
        rule(
            "suspend: a new ServiceAccount on resume keeps old tokens invalid; the old one is \
            deleted, with the finalizers that block its deletion",
            "",
            ["serviceaccounts"],
            account_names(parameters),
            &["delete", "patch"],
        ),
    ]
}

/// The rules for the periodic check of the admission policies. The name of a second binding is that
/// of the policy with a suffix, and no policy has it.
fn policy_rules(names: Vec<String>) -> Vec<Rule> {
    const GROUP: &str = "admissionregistration.k8s.io";
    let all: BTreeSet<String> = names.iter().cloned().collect();
    let (second, policies): (Vec<String>, Vec<String>) = names
        .into_iter()
        .partition(|name| name.strip_suffix(SECOND_BINDING).is_some_and(|it| all.contains(it)));
    let mut rules = vec![rule(
        "check that these admission policies are in force and unchanged",
        GROUP,
        ["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
        policies,
        &["get"],
    )];
    if !second.is_empty() {
        rules.push(rule(
            "check that they are in force in the namespaces of tenants, too",
            GROUP,
            ["validatingadmissionpolicybindings"],
            second,
            &["get"],
        ));
    }
    rules
}

/// The rule for the periodic check of the policy that labels namespaces of owners.
fn mutation_rule() -> Rule {
    rule(
        "check that the policy that labels new namespaces of owners is unchanged \
        (tenants.direct_namespaces)",
        "admissionregistration.k8s.io",
        [direct_namespaces::POLICIES, direct_namespaces::POLICY_BINDINGS],
        vec![direct_namespaces::MUTATION_NAME.to_owned()],
        &["get"],
    )
}

/// The rules for optional features of the configuration.
fn optional_rules(parameters: &Parameters) -> Vec<Rule> {
    let mut rules = Vec::new();
    if parameters.bind_tokens {
        rules.push(rule(
            "bind each token to an empty Secret of its own, so that it can be revoked alone \
             (cluster.bind_tokens_to_secrets); never read one",
            "",
            ["secrets"],
            vec![],
            &SECRET_VERBS,
        ));
    }
    if !parameters.network_policy_tiers.is_empty() {
        rules.push(rule(
            "create the NetworkPolicy of tiers that have one (network_policy); detect when it is \
            changed or deleted",
            "networking.k8s.io",
            ["networkpolicies"],
            vec![],
            &["create", "get", "list"],
        ));
    }
    if parameters.model_services.enabled {
        rules.push(rule(
            "check that the ClusterRoles that give people the kinds of model services are unchanged \
             (model_services.enabled)",
            RBAC,
            ["clusterroles"],
            MODEL_ROLES.map(str::to_owned).to_vec(),
            &["get"],
        ));
    }
    if parameters.model_services.reads_cluster_domain {
        rules.push(rule(
            "read the domain of the cluster's routes (model_services.cluster_domain = \"auto\")",
            CLUSTER_CONFIG,
            [INGRESSES],
            vec![INGRESS.to_owned()],
            &["get"],
        ));
    }
    rules
}
