//! Admission policies for everybody but the broker in tenants' namespaces (`tenant-guard-*`,
//! `tenant-suspended`): they keep a tenant's permissions revocable, and refuse writes in suspended
//! namespaces.
//!
//! The cluster's own controllers are exempt, and so are users who could change these policies
//! anyway.

use tenant_shared::{
    LABEL_PREFIX, ROLE_BINDING_NAME, SERVICE_ACCOUNT_NAME, SUSPENDED_LABEL, TOKEN_SECRET_PREFIX,
    WORKSPACE_LABEL,
};

use super::{
    Parameters,
    cel::{
        MANAGED_NAMESPACES, OBJECT_NAME, WRITE_OPERATIONS, adds_no, administrator, is_broker,
        is_system, object_write_rules, tenant_account, unless_administrator,
    },
    policy::{Message, Namespaces, Policy, rule},
    quoted, quoted_list,
};
use crate::workspace::{LIMITS_NAME, QUOTA_NAME};

/// Namespaces of workspaces that are suspended.
const SUSPENDED_NAMESPACES: Namespaces = Namespaces::Having(SUSPENDED_LABEL);

pub(super) fn policies(parameters: &Parameters) -> Vec<Policy> {
    vec![secrets(parameters), objects(parameters), namespaces(parameters), suspended(parameters)]
}

/// Match condition: requests of neither the broker nor the cluster itself.
fn not_system(parameters: &Parameters) -> Vec<(&'static str, String)> {
    let broker = quoted(&parameters.broker.to_string());
    vec![("is-no-system", format!("!(request.userInfo.username == {broker} || {})", is_system()))]
}

fn secrets(parameters: &Parameters) -> Policy {
    Policy {
        name: "tenant-guard-secrets",
        reason: "A Secret of this type is filled with a token that never expires, and its type \
                 cannot be changed later. The broker binds tokens to Secrets of its own: if one \
                 was changed, the broker could no longer delete it, and the token would stay \
                 valid. A tenant may delete them, which ends a token of its own.",
        rules: vec![rule("", &["secrets"], &["CREATE", "UPDATE"], "Namespaced")],
        conditions: not_system(parameters),
        variables: administrator(),
        validations: vec![
            unless_administrator(
                "request.operation != \"CREATE\" || object.?type.orValue(\"\") != \
                 \"kubernetes.io/service-account-token\"",
                "Secrets of type kubernetes.io/service-account-token are not allowed in a tenant's \
                 namespace: their tokens never end",
            ),
            unless_administrator(
                &format!("!object.metadata.name.startsWith({})", quoted(TOKEN_SECRET_PREFIX)),
                &format!("Secrets with names {TOKEN_SECRET_PREFIX}* belong to the broker"),
            ),
        ],
        namespaces: MANAGED_NAMESPACES,
    }
}

fn objects(parameters: &Parameters) -> Policy {
    Policy {
        name: "tenant-guard-objects",
        reason: "The objects that limit and represent a tenant belong to the broker, whatever role \
                 a tier grants. A tenant may grant permissions to its own programs, but not to \
                 people, other tenants or everybody, because such grants would outlive a \
                 suspension of theirs. A second binding of the session's account would bypass the \
                 broker's.",
        rules: object_write_rules(),
        conditions: not_system(parameters),
        variables: administrator(),
        validations: vec![
            refuse_names_of_broker(),
            refuse_foreign_subjects(),
            refuse_finalizers_of_binding(),
            refuse_owners_of_binding(),
        ],
        namespaces: MANAGED_NAMESPACES,
    }
}

/// CEL: whether the object is no RoleBinding, or is deleted.
const UNBINDS_OR_OTHER: &str =
    "request.resource.resource != \"rolebindings\" || request.operation == \"DELETE\"";

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
            "{UNBINDS_OR_OTHER} || object.?subjects.orValue([]).all(s, s.kind == \
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

/// Validation: a write adds no finalizer to a RoleBinding.
fn refuse_finalizers_of_binding() -> (String, Message) {
    unless_administrator(
        &format!("{UNBINDS_OR_OTHER} || {}", adds_no("finalizers")),
        "a RoleBinding in a tenant's namespace may not have finalizers, because it grants its \
         role until it is gone",
    )
}

