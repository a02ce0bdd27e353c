//! The policy for Tenants themselves (`tenant-broker-fence-tenants`).

use crate::{
    install::{
        Parameters,
        cel::{WRITE_OPERATIONS, adds_no, broker_only, fixed, is_list_unchanged},
        policy::{Message, Namespaces, Policy, rule},
        quoted,
    },
    tenant::{ApiGroup, KEEP_NAMESPACES, ON_DELETE_ANNOTATION},
};

/// CEL: whether the request writes the status of a Tenant.
const IS_STATUS: &str = "request.?subResource.orValue(\"\") == \"status\"";

/// The policy names both API groups, whether or not the cluster serves them: the broker verifies it
/// without knowing with which definitions `install` ran.
pub(super) fn policy(parameters: &Parameters) -> Policy {
    let groups = [ApiGroup::TenantBroker, ApiGroup::Capsule];
    let rules = groups
        .map(|group| rule(group.name(), &["tenants", "tenants/*"], &WRITE_OPERATIONS, "Cluster"));
    let may_write = parameters.tenants.write;
    Policy {
        name: "tenant-broker-fence-tenants",
        reason: "A Tenant says who owns what. The broker reports in its status. It may write what \
                 owners get only where administrators do that through the broker (tenants.write).",
        rules: rules.into(),
        conditions: broker_only(parameters),
        variables: if may_write { metadata_variables() } else { vec![] },
        validations: if may_write {
            vec![own_group_only(), refuse_finalizers_and_owners(), refuse_other_metadata()]
        } else {
            vec![status_only(), refuse_new_finalizers_and_owners()]
        },
        namespaces: Namespaces::All,
    }
}

/// Variables: labels and annotations after and before the write. A new object had none.
fn metadata_variables() -> Vec<(&'static str, String)> {
    let after = |field: &str| format!("object.?metadata.?{field}.orValue({{}})");
    let before = |field: &str| {
        format!(
            "request.operation == \"CREATE\" ? {{}} : oldObject.metadata.?{field}.orValue({{}})"
        )
    };
    vec![
        ("labels", after("labels")),
        ("labelsBefore", before("labels")),
        ("annotations", after("annotations")),
        ("annotationsBefore", before("annotations")),
    ]
}

/// Validation: without `tenants.write` the broker writes the status only.
fn status_only() -> (String, Message) {
    (IS_STATUS.to_owned(), fixed("the broker may write the status of Tenants only (tenants.write)"))
}

/// Validation: a write adds no finalizers and no owners.
fn refuse_new_finalizers_and_owners() -> (String, Message) {
    (
        format!(
            "request.operation == \"DELETE\" || ({} && {})",
            adds_no("finalizers"),
            adds_no("ownerReferences")
        ),
        fixed("the broker gives Tenants no finalizers and no owners"),
    )
}

/// Validation: with `tenants.write` the broker writes Tenants of its own API group, and the status
/// of those of Capsule's.
fn own_group_only() -> (String, Message) {
    (
        format!(
            "{IS_STATUS} || (request.?subResource.orValue(\"\") == \"\" && request.resource.group \
             == {})",
            quoted(ApiGroup::TenantBroker.name())
        ),
        Message::Fixed(format!(
            "the broker may write Tenants of {} and the status of Tenants only",
            ApiGroup::TenantBroker.name()
        )),
    )
}

/// Validation: a write leaves finalizers and owners as they are; a new Tenant has none.
fn refuse_finalizers_and_owners() -> (String, Message) {
    (
        format!(
            "request.operation == \"DELETE\" || ({} && {})",
            is_list_unchanged("finalizers"),
            is_list_unchanged("ownerReferences"),
        ),
        fixed("the broker changes no finalizers and no owners of Tenants"),
    )
}

/// Validation: of labels and annotations a write changes only the annotation that says what the
/// deletion does.
fn refuse_other_metadata() -> (String, Message) {
    let on_delete = quoted(ON_DELETE_ANNOTATION);
    let keep = quoted(KEEP_NAMESPACES);
    (
        format!(
            "request.operation == \"DELETE\" || (variables.labels == variables.labelsBefore && \
             variables.annotations.all(k, (k in variables.annotationsBefore && \
             variables.annotationsBefore[k] == variables.annotations[k]) || k == {on_delete} && \
             variables.annotations[k] == {keep}) && variables.annotationsBefore.all(k, k == \
             {on_delete} || k in variables.annotations))"
        ),
        Message::Fixed(format!(
            "of the metadata of Tenants the broker may write {ON_DELETE_ANNOTATION}=\
             {KEEP_NAMESPACES} only"
        )),
    )
}
