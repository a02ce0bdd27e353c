//! The policy for the objects in tenants' namespaces and homes
//! (`tenant-broker-fence-tenant-objects`). It computes from labels of the namespace what the broker
//! may write there; whether the Tenant says so is for the broker's drift detection.

use tenant_shared::{
    HOME_LABEL, SUSPENDED_LABEL, TENANT_LABEL, TENANT_OWNER_ROLE, TENANT_UID_LABEL,
};

use super::{IS_BINDING, only_revokes};
use crate::{
    install::{
        Parameters,
        cel::{
            MEMBER_PATTERN, OBJECT_NAME, adds_no, broker_only, fixed, has_label, label,
            object_write_rules,
        },
        policy::{Message, Namespaces, Policy},
        quoted, quoted_list,
    },
    tenant::{ClusterRoleName, is_reserved_home},
};

/// Prefix of the group of all ServiceAccounts of a namespace.
const ACCOUNTS_OF: &str = "system:serviceaccounts:";

pub(super) fn policy(parameters: &Parameters) -> Policy {
    Policy {
        name: "tenant-broker-fence-tenant-objects",
        reason: "In the home of a tenant the broker writes ServiceAccounts of members and the \
                 binding of owners, in its other namespaces quotas, limits and bindings of the \
                 roles that the operator allows. It binds no group of everybody and no member of \
                 another tenant. It may delete or empty bindings of anybody, together with the \
                 finalizers that block the deletion.",
        rules: object_write_rules(),
        conditions: broker_only(parameters),
        variables: variables(),
        validations: vec![
            require_namespace_of_tenant(parameters),
            require_own_names(),
            refuse_changes_of_accounts(),
            refuse_finalizers_and_owners(),
            require_label_of_tenant(),
            require_allowed_role(parameters),
            refuse_foreign_subjects(),
            refuse_itself(),
            refuse_grants_while_suspended(),
        ],
        namespaces: Namespaces::Having(&[TENANT_LABEL]),
    }
}

fn variables() -> Vec<(&'static str, String)> {
    vec![
        ("tenant", label("namespaceObject", TENANT_LABEL)),
        (
            "home",
            format!(
                "request.namespace == \"tenant-\" + variables.tenant && {} == \"true\"",
                label("namespaceObject", HOME_LABEL)
            ),
        ),
        (
            "revokes",
            format!(
                "request.operation == \"DELETE\" || (request.operation == \"UPDATE\" && \
                 request.resource.resource in {} && {})",
                quoted_list(&["rolebindings", "serviceaccounts"]),
                only_revokes()
            ),
        ),
        ("grants", format!("{IS_BINDING} && !variables.revokes")),
    ]
}

/// Validation: the namespace has a name that the broker may give a namespace of its tenant, or a
/// label with which an administrator gave it that namespace. In others it may revoke access.
fn require_namespace_of_tenant(parameters: &Parameters) -> (String, Message) {
    let prefix = if parameters.tenants.free_names {
        String::new()
    } else {
        format!(
            "(request.namespace.startsWith(variables.tenant + \"-\") || {}) && ",
            has_label("namespaceObject", TENANT_UID_LABEL)
        )
    };
    (
        format!(
            "variables.revokes || (request.namespace.startsWith(\"tenant-\") ? variables.home : \
             ({prefix}!request.namespace.matches({})))",
            quoted(parameters.tenants.protected_names.as_str())
        ),
        Message::Built(
            "\"the broker may not write in namespace \" + request.namespace + \": it is neither \
             the home of tenant \" + variables.tenant + \" nor a namespace with its prefix, or one \
             that an administrator gave it\""
                .to_owned(),
            "the broker may write in homes tenant-NAME and namespaces NAME-* of tenants only"
                .to_owned(),
        ),
    )
}

/// Validation: the object has a name that the broker gives in such a namespace. An existing
/// RoleBinding may have any name.
fn require_own_names() -> (String, Message) {
    (
        format!(
            "{IS_BINDING} ? (variables.revokes || {OBJECT_NAME} == \"tenant-\" + variables.tenant + \
             \"-\" + object.roleRef.name) : request.resource.resource == \"serviceaccounts\" ? \
             (variables.home && {OBJECT_NAME}.matches({})) : (!variables.home && \
             (request.resource.resource == \"resourcequotas\" ? {OBJECT_NAME}.matches({}) : \
             {OBJECT_NAME}.matches({})))",
            quoted(MEMBER_PATTERN),
            quoted("^tenant-quota-[0-9]+$"),
            quoted("^tenant-limits-[0-9]+$"),
        ),
        Message::Built(
            format!(
                "\"the broker may not write \" + request.resource.resource + \" \" + {OBJECT_NAME} \
                 + \" in namespace \" + request.namespace"
            ),
            "the broker may write its own objects only".to_owned(),
        ),
    )
}

