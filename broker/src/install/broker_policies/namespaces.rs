//! The policy for namespaces that are no tenant's (`tenant-broker-fence-namespaces`): for those of
//! personal workspaces, and against changes of all others.

use tenant_shared::{
    MANAGED_BY_LABEL, MANAGED_BY_VALUE, SUSPENDED_LABEL, TIER_LABEL, WORKSPACE_LABEL,
};

use crate::{
    cluster::{POD_SECURITY, POD_SECURITY_WARN},
    install::{
        Parameters,
        cel::{TENANT_NAMESPACE_PATTERN, WRITE_OPERATIONS, fixed, label},
        policy::{Message, Namespaces, Policy, rule},
        quoted, quoted_list,
    },
};

/// The labels that a new namespace may have.
const ALLOWED_LABELS: [&str; 6] = [
    MANAGED_BY_LABEL,
    WORKSPACE_LABEL,
    TIER_LABEL,
    POD_SECURITY,
    POD_SECURITY_WARN,
    // Set by the API server.
    "kubernetes.io/metadata.name",
];

pub(super) fn policy(parameters: &Parameters) -> Policy {
    Policy {
        name: "tenant-broker-fence-namespaces",
        reason: "The broker creates tenants' namespaces and labels them as suspended. It may not \
                 adopt, change or delete other namespaces, nor weaken what its own enforce.",
        rules: vec![rule("", &["namespaces", "namespaces/*"], &WRITE_OPERATIONS, "Cluster")],
        conditions: super::namespace_conditions(parameters, false),
        variables: vec![],
        validations: vec![
            refuse_deletion(),
            refuse_subresources(),
            require_tenant_name_and_labels(parameters),
            refuse_other_metadata(),
            refuse_other_changes(),
        ],
        namespaces: Namespaces::All,
    }
}

/// Validation: no namespace is deleted.
pub(super) fn refuse_deletion() -> (String, Message) {
    (
        "request.operation != \"DELETE\"".to_owned(),
        fixed("the broker may not delete namespaces: that is for an administrator"),
    )
}

/// Validation: no subresource is written.
pub(super) fn refuse_subresources() -> (String, Message) {
    (
        "request.?subResource.orValue(\"\") == \"\"".to_owned(),
        fixed("the broker may not write a namespace's status or finalizers"),
    )
}

/// Validation: a new namespace has a tenant's name, and the labels of a workspace and its tier.
fn require_tenant_name_and_labels(parameters: &Parameters) -> (String, Message) {
    (
        format!(
            "request.operation != \"CREATE\" || (object.metadata.name.matches({}) && {} == \
             {} && {} != \"\" && {} != \"\" && {} in {})",
            quoted(TENANT_NAMESPACE_PATTERN),
            label("object", MANAGED_BY_LABEL),
            quoted(MANAGED_BY_VALUE),
            label("object", WORKSPACE_LABEL),
            label("object", TIER_LABEL),
            label("object", POD_SECURITY),
            quoted_list(&parameters.pod_security),
        ),
        Message::Fixed(format!(
            "the broker may make namespaces tenant-<uuid> only, with the labels \
             {MANAGED_BY_LABEL}={MANAGED_BY_VALUE}, {WORKSPACE_LABEL}, {TIER_LABEL} and \
             {POD_SECURITY} of a tier"
        )),
    )
}

/// Validation: a new namespace has the allowed labels and no other metadata.
fn refuse_other_metadata() -> (String, Message) {
    let allowed = quoted_list(&ALLOWED_LABELS);
    let empty = |field: &str| format!("object.metadata.?{field}.orValue([]).size() == 0");
    (
        format!(
            "request.operation != \"CREATE\" || (object.metadata.labels.all(k, k in {allowed}) && \
             object.metadata.?annotations.orValue({{}}).size() == 0 && {} && {} && \
             object.?spec.finalizers.orValue([]).all(f, f == \"kubernetes\"))",
            empty("finalizers"),
            empty("ownerReferences"),
        ),
        Message::Built(
            format!(
                "\"the broker may make plain namespaces only: no annotations, finalizers and \
                 owners, and no other labels than \" + {allowed}.join(\", \")"
            ),
            "the broker may make plain namespaces only".to_owned(),
        ),
    )
}

/// Validation: an update changes only the suspended label of a managed namespace.
fn refuse_other_changes() -> (String, Message) {
    let unchanged = |field: &str, empty: &str| {
        format!(
            "object.metadata.?{field}.orValue({empty}) == oldObject.metadata.?{field}.orValue({empty})"
        )
    };
    (
        format!(
            "request.operation != \"UPDATE\" || (oldObject.metadata.name.matches({}) && {} != \"\" \
             && {} && {} && {} && {} && {} && object.spec == oldObject.spec)",
            quoted(TENANT_NAMESPACE_PATTERN),
            label("oldObject", WORKSPACE_LABEL),
            has_labels_of("object", "oldObject"),
            has_labels_of("oldObject", "object"),
            unchanged("annotations", "{}"),
            unchanged("finalizers", "[]"),
            unchanged("ownerReferences", "[]"),
        ),
        Message::Fixed(format!(
            "the broker may change nothing of a namespace but the label {SUSPENDED_LABEL} \
             of a managed one"
        )),
    )
}

/// CEL: whether each label of `one` but the suspended label is on `other` with the same value.
fn has_labels_of(one: &str, other: &str) -> String {
    format!(
        "{one}.metadata.?labels.orValue({{}}).all(k, k == {} || (k in \
         {other}.metadata.?labels.orValue({{}}) && {other}.metadata.labels[k] == \
         {one}.metadata.labels[k]))",
        quoted(SUSPENDED_LABEL)
    )
}
