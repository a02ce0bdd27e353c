//! The policy for the homes of tenants (`tenant-guard-homes`).

use tenant_shared::HOME_LABEL;

use crate::install::{
    Parameters,
    cel::{administrator, fixed, is_broker_writing_its_kinds, is_system},
    policy::{Namespaces, Policy, rule},
};

/// CEL: whether the request creates a pod.
const IS_POD: &str = "(request.operation == \"CREATE\" && request.resource.group == \"\" && \
                      request.resource.resource == \"pods\" && \
                      request.?subResource.orValue(\"\") == \"\")";

pub(super) fn policy(parameters: &Parameters) -> Policy {
    let exempt = format!("{} || {}", is_broker_writing_its_kinds(parameters), is_system());
    Policy {
        name: "tenant-guard-homes",
        reason: "The home of a tenant says who owns the tenant (RoleBinding), and has the \
                 ServiceAccounts of its members. A binding in it makes its subjects owners, and a \
                 pod in it would have a member's token that no suspension of the person ends. \
                 Therefore the broker alone writes in it, and it has no pods, not even those of \
                 controllers.",
        // A namespace selector skips no cluster-scoped object, so the scope must exclude these.
        rules: vec![rule("*", &["*/*"], &["*"], "Namespaced")],
        conditions: vec![("is-no-system", format!("{IS_POD} || !({exempt})"))],
        variables: administrator(),
        validations: vec![
            (
                format!("!{IS_POD}"),
                fixed("the home of a tenant has no pods: use a namespace of the tenant"),
            ),
            (
                format!("{IS_POD} || variables.administrator"),
                fixed(
                    "the home of a tenant belongs to the broker: owners are written in the Tenant \
                     (spec.owners), and work goes into a namespace of the tenant",
                ),
            ),
        ],
        namespaces: Namespaces::Having(&[HOME_LABEL]),
    }
}
