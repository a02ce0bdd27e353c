//! The policy for RoleBindings, quotas and limits in the namespaces of tenants
//! (`tenant-guard-tenant-objects`).

use tenant_shared::{BINDINGS_LABEL, TENANT_LABEL};

use super::{
    IS_NO_BINDING_OR_DELETE, MAX_ANNOTATION_CHARS, MAX_ENTRIES, has_large_metadata, not_system,
    refuse_finalizers_of_binding, refuse_many_managers, refuse_unprintable_names,
};
use crate::{
    cluster::{KubernetesUser, RBAC},
    install::{
        Parameters,
        cel::{OBJECT_NAME, WRITE_OPERATIONS, adds_no, administrator, label, unless_administrator},
        policy::{Message, Namespaces, Policy, rule},
        quoted,
    },
};

/// Prefix of the names of the broker's objects, and of the namespaces with the ServiceAccounts of
/// members.
const RESERVED_PREFIX: &str = "tenant-";
/// Value of the label for `spec.bindings: Any`.
const ANY_SUBJECT: &str = "any";
/// Subjects of a RoleBinding. The API server has no limit, and each subject costs it time.
const MAX_SUBJECTS: usize = 256;
/// Characters of each name in a RoleBinding, as in a Tenant. The API server does not limit the length of
/// a RoleBinding's own name, of its role, nor of its subjects' names and namespaces.
const MAX_NAME_CHARS: usize = 339;

pub(super) fn policy(parameters: &Parameters) -> Policy {
    Policy {
        name: "tenant-guard-tenant-objects",
        reason: "The RoleBindings, quotas and limits of the broker carry out the Tenant, whatever \
                 roles it gives. Owners may grant permissions to their own programs. Subjects from \
                 outside need bindings: Any in the Tenant, which reaches neither everybody nor the \
                 members of tenants, because such grants would outlive their suspension.",
        rules: vec![
            // The API server admits by the amounts in the status.
            rule(
                "",
                &["resourcequotas", "resourcequotas/status", "limitranges"],
                &WRITE_OPERATIONS,
                "Namespaced",
            ),
            rule(RBAC, &["rolebindings"], &WRITE_OPERATIONS, "Namespaced"),
        ],
        conditions: not_system(parameters),
        variables: administrator(),
        validations: vec![
            refuse_names_of_broker(),
            refuse_unprintable_names(),
            refuse_many_managers(),
            refuse_many_subjects(),
            refuse_long_names(),
            refuse_large_metadata(),
            refuse_foreign_subjects(),
            refuse_broker(parameters),
            refuse_finalizers_of_binding(),
            refuse_owners_of_binding(),
        ],
        namespaces: Namespaces::Having(&[TENANT_LABEL]),
    }
}

/// Validation: the object is none of the broker's.
fn refuse_names_of_broker() -> (String, Message) {
    unless_administrator(
        &format!("!{OBJECT_NAME}.startsWith({})", quoted(RESERVED_PREFIX)),
        "RoleBindings, quotas and limits with names tenant-* belong to the broker: change the \
         Tenant, or use another name",
    )
}

/// CEL: whether a RoleBinding has at most [`MAX_SUBJECTS`].
fn has_few_subjects() -> String {
    format!("object.?subjects.orValue([]).size() <= {MAX_SUBJECTS}")
}

/// Validation: a RoleBinding has at most [`MAX_SUBJECTS`].
fn refuse_many_subjects() -> (String, Message) {
    unless_administrator(
        &format!("{IS_NO_BINDING_OR_DELETE} || {}", has_few_subjects()),
        &format!(
            "a RoleBinding in a tenant's namespace has at most {MAX_SUBJECTS} subjects, because the \
             API server checks each of them: bind a group, or make several RoleBindings"
        ),
    )
}

