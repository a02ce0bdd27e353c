//! The policy for the objects in namespaces of personal workspaces (`tenant-guard-objects`).

use k8s_openapi::api::admissionregistration::v1::NamedRuleWithOperations;
use tenant_shared::{ROLE_BINDING_NAME, SERVICE_ACCOUNT_NAME, WORKSPACE_LABEL};

use super::{
    IS_NO_BINDING_OR_DELETE, not_system, refuse_finalizers_of_binding, refuse_many_managers,
    refuse_unprintable_names,
};
use crate::{
    install::{
        Parameters,
        cel::{
            OBJECT_NAME, adds_no, administrator, is_workspace_account, object_write_rules,
            unless_administrator,
        },
        policy::{Message, Namespaces, Policy, rule},
        quoted, quoted_list,
    },
    workspace::{LIMITS_NAME, QUOTA_NAME},
};

pub(super) fn policy(parameters: &Parameters) -> Policy {
    Policy {
        name: "tenant-guard-objects",
        reason: "The objects that limit and represent a tenant belong to the broker, whatever role \
                 a tier grants. A tenant may grant permissions to its own programs, but not to \
                 people, other tenants or everybody, because such grants would outlive a \
                 suspension of theirs. A second binding of the session's account would bypass the \
                 broker's.",
        rules: rules(),
        conditions: not_system(parameters),
        variables: administrator(),
        validations: vec![
            refuse_names_of_broker(),
            refuse_unprintable_names(),
            refuse_many_managers(),
            refuse_foreign_subjects(),
            refuse_finalizers_of_binding(),
            refuse_owners_of_binding(),
        ],
        namespaces: Namespaces::Having(&[WORKSPACE_LABEL]),
    }
}

fn rules() -> Vec<NamedRuleWithOperations> {
    let mut rules = object_write_rules();
    // The API server admits by the amounts in the status.
    rules.push(rule("", &["resourcequotas/status"], &["UPDATE"], "Namespaced"));
    rules
}

/// Validation: the object is none of the broker's.
fn refuse_names_of_broker() -> (String, Message) {
    let names = [SERVICE_ACCOUNT_NAME, QUOTA_NAME, LIMITS_NAME, ROLE_BINDING_NAME];
    unless_administrator(
        &format!("!({OBJECT_NAME} in {})", quoted_list(&names)),
        &format!(
            "{SERVICE_ACCOUNT_NAME}, {QUOTA_NAME}, {LIMITS_NAME} and {ROLE_BINDING_NAME} \
             belong to the broker"
        ),
    )
}

/// Validation: the subjects of a RoleBinding are ServiceAccounts of its namespace, and not the
/// account of the session.
fn refuse_foreign_subjects() -> (String, Message) {
    unless_administrator(
        &format!(
            "{IS_NO_BINDING_OR_DELETE} || object.?subjects.orValue([]).all(s, s.kind == \
             \"ServiceAccount\" && s.?namespace.orValue(\"\") == request.namespace && \
             s.name != {})",
            quoted(SERVICE_ACCOUNT_NAME)
        ),
        &format!(
            "a RoleBinding in a tenant's namespace may name ServiceAccounts of the same \
             namespace only, and not {SERVICE_ACCOUNT_NAME}"
        ),
    )
}

/// Validation: an account of a tenant adds no owner to a RoleBinding. Operators (controllers) own
/// the bindings that they create for a tenant; tenants do not need owners.
fn refuse_owners_of_binding() -> (String, Message) {
    unless_administrator(
        &format!(
            "{IS_NO_BINDING_OR_DELETE} || !({}) || {}",
            is_workspace_account(),
            adds_no("ownerReferences")
        ),
        "a tenant's RoleBinding may not have ownerReferences, because the owner's deletion \
         would decide when it is gone",
    )
}
