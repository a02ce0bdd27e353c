//! The policy for suspended namespaces (`tenant-suspended`).

use tenant_shared::SUSPENDED_LABEL;

use crate::install::{
    Parameters,
    cel::{administrator, is_broker, is_kind_of_broker, is_system},
    policy::{Message, Namespaces, Policy, rule},
};

/// CEL: whether the request creates a token, a RoleBinding or a Secret.
const CREATES_ACCESS: &str = "request.?subResource.orValue(\"\") == \"token\" || \
                              (request.resource.resource in [\"rolebindings\", \"secrets\"] && \
                              request.operation == \"CREATE\")";

pub(super) fn policy(parameters: &Parameters) -> Policy {
    let is_broker = is_broker(parameters);
    Policy {
        name: "tenant-suspended",
        reason: "The write side of the kill switch: as soon as the namespace has the label, \
                 nothing is written or connected to (exec, attach, port-forward), so that a \
                 tenant that creates bindings in a loop is locked out. Reads end with the \
                 bindings. Controllers are exempt. The broker may revoke access; it may grant \
                 access only after it has removed the label. It writes no kinds that it does not \
                 need.",
        // A namespace selector skips no cluster-scoped object, so the scope must exclude these.
        rules: vec![rule("*", &["*/*"], &["*"], "Namespaced")],
        conditions: vec![(
            "is-held",
            format!(
                "{is_broker} ? {CREATES_ACCESS} || !({}) : !({})",
                is_kind_of_broker(parameters),
                is_system()
            ),
        )],
        variables: administrator(),
        validations: vec![
            (
                format!("!({is_broker})"),
                Message::Fixed(
                    "the workspace is suspended: the broker gives neither tokens nor rights, and writes \
                     nothing else"
                        .to_owned(),
                ),
            ),
            (
                format!("{is_broker} || variables.administrator"),
                Message::Fixed("the workspace is suspended".to_owned()),
            ),
        ],
        namespaces: Namespaces::Having(&[SUSPENDED_LABEL]),
    }
}
