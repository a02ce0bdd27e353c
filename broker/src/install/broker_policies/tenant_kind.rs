//! The policy for Tenants themselves (`tenant-broker-fence-tenants`).

use crate::{
    install::{
        Parameters,
        cel::{WRITE_OPERATIONS, adds_no, broker_only, fixed},
        policy::{Message, Namespaces, Policy, rule},
    },
    tenant::ApiGroup,
};

/// CEL: whether the request writes the status of a Tenant.
const IS_STATUS: &str = "request.?subResource.orValue(\"\") == \"status\"";

/// The policy names both API groups, whether or not the cluster serves them: the broker verifies it
/// without knowing with which definitions `install` ran.
pub(super) fn policy(parameters: &Parameters) -> Policy {
    let groups = [ApiGroup::TenantBroker, ApiGroup::Capsule];
    let rules = groups
        .map(|group| rule(group.name(), &["tenants", "tenants/*"], &WRITE_OPERATIONS, "Cluster"));
    Policy {
        name: "tenant-broker-fence-tenants",
        reason: "A Tenant says who owns what. The broker reports in its status. It may write what \
                 owners get only where administrators do that through the broker (tenants.write).",
        rules: rules.into(),
        conditions: broker_only(parameters),
        variables: vec![],
        validations: vec![status_only(parameters), refuse_finalizers_and_owners()],
        namespaces: Namespaces::All,
    }
}

/// Validation: the broker writes the status, and Tenants themselves only with `tenants.write`.
fn status_only(parameters: &Parameters) -> (String, Message) {
    if parameters.tenants.write {
        (
            format!("{IS_STATUS} || request.?subResource.orValue(\"\") == \"\""),
            fixed("the broker may write Tenants and their status only"),
        )
    } else {
        (
            IS_STATUS.to_owned(),
            fixed("the broker may write the status of Tenants only (tenants.write)"),
        )
    }
}

/// Validation: a write adds no finalizers and no owners.
fn refuse_finalizers_and_owners() -> (String, Message) {
    (
        format!(
            "request.operation == \"DELETE\" || ({} && {})",
            adds_no("finalizers"),
            adds_no("ownerReferences")
        ),
        fixed("the broker gives Tenants no finalizers and no owners"),
    )
}
