//! What a pod in a tenant's namespace may not be, whoever makes it: the controllers make most pods
//! of tenants, so the policy exempts nobody from what a template can say.

use tenant_shared::SERVICE_ACCOUNT_NAME;

use super::{
    fence::fixed,
    guard::{MANAGED, administrator, tenant_account},
    policy::{Message, Policy, rule},
    quoted,
};

/// Whether the pod names its node.
const NAMES_NODE: &str = "object.spec.?nodeName.orValue(\"\") != \"\"";
/// The highest priority that a `PriorityClass` of a user may have (`HighestUserDefinablePriority` of
/// k8s.io/kubernetes/pkg/apis/scheduling). Above it are the classes `system-*`.
const MAX_PRIORITY: u32 = 1_000_000_000;
/// Whether the request binds a pod to a node: `pods/binding`, or the older `bindings`.
const IS_BINDING: &str = "(request.resource.resource == \"bindings\" || \
                          request.?subResource.orValue(\"\") == \"binding\")";

/// What is wrong with a pod, as CEL, and what the caller is told.
fn wrongs() -> [(String, Message); 3] {
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

pub(super) fn policy() -> Policy {
    let is_tenant = format!("request.userInfo.username.matches({})", quoted(&tenant_account()));
    let wrongs = wrongs();
    let any: Vec<&str> = wrongs.iter().map(|(wrong, _)| wrong.as_str()).collect();
    let condition = format!("{IS_BINDING} ? {is_tenant} : {}", any.join(" || "));
    let mut validations = vec![(
        format!("!{IS_BINDING}"),
        fixed("accounts of a tenant may not bind pods to nodes: the scheduler does"),
    )];
    validations.extend(wrongs.into_iter().map(|(wrong, told)| {
        // An administrator debugs a node so. A template's node is the tenant's word, for the
        // controllers are no administrators.
        let unless = if wrong == NAMES_NODE { " || variables.administrator" } else { "" };
        (format!("{IS_BINDING} || !({wrong}){unless}"), told)
    }));
    Policy {
        name: "tenant-pods",
        why: "A pod with the session's account would carry a token of up to a year. A priority class \
              system-* evicts the pods of neighbours, and a node that is named by hand is taken \
              without the scheduler and whatever it is reserved for. For everybody, because \
              controllers make the pods of tenants.",
        rules: vec![rule("", &["pods", "pods/binding", "bindings"], &["CREATE"], "Namespaced")],
        // One condition, as in `tokens`: a pod that is as it should be gets no further.
        conditions: vec![("is-wrong", condition)],
        variables: administrator(),
        validations,
        namespaces: MANAGED,
    }
}
