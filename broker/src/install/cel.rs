//! Expressions and rules that several policies share (CEL, Kubernetes API reference
//! `ValidatingAdmissionPolicy`).

use k8s_openapi::api::admissionregistration::v1::NamedRuleWithOperations;
use tenant_shared::WORKSPACE_LABEL;

use super::{
    Parameters,
    policy::{Message, Namespaces, rule},
    quoted, quoted_list,
};

pub(super) const RBAC: &str = "rbac.authorization.k8s.io";
pub(super) const WRITE_OPERATIONS: [&str; 3] = ["CREATE", "UPDATE", "DELETE"];
/// The name of the written object, as CEL.
pub(super) const OBJECT_NAME: &str =
    "(request.operation == \"DELETE\" ? oldObject : object).metadata.name";
/// The namespace of a user, `tenant-<uuid>`.
pub(super) const TENANT_NAMESPACE_PATTERN: &str =
    "^tenant-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";
/// The objects that limit and represent a tenant.
pub(super) const TENANT_OBJECTS: [&str; 3] = ["serviceaccounts", "resourcequotas", "limitranges"];
/// Namespaces that the broker created.
pub(super) const MANAGED_NAMESPACES: Namespaces = Namespaces::Having(WORKSPACE_LABEL);
/// Components of the control plane, by user.
pub(super) const SYSTEM_USERS: [&str; 3] =
    ["system:kube-controller-manager", "system:kube-scheduler", "system:apiserver"];
/// Administrators of last resort, kubelets, controllers.
pub(super) const SYSTEM_GROUPS: [&str; 3] =
    ["system:masters", "system:nodes", "system:serviceaccounts:kube-system"];

/// CEL: whether the request is the broker's.
pub(super) fn is_broker(parameters: &Parameters) -> String {
    format!("request.userInfo.username == {}", quoted(&parameters.broker.to_string()))
}

/// Match condition: only requests of the broker.
pub(super) fn broker_only(parameters: &Parameters) -> Vec<(&'static str, String)> {
    vec![("is-broker", is_broker(parameters))]
}

/// A message without expressions.
pub(super) fn fixed(text: &str) -> Message {
    Message::Fixed(text.to_owned())
}

/// CEL: the value of a label of `object`; empty if it has none.
pub(super) fn label(object: &str, name: &str) -> String {
    format!("{object}.metadata.?labels[{}].orValue(\"\")", quoted(name))
}

/// CEL: whether an update adds no element to this list of `metadata`, and a new object has none.
pub(super) fn adds_no(list: &str) -> String {
    format!(
        "object.metadata.?{list}.orValue([]).all(it, request.operation == \"UPDATE\" && it in \
         oldObject.metadata.?{list}.orValue([]))"
    )
}

/// Validation: the namespace has a tenant's name. The label alone is not enough, because others may
/// be able to set it.
pub(super) fn tenant_name_required() -> (String, Message) {
    (
        format!("request.namespace.matches({})", quoted(TENANT_NAMESPACE_PATTERN)),
        fixed("the broker may write in namespaces tenant-<uuid> only"),
    )
}

/// Rules for writes of the objects that limit and represent a tenant, and of RoleBindings.
pub(super) fn object_write_rules() -> Vec<NamedRuleWithOperations> {
    vec![
        rule("", &TENANT_OBJECTS, &WRITE_OPERATIONS, "Namespaced"),
        rule(RBAC, &["rolebindings"], &WRITE_OPERATIONS, "Namespaced"),
    ]
}

/// CEL: whether the request is of a component of the cluster.
pub(super) fn is_system() -> String {
    format!(
        "request.userInfo.username in {} || request.userInfo.?groups.orValue([]).exists(g, g in {})",
        quoted_list(&SYSTEM_USERS),
        quoted_list(&SYSTEM_GROUPS)
    )
}

/// Variable: whether the caller administers the policies. It is evaluated only when a request is
/// about to be refused, because it costs an authorization.
pub(super) fn administrator() -> Vec<(&'static str, String)> {
    vec![(
        "administrator",
        "authorizer.group(\"admissionregistration.k8s.io\")\
         .resource(\"validatingadmissionpolicies\").check(\"update\").allowed()"
            .to_owned(),
    )]
}

/// A validation for everybody but administrators.
pub(super) fn unless_administrator(expression: &str, message: &str) -> (String, Message) {
    (format!("{expression} || variables.administrator"), Message::Fixed(message.to_owned()))
}

/// Pattern of the user names of ServiceAccounts in tenants' namespaces. It matches the whole name
/// of the namespace, because the broker itself may be a ServiceAccount in a namespace
/// `tenant-broker`.
pub(super) fn tenant_account() -> String {
    format!("^system:serviceaccount:{}:", TENANT_NAMESPACE_PATTERN.trim_matches(['^', '$']))
}
