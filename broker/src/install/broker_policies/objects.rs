//! The policy for the objects in namespaces of personal workspaces (`tenant-broker-fence-objects`).

use tenant_shared::{ROLE_BINDING_NAME, SERVICE_ACCOUNT_NAME, WORKSPACE_LABEL};

use super::{IS_BINDING, only_removes_finalizers};
use crate::{
    install::{
        Parameters,
        cel::{OBJECT_NAME, adds_no, broker_only, fixed, object_write_rules, tenant_name_required},
        policy::{Message, Namespaces, Policy},
        quoted, quoted_list,
    },
    workspace::{LIMITS_NAME, QUOTA_NAME},
};

/// CEL: whether the request creates an object.
const IS_CREATE: &str = "request.operation == \"CREATE\"";

pub(super) fn policy(parameters: &Parameters) -> Policy {
    Policy {
        name: "tenant-broker-fence-objects",
        reason: "Accounts, quotas and limits: the broker may write its own, in tenants' \
                 namespaces. There it may bind a tier's role to the tenant's own account, and \
                 delete bindings of anybody, together with the finalizers that block the deletion.",
        rules: object_write_rules(),
        conditions: broker_only(parameters),
        variables: vec![],
        validations: vec![
            tenant_name_required(),
            require_own_names(),
            refuse_changes(parameters),
            refuse_finalizers_and_owners(),
            require_role_of_tier(parameters),
            require_own_account_as_subject(),
        ],
        namespaces: Namespaces::Having(&[WORKSPACE_LABEL]),
    }
}

/// Validation: the object has the name of one of the broker's. An existing RoleBinding may have any
/// name.
fn require_own_names() -> (String, Message) {
    (
        format!(
            "{IS_BINDING} ? !({IS_CREATE}) || {OBJECT_NAME} == {} : {OBJECT_NAME} in {}",
            quoted(ROLE_BINDING_NAME),
            quoted_list(&[SERVICE_ACCOUNT_NAME, QUOTA_NAME, LIMITS_NAME])
        ),
        Message::Built(
            format!(
                "\"the broker may not write \" + request.resource.resource + \" \" + {OBJECT_NAME}"
            ),
            "the broker may write its own objects only".to_owned(),
        ),
    )
}

/// Validation: an update only removes finalizers of a RoleBinding or a ServiceAccount. Limits are
/// not deleted; RBAC allows it only for tenants, but then in all namespaces.
fn refuse_changes(parameters: &Parameters) -> (String, Message) {
    let changeable = quoted_list(&["rolebindings", "serviceaccounts"]);
    let keeps_objects = format!(
        "request.operation != \"UPDATE\" || (request.resource.resource in {changeable} && {})",
        only_removes_finalizers()
    );
    let expression = if parameters.tenants.enabled {
        format!(
            "request.operation == \"DELETE\" ? request.resource.resource in {changeable} : \
             {keeps_objects}"
        )
    } else {
        keeps_objects
    };
    (
        expression,
        fixed(
            "the broker may change nothing of what is there: it may take finalizers off \
             RoleBindings and its ServiceAccount",
        ),
    )
}

/// Validation: a new object has no finalizers and no owners.
fn refuse_finalizers_and_owners() -> (String, Message) {
    (
        format!("!({IS_CREATE}) || ({} && {})", adds_no("finalizers"), adds_no("ownerReferences")),
        fixed("the broker makes nothing with finalizers or owners"),
    )
}

/// Validation: a new RoleBinding grants the ClusterRole of a tier.
fn require_role_of_tier(parameters: &Parameters) -> (String, Message) {
    (
        in_new_binding(&format!(
            "object.roleRef.kind == \"ClusterRole\" && object.roleRef.name in {}",
            quoted_list(&parameters.roles)
        )),
        Message::Fixed(format!(
            "the broker may bind the ClusterRoles of tiers only: {}",
            parameters.roles.join(", ")
        )),
    )
}

/// Validation: the only subject of a new RoleBinding is the tenant's ServiceAccount.
fn require_own_account_as_subject() -> (String, Message) {
    (
        in_new_binding(&format!(
            "object.?subjects.orValue([]).size() == 1 && object.subjects.all(s, s.kind \
             == \"ServiceAccount\" && s.name == {} && s.?namespace.orValue(\"\") == \
             request.namespace)",
            quoted(SERVICE_ACCOUNT_NAME)
        )),
        Message::Fixed(format!(
            "the broker may bind {SERVICE_ACCOUNT_NAME} of the same namespace only"
        )),
    )
}

/// CEL: whether an expression holds, if the request creates a RoleBinding.
fn in_new_binding(expression: &str) -> String {
    format!("!({IS_BINDING} && {IS_CREATE}) || ({expression})")
}