/// Validation: an update of a ServiceAccount only removes finalizers.
fn refuse_changes_of_accounts() -> (String, Message) {
    (
        "request.resource.resource != \"serviceaccounts\" || request.operation == \"CREATE\" || \
         variables.revokes"
            .to_owned(),
        fixed("the broker may take finalizers off the ServiceAccounts of members, nothing else"),
    )
}

/// Validation: a write adds no finalizers and no owners.
fn refuse_finalizers_and_owners() -> (String, Message) {
    (
        format!(
            "request.operation == \"DELETE\" || ({} && {})",
            adds_no("finalizers"),
            adds_no("ownerReferences")
        ),
        fixed("the broker makes nothing with finalizers or owners"),
    )
}

/// Validation: the object is found by the label of its tenant, so that drift detection sees it.
fn require_label_of_tenant() -> (String, Message) {
    (
        format!("variables.revokes || {} == variables.tenant", label("object", TENANT_LABEL)),
        Message::Fixed(format!(
            "the broker's objects have the label {TENANT_LABEL} of their namespace"
        )),
    )
}

/// Validation: a RoleBinding grants a ClusterRole of the operator's list, in a home the one of
/// owners.
fn require_allowed_role(parameters: &Parameters) -> (String, Message) {
    let roles: Vec<&str> =
        parameters.tenants.cluster_roles.iter().map(ClusterRoleName::as_str).collect();
    (
        format!(
            "!variables.grants || (object.roleRef.kind == \"ClusterRole\" && (variables.home ? \
             object.roleRef.name == {} : object.roleRef.name in {}))",
            quoted(TENANT_OWNER_ROLE),
            quoted_list(&roles),
        ),
        Message::Fixed(format!(
            "the broker may bind {TENANT_OWNER_ROLE} in homes, and elsewhere the ClusterRoles of \
             tenants.cluster_roles only: {}",
            roles.join(", ")
        )),
    )
}

/// Validation: subjects are users and groups that are not Kubernetes' own, and ServiceAccounts that
/// belong neither to the cluster nor to a workspace or the home of another tenant.
fn refuse_foreign_subjects() -> (String, Message) {
    let account = format!(
        "s.?namespace.orValue(\"\") == \"tenant-\" + variables.tenant ? s.name.matches({}) : {}",
        quoted(MEMBER_PATTERN),
        is_foreign_to_tenants("s.?namespace.orValue(\"\")"),
    );
    let group = format!(
        "!s.name.startsWith(\"system:\") || (s.name.startsWith({prefix}) && {})",
        is_foreign_to_tenants(&format!("s.name.substring({})", ACCOUNTS_OF.len())),
        prefix = quoted(ACCOUNTS_OF),
    );
    (
        format!(
            "!variables.grants || object.?subjects.orValue([]).all(s, s.kind == \
             \"ServiceAccount\" ? ({account}) : s.kind == \"Group\" ? ({group}) : s.kind == \
             \"User\" && !s.name.startsWith(\"system:\"))"
        ),
        fixed(
            "the broker may bind members of the same tenant, users, groups and ServiceAccounts of \
             other namespaces only: nothing of system:, of kube-*, of workspaces and of the homes \
             of other tenants",
        ),
    )
}

/// Validation: the broker is no subject itself. Rights in tenants' namespaces would let it make what
/// the policies on everybody else refuse, because they exempt it.
fn refuse_itself() -> (String, Message) {
    (
        "!variables.grants || object.?subjects.orValue([]).all(s, s.kind == \"Group\" ? !(s.name in \
         request.userInfo.?groups.orValue([])) : (s.kind == \"ServiceAccount\" ? \
         \"system:serviceaccount:\" + s.?namespace.orValue(\"\") + \":\" + s.name : s.name) != \
         request.userInfo.username)"
            .to_owned(),
        fixed("the broker binds neither itself nor a group that it is in"),
    )
}

/// CEL: whether a namespace with this name is neither one of the cluster's, nor a home or that of a
/// personal workspace. A name `tenant-*` with a reserved word belongs to no tenant.
fn is_foreign_to_tenants(namespace: &str) -> String {
    format!(
        "{namespace} != \"\" && !{namespace}.startsWith(\"kube-\") && \
         (!{namespace}.startsWith(\"tenant-\") || {})",
        is_reserved_home(namespace)
    )
}

/// Validation: nobody gets rights in a suspended namespace. The policy `tenant-suspended` refuses
/// new bindings only, because the broker changes no binding of a personal workspace.
fn refuse_grants_while_suspended() -> (String, Message) {
    (
        format!("!variables.grants || !({})", has_label("namespaceObject", SUSPENDED_LABEL)),
        fixed("the tenant is suspended: no rights are given"),
    )
}
