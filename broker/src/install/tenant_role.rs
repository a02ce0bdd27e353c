//! Rules that `tenants.enabled` adds to the broker's ClusterRole, and the ClusterRoles that the
//! broker binds for their members.

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use tenant_shared::{NAMESPACE_DELETER_ROLE, TENANT_OWNER_ROLE};

use super::{
    Parameters,
    permission::{Rule, rule},
    policy::metadata,
};
use crate::{
    cluster::{ClusterList, RBAC},
    tenant::ApiGroup,
};

/// The verb of owners on `tenants.tenant-broker.io`. No request has it; policies and the broker ask
/// the authorizer for it.
const OWN_VERB: &str = "own";
/// The verbs of a watch that begins with a list.
const READ: [&str; 3] = ["get", "list", "watch"];

/// The ClusterRoles that install makes for tenants, each with its purpose.
pub(super) fn cluster_roles(parameters: &Parameters) -> Vec<(&'static str, ClusterRole)> {
    if !parameters.tenants.enabled {
        return Vec::new();
    }
    vec![
        (
            "Makes its subjects owners of a tenant, where the broker binds it in the tenant's home \
             (the namespace tenant-NAME). It grants nothing else.",
            cluster_role(TENANT_OWNER_ROLE, ApiGroup::TenantBroker.name(), "tenants", OWN_VERB),
        ),
        (
            "Allows owners to delete a namespace of their tenant, where the broker binds it in that \
             namespace.",
            cluster_role(NAMESPACE_DELETER_ROLE, "", "namespaces", "delete"),
        ),
    ]
}

/// A ClusterRole with one rule.
pub(super) fn cluster_role(name: &str, group: &str, resource: &str, verb: &str) -> ClusterRole {
    let one = |text: &str| vec![text.to_owned()];
    ClusterRole {
        metadata: metadata(name),
        rules: Some(vec![PolicyRule {
            api_groups: Some(one(group)),
            resources: Some(one(resource)),
            verbs: one(verb),
            ..PolicyRule::default()
        }]),
        ..ClusterRole::default()
    }
}

/// The rules that only tenants need.
pub(super) fn rules(parameters: &Parameters) -> Vec<Rule> {
    let tenants = &parameters.tenants;
    if !tenants.enabled {
        return Vec::new();
    }
    let mut rules = Vec::from(object_rules());
    rules.push(bind_rule(parameters));
    rules.extend(read_rule(parameters));
    rules.push(definition_rule());
    for group in parameters.tenant_groups() {
        rules.extend(kind_rules(*group));
    }
    if tenants.write {
        rules.push(write_rule());
    }
    rules.extend(tenants.cluster_lists.iter().map(|list| list_rule(*list)));
    rules
}

/// The rules for the objects in tenants' namespaces.
fn object_rules() -> [Rule; 3] {
    [
        rule(
            "notice namespaces of tenants that others made; answer filtered watches of members",
            "",
            ["namespaces"],
            vec![],
            &["watch"],
        ),
        rule(
            "add a member or an owner to the subjects of a tenant's binding, or take one out; \
             restore a binding at once when somebody changes it",
            RBAC,
            ["rolebindings"],
            vec![],
            &["update", "watch"],
        ),
        rule(
            "change the quotas and limits of a tenant, move what is free between its namespaces, \
             and delete those that its Tenant no longer has; restore them at once when somebody \
             changes them",
            "",
            ["resourcequotas", "limitranges"],
            vec![],
            &["update", "delete", "watch"],
        ),
    ]
}

/// The rule for the ClusterRoles that the broker binds for tenants.
fn bind_rule(parameters: &Parameters) -> Rule {
    let mut names = vec![TENANT_OWNER_ROLE.to_owned()];
    names.extend(further_cluster_roles(parameters));
    rule(
        "bind the roles that Tenants may give (tenants.cluster_roles), and the one of owners in the \
         homes of tenants",
        RBAC,
        ["clusterroles"],
        names,
        &["bind"],
    )
}

/// The rule for what the ClusterRoles grant that Tenants may give.
fn read_rule(parameters: &Parameters) -> Option<Rule> {
    let names: Vec<String> = further_cluster_roles(parameters).collect();
    // Without names it would hold for all ClusterRoles.
    (!names.is_empty()).then(|| {
        rule(
            "read what the roles that Tenants may give grant, so that the request for a new namespace \
             returns once the API server grants it to the owner",
            RBAC,
            ["clusterroles"],
            names,
            &["get"],
        )
    })
}

/// The ClusterRoles that Tenants may give, without those of tiers: a permission counts once.
fn further_cluster_roles(parameters: &Parameters) -> impl Iterator<Item = String> {
    let roles = parameters.tenants.cluster_roles.iter().map(ToString::to_string);
    roles.filter(|role| !parameters.roles.contains(role))
}

/// The rule for the definitions of Tenants, whether or not the cluster has both.
fn definition_rule() -> Rule {
    rule(
        "tell the deletion of a Tenant from that of its definition, which deletes all of them and \
         must not revoke the rights of everybody",
        "apiextensions.k8s.io",
        ["customresourcedefinitions"],
        ApiGroup::ALL.map(|group| group.resource().definition_name()).to_vec(),
        &["get"],
    )
}

/// The rules for Tenants themselves in one API group.
fn kind_rules(group: ApiGroup) -> [Rule; 2] {
    [
        rule(
            "read what each tenant is to have, and notice changes",
            group.name(),
            ["tenants"],
            vec![],
            &READ,
        ),
        rule(
            "say in the status of a Tenant what was carried out",
            group.name(),
            ["tenants/status"],
            vec![],
            &["patch"],
        ),
    ]
}

/// The rule for Tenants that administrators write through the API of the broker. It only reads those
/// of Capsule's group.
fn write_rule() -> Rule {
    rule(
        "create, change and delete Tenants for administrators of the broker (tenants.write)",
        ApiGroup::TenantBroker.name(),
        ["tenants"],
        vec![],
        &["create", "update", "delete"],
    )
}

/// The rule for a list of cluster-scoped objects.
fn list_rule(list: ClusterList) -> Rule {
    rule(
        "answer lists and watches of members to whom their Tenant grants this kind \
         (tenants.cluster_lists)",
        list.group(),
        [list.resource()],
        vec![],
        &["list", "watch"],
    )
}