/// Validation: a RoleBinding has no long names, because the broker reads those of all RoleBindings of
/// a namespace that moves. Those of too many subjects are not checked, because they are refused anyway.
fn refuse_long_names() -> (String, Message) {
    unless_administrator(
        &format!(
            "{IS_NO_BINDING_OR_DELETE} || object.metadata.name.size() <= {MAX_NAME_CHARS} && \
             object.roleRef.name.size() <= {MAX_NAME_CHARS} && (!({}) || \
             object.?subjects.orValue([]).all(s, s.name.size() <= {MAX_NAME_CHARS} && \
             s.?namespace.orValue(\"\").size() <= {MAX_NAME_CHARS}))",
            has_few_subjects()
        ),
        &format!(
            "a RoleBinding in a tenant's namespace has names of at most {MAX_NAME_CHARS} characters: \
             its own, and those of its role and subjects"
        ),
    )
}

/// Validation: a RoleBinding has few labels and annotations, because the broker reads those of all
/// RoleBindings. The API server limits the values of labels itself.
fn refuse_large_metadata() -> (String, Message) {
    unless_administrator(
        &format!("{IS_NO_BINDING_OR_DELETE} || !({})", has_large_metadata()),
        &format!(
            "a RoleBinding in a tenant's namespace has at most {MAX_ENTRIES} labels and \
             {MAX_ENTRIES} annotations, and {MAX_ANNOTATION_CHARS} characters in all annotations \
             together: leave some out"
        ),
    )
}

/// Validation: the subjects of a RoleBinding are ServiceAccounts of its namespace. With
/// `bindings: Any` others may be named, but not groups and users of Kubernetes, nor members, whose
/// ServiceAccounts are in namespaces `tenant-*`. Too many subjects are not checked, because they are
/// refused anyway.
fn refuse_foreign_subjects() -> (String, Message) {
    let any = format!("{} == {}", label("namespaceObject", BINDINGS_LABEL), quoted(ANY_SUBJECT));
    let reserved = quoted(RESERVED_PREFIX);
    unless_administrator(
        &format!(
            "{IS_NO_BINDING_OR_DELETE} || !({}) || object.?subjects.orValue([]).all(s, (s.kind == \
             \"ServiceAccount\" && s.?namespace.orValue(\"\") == request.namespace) || ({any} && \
             (s.kind == \"ServiceAccount\" ? !s.?namespace.orValue(\"\").startsWith({reserved}) : \
             !s.name.startsWith(\"system:\"))))",
            has_few_subjects(),
        ),
        "a RoleBinding in a tenant's namespace may name ServiceAccounts of the same namespace \
         only. With spec.bindings: Any in the Tenant it may name others, but no user or group \
         system:* and no member of a tenant",
    )
}

/// Validation: no subject is the broker, also with `bindings: Any`: a thief of its credential could
/// make a member, and have the member bind the broker. A group of which the API server knows the broker
/// by its certificate is not known here.
fn refuse_broker(parameters: &Parameters) -> (String, Message) {
    let is_broker = match &parameters.broker {
        KubernetesUser::User(name) => {
            format!("s.kind == \"User\" && s.name == {}", quoted(name))
        }
        KubernetesUser::ServiceAccount { namespace, name } => format!(
            "s.kind == \"ServiceAccount\" && s.name == {} && s.?namespace.orValue(\"\") == {}",
            quoted(name),
            quoted(namespace)
        ),
    };
    unless_administrator(
        &format!(
            "{IS_NO_BINDING_OR_DELETE} || !({}) || \
             object.?subjects.orValue([]).all(s, !({is_broker}))",
            has_few_subjects()
        ),
        "a RoleBinding in a tenant's namespace may not name the broker, because its rights are for \
         its own work only",
    )
}

/// Validation: of ServiceAccounts only those of other namespaces that do not begin with `tenant-`
/// add an owner to a RoleBinding, which may be namespaces of the same or another tenant. Operators
/// (controllers) own the bindings that they create for a tenant.
fn refuse_owners_of_binding() -> (String, Message) {
    let caller = "request.userInfo.username";
    let is_operator = format!(
        "({caller}.startsWith(\"system:serviceaccount:\") && \
         !{caller}.startsWith(\"system:serviceaccount:{RESERVED_PREFIX}\") && \
         !{caller}.startsWith(\"system:serviceaccount:\" + request.namespace + \":\"))"
    );
    unless_administrator(
        &format!("{IS_NO_BINDING_OR_DELETE} || {is_operator} || {}", adds_no("ownerReferences")),
        "a tenant's RoleBinding may not have ownerReferences, because the owner's deletion \
         would decide when it is gone",
    )
}
