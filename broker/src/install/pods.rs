//! The admission policy for pods in tenants' namespaces (`tenant-pods`). Controllers create most
//! pods of tenants, so the policy exempts nobody from the rules for fields of a pod template.

use tenant_shared::SERVICE_ACCOUNT_NAME;

use super::{
    Parameters,
    cel::{
        administrator, fixed, in_namespace_of_tenant, is_allowed_in_all_namespaces, is_system,
        is_workspace_account_or_broker, managed_namespaces,
    },
    policy::{Message, Policy, rule},
    quoted,
};

/// CEL: whether the pod names its node.
const NAMES_NODE: &str = "object.spec.?nodeName.orValue(\"\") != \"\"";
/// The highest priority that a `PriorityClass` of a user may have (`HighestUserDefinablePriority`
/// of k8s.io/kubernetes/pkg/apis/scheduling). Above it are the classes `system-*`.
const MAX_PRIORITY: u32 = 1_000_000_000;
/// CEL: whether the request binds a pod to a node: `pods/binding`, or the older `bindings`.
const IS_BINDING: &str = "(request.resource.resource == \"bindings\" || \
                          request.?subResource.orValue(\"\") == \"binding\")";

/// Violations of the rules for pods: a CEL expression each, and the message for the caller.
fn violations() -> [(String, Message); 3] {
    [
        (
            format!(
                "object.spec.?serviceAccountName.orValue(\"\") == {}",
                quoted(SERVICE_ACCOUNT_NAME)
            ),
            Message::Fixed(format!(
                "a pod may not run as {SERVICE_ACCOUNT_NAME}: make a ServiceAccount for it"
            )),
        ),
        (
            format!(
                "object.spec.?priorityClassName.orValue(\"\").startsWith(\"system-\") || \
                 object.spec.?priority.orValue(0) > {MAX_PRIORITY}"
            ),
            fixed(
                "a pod in a tenant's namespace may not use a priority class system-*: it would evict \
                 the pods of others",
            ),
        ),
        (
            NAMES_NODE.to_owned(),
            fixed(
                "a pod in a tenant's namespace may not name its node: leave spec.nodeName out, the \
                 scheduler chooses",
            ),
        ),
    ]
}

/// CEL: whether the caller possibly may not bind pods. Without tenants this decides. With them the
/// label of the namespace decides, which a match condition does not know.
fn may_not_bind(parameters: &Parameters) -> String {
    if parameters.tenants.enabled {
        format!("!({})", is_system())
    } else {
        is_workspace_account_or_broker(parameters)
    }
}

fn variables(parameters: &Parameters) -> Vec<(&'static str, String)> {
    let mut variables = administrator();
    if parameters.tenants.enabled {
        variables.push(("scheduler", is_allowed_in_all_namespaces("create")));
    }
    variables
}

/// Validation: tenants bind no pods to nodes. In the namespaces of tenants members act as users,
/// groups and ServiceAccounts of any name, so everybody is refused who is no scheduler.
fn refuse_bindings(parameters: &Parameters) -> (String, Message) {
    let expression = if parameters.tenants.enabled {
        format!(
            "!{IS_BINDING} || ({} ? variables.scheduler || variables.administrator : !{})",
            in_namespace_of_tenant(),
            is_workspace_account_or_broker(parameters),
        )
    } else {
        format!("!{IS_BINDING}")
    };
    (expression, fixed("accounts of a tenant may not bind pods to nodes: the scheduler does"))
}

pub(super) fn policy(parameters: &Parameters) -> Policy {
    let violations = violations();
    let any: Vec<&str> = violations.iter().map(|(violation, _)| violation.as_str()).collect();
    let condition = format!("{IS_BINDING} ? {} : {}", may_not_bind(parameters), any.join(" || "));
    let mut validations = vec![refuse_bindings(parameters)];
    validations.extend(violations.into_iter().map(|(violation, message)| {
        // Administrators debug nodes with such pods. The node in a template is still refused,
        // because controllers are no administrators.
        let unless = if violation == NAMES_NODE { " || variables.administrator" } else { "" };
        (format!("{IS_BINDING} || !({violation}){unless}"), message)
    }));
    Policy {
        name: "tenant-pods",
        reason: "A pod with the session's account would carry a token of up to a year. A priority \
                 class system-* evicts the pods of other tenants. A pod that names its node \
                 bypasses the scheduler, and with it whatever the node is reserved for. The \
                 policy applies to everybody, because controllers create the pods of tenants.",
        rules: vec![rule("", &["pods", "pods/binding", "bindings"], &["CREATE"], "Namespaced")],
        // One condition, as in `tokens`: for an allowed pod nothing else is evaluated.
        conditions: vec![("is-wrong", condition)],
        variables: variables(parameters),
        validations,
        namespaces: managed_namespaces(parameters),
    }
}
