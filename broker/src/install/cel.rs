//! Expressions and rules that several policies share (CEL, Kubernetes API reference
//! `ValidatingAdmissionPolicy`).

use k8s_openapi::api::admissionregistration::v1::NamedRuleWithOperations;
use tenant_shared::{TENANT_LABEL, WORKSPACE_LABEL};

use super::{
    Parameters,
    policy::{Message, Namespaces, rule},
    quoted, quoted_list,
};
use crate::cluster::RBAC;

/// API group of Ingresses and NetworkPolicies.
pub(super) const NETWORKING: &str = "networking.k8s.io";
pub(super) const WRITE_OPERATIONS: [&str; 3] = ["CREATE", "UPDATE", "DELETE"];
/// The name of the written object, as CEL.
pub(super) const OBJECT_NAME: &str =
    "(request.operation == \"DELETE\" ? oldObject : object).metadata.name";
/// The namespace of a user, `tenant-<uuid>`.
pub(super) const TENANT_NAMESPACE_PATTERN: &str =
    "^tenant-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";
/// Name of the ServiceAccount of a member in the home of a tenant, `member-<user uuid>`.
pub(super) const MEMBER_PATTERN: &str =
    "^member-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";
/// The objects that limit and represent a tenant.
pub(super) const TENANT_OBJECTS: [&str; 3] = ["serviceaccounts", "resourcequotas", "limitranges"];
/// Components of the control plane, by user.
pub(super) const SYSTEM_USERS: [&str; 3] =
    ["system:kube-controller-manager", "system:kube-scheduler", "system:apiserver"];
/// Administrators of last resort, kubelets, controllers.
pub(super) const SYSTEM_GROUPS: [&str; 3] =
    ["system:masters", "system:nodes", "system:serviceaccounts:kube-system"];

/// Whether a write leaves a list in the metadata as it is, which a new object does not have, as CEL.
pub(super) fn is_list_unchanged(field: &str) -> String {
    format!(
        "object.metadata.?{field}.orValue([]) == (request.operation == \"CREATE\" ? [] : \
         oldObject.metadata.?{field}.orValue([]))"
    )
}

/// The labels of which a managed namespace has one: that of a personal workspace, and that of a
/// tenant where there are tenants.
pub(super) fn managed_labels(parameters: &Parameters) -> &'static [&'static str] {
    if parameters.tenants.enabled { &[WORKSPACE_LABEL, TENANT_LABEL] } else { &[WORKSPACE_LABEL] }
}

/// Namespaces of personal workspaces and of tenants, with the tenants' homes.
pub(super) fn managed_namespaces(parameters: &Parameters) -> Namespaces {
    Namespaces::Having(managed_labels(parameters))
}

/// All other namespaces.
pub(super) fn unmanaged_namespaces(parameters: &Parameters) -> Namespaces {
    Namespaces::Lacking(managed_labels(parameters))
}

/// CEL: whether the request is the broker's.
pub(super) fn is_broker(parameters: &Parameters) -> String {
    format!("request.userInfo.username == {}", quoted(&parameters.broker.to_string()))
}

/// CEL: whether the request is the broker's, and for a kind that the broker writes. A policy for
/// everybody else exempts such requests only, because `tenant-broker-fence-*` and `tenant-tokens`
/// decide over them. No policy decides over the other kinds if somebody binds the broker to a role.
pub(super) fn is_broker_writing_its_kinds(parameters: &Parameters) -> String {
    format!("({} && {})", is_broker(parameters), is_kind_of_broker(parameters))
}

/// CEL: whether the request is for a kind that the broker writes.
pub(super) fn is_kind_of_broker(parameters: &Parameters) -> String {
    format!(
        "(request.resource.group + \"/\" + request.resource.resource + \"/\" + \
         request.?subResource.orValue(\"\")) in {}",
        quoted_list(&kinds_of_broker(parameters))
    )
}

/// The kinds that the broker writes in namespaces, and namespaces: `GROUP/RESOURCE/SUBRESOURCE`.
pub(super) fn kinds_of_broker(parameters: &Parameters) -> Vec<String> {
    let core = ["namespaces", "serviceaccounts", "resourcequotas", "limitranges"];
    let mut kinds: Vec<String> = core.iter().map(|resource| format!("/{resource}/")).collect();
    kinds.extend(["/serviceaccounts/token".to_owned(), format!("{RBAC}/rolebindings/")]);
    // The list does not depend on `bind_tokens`, because that is switched off two hours before `install`
    // is run again. `tenant-guard-secrets` does not use the list.
    kinds.push("/secrets/".to_owned());
    if !parameters.network_policy_tiers.is_empty() {
        kinds.push(format!("{NETWORKING}/networkpolicies/"));
    }
    kinds
}

/// CEL: whether this object has a label, whatever its value.
pub(super) fn has_label(object: &str, name: &str) -> String {
    format!("{} in {object}.metadata.?labels.orValue({{}})", quoted(name))
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

/// CEL: whether the key `k` is that of a label that no tenant gets (`tenants.protected_labels`);
/// `None` without such labels.
pub(super) fn is_protected_label(parameters: &Parameters) -> Option<String> {
    let pattern = parameters.tenants.protected_labels.as_ref()?;
    Some(format!("k.matches({})", quoted(pattern.as_str())))
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

/// CEL: whether the request is of a ServiceAccount in the namespace of a personal workspace. The
/// pattern has the whole name of the namespace, because the broker itself may be a ServiceAccount
/// in a namespace `tenant-broker`.
pub(super) fn is_workspace_account() -> String {
    let namespace = TENANT_NAMESPACE_PATTERN.trim_matches(['^', '$']);
    let pattern = format!("^system:serviceaccount:{namespace}:");
    format!("request.userInfo.username.matches({})", quoted(&pattern))
}

/// CEL: whether the request is of such a ServiceAccount or of the broker, which may be bound in a
/// managed namespace as well.
pub(super) fn is_workspace_account_or_broker(parameters: &Parameters) -> String {
    format!("({} || {})", is_workspace_account(), is_broker(parameters))
}

/// CEL: whether the request is for an object in the namespace of a tenant with several people. Not
/// for match conditions, where the API server knows no labels of the namespace.
pub(super) fn in_namespace_of_tenant() -> String {
    has_label("namespaceObject", TENANT_LABEL)
}

/// CEL: whether the caller may do this with the resource of the request in all namespaces, as
/// components of the cluster may. A Tenant gives rights in its namespaces only.
pub(super) fn is_allowed_in_all_namespaces(verb: &str) -> String {
    format!(
        "authorizer.group(request.resource.group).resource(request.resource.resource)\
         .subresource(request.?subResource.orValue(\"\")).check({}).allowed()",
        quoted(verb)
    )
}
