//! The policy for namespaces that people create directly at the API server
//! (`tenant-guard-creation`), with `tenants.direct_namespaces`.
//!
//! It decides alone whose namespaces they are. The mutating policy `tenant-namespace-labels` only
//! fills in labels, and not every API server serves it. `tenant-guard-namespaces` refuses names of
//! the broker.

use tenant_shared::{LABEL_PREFIX, TENANT_LABEL};

use super::{
    IS_GUARDED_ANNOTATION, MAX_ANNOTATION_CHARS, MAX_ENTRIES, TENANTS_OF_CALLER,
    has_large_metadata, not_system, weakest_level,
};
use crate::{
    cluster::{POD_SECURITY, POD_SECURITY_PREFIX, POD_SECURITY_RESTRICTED},
    install::{
        Parameters,
        cel::{administrator, is_protected_label, label, unless_administrator},
        policy::{Message, Namespaces, Policy, rule},
        quoted, quoted_list,
    },
};

/// CEL: whether the namespace belongs to no tenant.
const IS_NO_TENANTS: &str = "variables.tenant == \"\"";

pub(super) fn policy(parameters: &Parameters) -> Policy {
    let mut validations = vec![
        limit_metadata(),
        require_tenant(),
        require_owner(),
        require_prefix(),
        refuse_protected_names(parameters),
        require_pod_security(parameters),
        refuse_labels(),
        refuse_owners_and_finalizers(),
        refuse_guarded_annotations(),
    ];
    validations.extend(is_protected_label(parameters).map(|it| refuse_protected_labels(&it)));
    Policy {
        name: "tenant-guard-creation",
        reason: "Owners of tenants create namespaces directly (tenants.direct_namespaces). RBAC \
                 has no rule for names of new objects, so this policy is what keeps them to \
                 namespaces of their own tenants. The API server's authorizer decides on the \
                 ownership, by the RoleBindings in the home of the tenant.",
        rules: vec![rule("", &["namespaces"], &["CREATE"], "Cluster")],
        conditions: not_system(parameters),
        variables: variables(),
        validations,
        namespaces: Namespaces::All,
    }
}

/// Each check of the authorizer is a variable of its own, because it costs 350,000 of the 1,000,000
/// units that one expression may cost.
fn variables() -> Vec<(&'static str, String)> {
    let mut variables = administrator();
    variables.extend([
        // May delete every namespace, so may also create those of no tenant.
        (
            "manager",
            "authorizer.group(\"\").resource(\"namespaces\").check(\"delete\").allowed()"
                .to_owned(),
        ),
        // The validations below go through all labels and annotations, unless they are refused.
        ("large", has_large_metadata()),
        ("tenant", label("object", TENANT_LABEL)),
        (
            "owner",
            format!(
                "{TENANTS_OF_CALLER}.namespace(\"tenant-\" + variables.tenant)\
                 .name(variables.tenant).check(\"own\").allowed()"
            ),
        ),
    ]);
    variables
}

/// Validation: the namespace has few labels and annotations. The API server limits the values of
/// labels itself.
fn limit_metadata() -> (String, Message) {
    unless_administrator(
        "!variables.large",
        &format!(
            "a new namespace has at most {MAX_ENTRIES} labels and {MAX_ENTRIES} annotations, and \
             {MAX_ANNOTATION_CHARS} characters in all annotations together, because the API server \
             checks each of them: leave some out"
        ),
    )
}

fn require_tenant() -> (String, Message) {
    unless_administrator(
        &format!("!({IS_NO_TENANTS}) || variables.manager"),
        "the namespace belongs to no tenant of yours: name it TENANT-NAME, or give it the label \
         tenant-broker.io/tenant",
    )
}

fn require_owner() -> (String, Message) {
    (
        format!("{IS_NO_TENANTS} || variables.owner || variables.administrator"),
        Message::Built(
            "\"you do not own tenant \" + variables.tenant".to_owned(),
            "you do not own the tenant of this namespace".to_owned(),
        ),
    )
}

fn require_prefix() -> (String, Message) {
    (
        format!(
            "{IS_NO_TENANTS} || object.metadata.name.startsWith(variables.tenant + \"-\") || \
             variables.administrator"
        ),
        Message::Built(
            "\"namespace names of tenant \" + variables.tenant + \" begin with \" + \
             variables.tenant + \"-\""
                .to_owned(),
            "the name of the namespace begins with the name of its tenant and a dash".to_owned(),
        ),
    )
}

fn refuse_protected_names(parameters: &Parameters) -> (String, Message) {
    unless_administrator(
        &format!(
            "{IS_NO_TENANTS} || !object.metadata.name.matches({})",
            quoted(parameters.tenants.protected_names.as_str())
        ),
        "this name belongs to the cluster (tenants.protected_names): use another one",
    )
}

fn refuse_protected_labels(is_protected: &str) -> (String, Message) {
    unless_administrator(
        &format!(
            "{IS_NO_TENANTS} || variables.large || object.metadata.?labels.orValue({{}}).all(k, \
             !{is_protected})"
        ),
        "a label of this namespace belongs to the cluster (tenants.protected_labels): leave it out",
    )
}

fn require_pod_security(parameters: &Parameters) -> (String, Message) {
    let mut levels = vec![weakest_level(parameters), POD_SECURITY_RESTRICTED];
    levels.dedup();
    unless_administrator(
        &format!(
            "{IS_NO_TENANTS} || {} in {}",
            label("object", POD_SECURITY),
            quoted_list(&levels)
        ),
        &format!("a namespace of a tenant has the label {POD_SECURITY}={}", levels.join(" or ")),
    )
}

/// Validation: the namespace has no labels of the broker, and if it is a tenant's, no further ones
/// about Pod Security. The label of the tenant is not empty, because it alone makes the namespace a
/// managed one.
fn refuse_labels() -> (String, Message) {
    let allowed = quoted_list(&[TENANT_LABEL, POD_SECURITY]);
    let (ours, pod_security) = (quoted(LABEL_PREFIX), quoted(POD_SECURITY_PREFIX));
    unless_administrator(
        &format!(
            "variables.large || object.metadata.?labels.orValue({{}}).all(k, {IS_NO_TENANTS} ? \
             !k.startsWith({ours}) : (k in {allowed} || !(k.startsWith({ours}) || k.startsWith({pod_security}))))"
        ),
        "of the labels tenant-broker.io/* and pod-security.kubernetes.io/* a namespace of a tenant \
         has only those of its tenant and of the enforced level; other namespaces have no label \
         tenant-broker.io/*",
    )
}

fn refuse_owners_and_finalizers() -> (String, Message) {
    let is_empty = |list: &str| format!("object.metadata.?{list}.orValue([]).size() == 0");
    unless_administrator(
        &format!(
            "{IS_NO_TENANTS} || ({} && {} && object.?spec.?finalizers.orValue([]).all(f, f == \
             \"kubernetes\"))",
            is_empty("ownerReferences"),
            is_empty("finalizers"),
        ),
        "a new namespace of a tenant has no ownerReferences and no finalizers, because they decide \
         when it is gone",
    )
}

fn refuse_guarded_annotations() -> (String, Message) {
    unless_administrator(
        &format!(
            "{IS_NO_TENANTS} || variables.large || object.metadata.?annotations.orValue({{}}).all(k, \
             !({IS_GUARDED_ANNOTATION}))"
        ),
        "a new namespace of a tenant has no annotations *.kubernetes.io/* and tenant-broker.io/*: \
         those decide on which nodes its pods run, and these are the broker's; name the nodes in the \
         Tenant (spec.nodeSelector)",
    )
}
