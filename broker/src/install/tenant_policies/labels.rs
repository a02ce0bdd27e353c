//! The policy for the labels by which the broker finds its objects (`tenant-guard-labels`).

use k8s_openapi::api::admissionregistration::v1::NamedRuleWithOperations;
use tenant_shared::{TENANT_LABEL, WORKSPACE_LABEL};

use super::not_system;
use crate::{
    cluster::RBAC,
    install::{
        Parameters,
        cel::{TENANT_OBJECTS, administrator, unless_administrator},
        policy::{Message, Namespaces, Policy, rule},
        quoted_list,
    },
};

/// The labels by which the broker lists objects in all namespaces.
const LABELS: [&str; 2] = [TENANT_LABEL, WORKSPACE_LABEL];

/// The policy for all namespaces, because the lists are those of the whole cluster. A label that an
/// object has already may stay, so that a later change of the object is not refused.
pub(super) fn policy(parameters: &Parameters) -> Policy {
    let labels = quoted_list(&LABELS);
    let mut conditions = not_system(parameters);
    conditions.push((
        "has-label-of-broker",
        format!("{labels}.exists(k, k in object.metadata.?labels.orValue({{}}))"),
    ));
    Policy {
        name: "tenant-guard-labels",
        reason: "The broker finds its objects by these labels, in lists of all namespaces. Whoever \
                 may write objects in one namespace could fill these lists, and so keep the broker \
                 from taking rights away.",
        rules: rules(),
        conditions,
        variables: administrator(),
        validations: vec![refuse_new_labels(&labels)],
        namespaces: Namespaces::All,
    }
}

/// The kinds that the broker lists by the labels, but for namespaces, which have a policy of their
/// own.
fn rules() -> Vec<NamedRuleWithOperations> {
    let core = [&TENANT_OBJECTS[..], &["resourcequotas/status"]].concat();
    let writes = ["CREATE", "UPDATE"];
    vec![
        rule("", &core, &writes, "Namespaced"),
        rule(RBAC, &["rolebindings"], &writes, "Namespaced"),
        rule("networking.k8s.io", &["networkpolicies"], &writes, "Namespaced"),
    ]
}

/// Validation: a write adds and changes no label of the broker.
fn refuse_new_labels(labels: &str) -> (String, Message) {
    unless_administrator(
        &format!(
            "{labels}.all(k, !(k in object.metadata.?labels.orValue({{}})) || (request.operation == \
             \"UPDATE\" && k in oldObject.metadata.?labels.orValue({{}}) && \
             oldObject.metadata.labels[k] == object.metadata.labels[k]))"
        ),
        &format!(
            "the labels {} of RoleBindings, ServiceAccounts, quotas, limits and NetworkPolicies are \
             written by the broker and by administrators of its policies only, because the broker \
             finds its objects by them: leave them out",
            LABELS.join(" and ")
        ),
    )
}