/// Validation: an account of a tenant adds no owner to a RoleBinding. Operators (controllers) own
/// the bindings that they create for a tenant; tenants do not need owners.
fn refuse_owners_of_binding() -> (String, Message) {
    unless_administrator(
        &format!("{UNBINDS_OR_OTHER} || !({}) || {}", is_tenant(), adds_no("ownerReferences")),
        "a tenant's RoleBinding may not have ownerReferences, because the owner's deletion \
         would decide when it is gone",
    )
}

fn namespaces(parameters: &Parameters) -> Policy {
    let ours = quoted(LABEL_PREFIX);
    let same = |one: &str, other: &str| {
        format!(
            "{one}.metadata.?labels.orValue({{}}).all(k, !k.startsWith({ours}) || (k in \
             {other}.metadata.?labels.orValue({{}}) && {other}.metadata.labels[k] == \
             {one}.metadata.labels[k]))"
        )
    };
    let managed = format!(
        "{}.?labels.orValue({{}}).exists(k, k == {})",
        "(request.operation == \"CREATE\" ? object : oldObject).metadata",
        quoted(WORKSPACE_LABEL)
    );
    Policy {
        name: "tenant-guard-namespaces",
        reason: "The policies select tenants' namespaces by labels of tenant-broker.io, so only \
                 the broker and administrators of the policies may write them. The labels of a \
                 tenant's namespace also decide over pod security, so no account of a tenant may \
                 change any of them, whatever role a tier grants. Others may write other labels \
                 as RBAC allows.",
        rules: vec![rule("", &["namespaces", "namespaces/*"], &WRITE_OPERATIONS, "Cluster")],
        conditions: not_system(parameters),
        variables: administrator(),
        validations: vec![
            unless_administrator(
                &format!(
                    "!({}) || !({managed} || {OBJECT_NAME}.startsWith(\"tenant-\"))",
                    is_tenant()
                ),
                "tenants' namespaces are made, labelled and deleted by the broker and administrators",
            ),
            unless_administrator(
                &format!(
                    "request.operation == \"DELETE\" || (request.operation == \"CREATE\" ? \
                     object.metadata.?labels.orValue({{}}).all(k, !k.startsWith({ours})) : {} && {})",
                    same("object", "oldObject"),
                    same("oldObject", "object"),
                ),
                &format!(
                    "labels {LABEL_PREFIX}* of a namespace are written by the broker (kubectl tenant \
                     suspend) and by administrators of its policies only"
                ),
            ),
        ],
        namespaces: Namespaces::All,
    }
}

/// CEL: whether the request is of a ServiceAccount in a tenant's namespace.
fn is_tenant() -> String {
    format!("request.userInfo.username.matches({})", quoted(&tenant_account()))
}

fn suspended(parameters: &Parameters) -> Policy {
    let is_broker = is_broker(parameters);
    let grants_access = "request.?subResource.orValue(\"\") == \"token\" || \
                         (request.resource.resource in [\"rolebindings\", \"secrets\"] && \
                         request.operation == \"CREATE\")";
    Policy {
        name: "tenant-suspended",
        reason: "The write side of the kill switch: as soon as the namespace has the label, \
                 nothing is written or connected to (exec, attach, port-forward), so that a \
                 tenant that creates bindings in a loop is locked out. Reads end with the \
                 bindings. Controllers are exempt. The broker may revoke access; it may grant \
                 access only after it has removed the label.",
        // A namespace selector skips no cluster-scoped object, so the scope must exclude these.
        rules: vec![rule("*", &["*/*"], &["*"], "Namespaced")],
        conditions: vec![(
            "is-held",
            format!("{is_broker} ? {grants_access} : !({})", is_system()),
        )],
        variables: administrator(),
        validations: vec![
            (
                format!("!({is_broker})"),
                Message::Fixed(
                    "the workspace is suspended: no tokens, and no rights are given".to_owned(),
                ),
            ),
            (
                format!("{is_broker} || variables.administrator"),
                Message::Fixed("the workspace is suspended".to_owned()),
            ),
        ],
        namespaces: SUSPENDED_NAMESPACES,
    }
}
