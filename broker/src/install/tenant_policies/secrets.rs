//! The policy for Secrets (`tenant-guard-secrets`).

use tenant_shared::TOKEN_SECRET_PREFIX;

use crate::install::{
    Parameters,
    cel::{administrator, is_broker, is_system, managed_namespaces, unless_administrator},
    policy::{Policy, rule},
    quoted,
};

pub(super) fn policy(parameters: &Parameters) -> Policy {
    Policy {
        name: "tenant-guard-secrets",
        reason: "A Secret of this type is filled with a token that never expires, and its type \
                 cannot be changed later. The broker binds tokens to Secrets of its own: if one \
                 was changed, the broker could no longer delete it, and the token would stay \
                 valid. A tenant may delete them, which ends a token of its own.",
        rules: vec![rule("", &["secrets"], &["CREATE", "UPDATE"], "Namespaced")],
        conditions: vec![("is-no-system", format!("!({})", is_system()))],
        variables: administrator(),
        validations: vec![
            unless_administrator(
                "request.operation != \"CREATE\" || object.?type.orValue(\"\") != \
                 \"kubernetes.io/service-account-token\"",
                "Secrets of type kubernetes.io/service-account-token are not allowed in a tenant's \
                 namespace: their tokens never end",
            ),
            unless_administrator(
                &format!(
                    "!object.metadata.name.startsWith({}) || {}",
                    quoted(TOKEN_SECRET_PREFIX),
                    is_broker(parameters)
                ),
                &format!("Secrets with names {TOKEN_SECRET_PREFIX}* belong to the broker"),
            ),
        ],
        namespaces: managed_namespaces(parameters),
    }
}
