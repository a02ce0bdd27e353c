//! The policy for Secrets (`tenant-broker-fence-secrets`).

use tenant_shared::{
    MANAGED_BY_LABEL, MANAGED_BY_VALUE, TENANT_LABEL, TOKEN_SECRET_PREFIX, WORKSPACE_LABEL,
};

use crate::{
    cluster::SECRET_TYPE,
    install::{
        Parameters,
        cel::{TENANT_NAMESPACE_PATTERN, WRITE_OPERATIONS, broker_only, fixed, label},
        policy::{Message, Namespaces, Policy, rule},
        quoted,
    },
};

/// The policy for Secrets, installed only where the broker may write them; elsewhere RBAC refuses
/// that. It applies to all namespaces, so that the other policies are the same with the permission
/// and without.
pub(in crate::install) fn policy(parameters: &Parameters) -> Policy {
    Policy {
        name: "tenant-broker-fence-secrets",
        reason: "The broker creates empty Secrets that tokens are bound to, and may delete only \
                 these. With the RBAC permission alone it could create one that is filled with a \
                 token that never expires, or delete Secrets of others.",
        rules: vec![rule("", &["secrets"], &WRITE_OPERATIONS, "Namespaced")],
        conditions: broker_only(parameters),
        variables: vec![(
            "secret",
            "request.operation == \"DELETE\" ? oldObject : object".to_owned(),
        )],
        validations: vec![
            require_managed_namespace(parameters),
            (
                "request.operation != \"UPDATE\"".to_owned(),
                fixed("the broker may not change Secrets"),
            ),
            require_name_prefix(),
            require_type_without_data(),
            require_labels_of_namespace(parameters),
            require_immutable_without_holders(),
        ],
        namespaces: Namespaces::All,
    }
}

/// Validation: the namespace has a tenant's name and the label of a workspace.
fn require_managed_namespace(parameters: &Parameters) -> (String, Message) {
    let personal = format!(
        "request.namespace.matches({}) && {} != \"\"",
        quoted(TENANT_NAMESPACE_PATTERN),
        label("namespaceObject", WORKSPACE_LABEL),
    );
    (
        if parameters.tenants.enabled { format!("{personal} || {}", is_home()) } else { personal },
        fixed("the broker may write Secrets in managed tenant namespaces only"),
    )
}

/// CEL: whether the namespace is the home of a tenant.
fn is_home() -> String {
    format!(
        "{} != \"\" && request.namespace == \"tenant-\" + {}",
        label("namespaceObject", TENANT_LABEL),
        label("namespaceObject", TENANT_LABEL),
    )
}

/// Validation: the name of the Secret has the prefix of the broker's Secrets.
fn require_name_prefix() -> (String, Message) {
    (
        format!("variables.secret.metadata.name.startsWith({})", quoted(TOKEN_SECRET_PREFIX)),
        Message::Fixed(format!(
            "the broker may write Secrets with names {TOKEN_SECRET_PREFIX}* only"
        )),
    )
}

/// Validation: the Secret has the type of the broker's Secrets and no data.
fn require_type_without_data() -> (String, Message) {
    (
        format!(
            "variables.secret.?type.orValue(\"\") == {} && {}",
            quoted(SECRET_TYPE),
            is_empty("?data", "{}")
        ),
        Message::Fixed(format!("the broker may write empty Secrets of type {SECRET_TYPE} only")),
    )
}

/// Validation: the Secret has the labels of the broker and of the namespace's workspace.
fn require_labels_of_namespace(parameters: &Parameters) -> (String, Message) {
    let of_namespace = format!(
        "{} == {}",
        label("variables.secret", WORKSPACE_LABEL),
        label("namespaceObject", WORKSPACE_LABEL)
    );
    // In a home there are several memberships, each with a workspace of its own.
    let of_namespace = if parameters.tenants.enabled {
        format!("({of_namespace} || {})", is_home())
    } else {
        of_namespace
    };
    (
        format!(
            "{} == {} && {} != \"\" && {of_namespace}",
            label("variables.secret", MANAGED_BY_LABEL),
            quoted(MANAGED_BY_VALUE),
            label("variables.secret", WORKSPACE_LABEL),
        ),
        Message::Fixed(format!(
            "the broker may write Secrets with the labels {MANAGED_BY_LABEL} and \
             {WORKSPACE_LABEL} of their namespace only"
        )),
    )
}

/// Validation: a new Secret is immutable, and has no finalizers and no owners.
fn require_immutable_without_holders() -> (String, Message) {
    (
        format!(
            "request.operation != \"CREATE\" || (variables.secret.?immutable.orValue(false) && {} \
             && {})",
            is_empty("metadata.?finalizers", "[]"),
            is_empty("metadata.?ownerReferences", "[]")
        ),
        fixed("the broker's Secrets are immutable, and nothing holds them or owns them"),
    )
}

/// CEL: whether a field of the Secret is missing or empty; `empty` is the empty value of its type.
fn is_empty(field: &str, empty: &str) -> String {
    format!("variables.secret.{field}.orValue({empty}).size() == 0")
}
