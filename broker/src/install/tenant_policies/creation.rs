//! The policy for namespaces that people create directly at the API server
//! (`tenant-guard-creation`), with `tenants.direct_namespaces`.
//!
//! It decides alone. The mutating policy `tenant-namespace-labels` only fills in labels, and not
//! every API server serves it.

use tenant_shared::{LABEL_PREFIX, TENANT_LABEL};

use super::{IS_STEERING, POD_SECURITY_PREFIX, TENANTS_OF_CALLER, not_system};
use crate::install::{
    Parameters,
    cel::{administrator, label, unless_administrator},
    policy::{Message, Namespaces, Policy, rule},
    quoted, quoted_list,
};

/// Label with the Pod Security level that the API server enforces.
const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";
/// Levels of a namespace that an owner creates. The broker sets that of the tenant's tier.
const LEVELS: [&str; 2] = ["baseline", "restricted"];
/// CEL: whether the namespace belongs to no tenant.
const IS_NO_TENANTS: &str = "variables.tenant == \"\"";

pub(super) fn policy(parameters: &Parameters) -> Policy {
    Policy {
        name: "tenant-guard-creation",
        reason: "Owners of tenants create namespaces directly (tenants.direct_namespaces). RBAC \
                 has no rule for names of new objects, so this policy is what keeps them to \
                 namespaces of their own tenants. The API server's authorizer decides on the \
                 ownership, by the RoleBindings in the home of the tenant.",
        rules: vec![rule("", &["namespaces"], &["CREATE"], "Cluster")],
        conditions: not_system(parameters),
        variables: variables(),
        validations: vec![
            require_tenant(),
            require_owner(),
            refuse_names_of_broker(),
            require_prefix(),
            refuse_protected_names(parameters),
            require_pod_security(),
            refuse_labels(),
            refuse_owners_and_finalizers(),
            refuse_steering_annotations(),
        ],
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

/// Validation: nobody creates the home of a tenant to come, in which they could bind themselves as
/// its owner.
fn refuse_names_of_broker() -> (String, Message) {
    unless_administrator(
        "!object.metadata.name.startsWith(\"tenant-\")",
        "namespaces tenant-* are made by the broker: use another name",
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
            quoted(&parameters.tenants.protected_names)
        ),
        "this name belongs to the cluster (tenants.protected_names): use another one",
    )
}

fn require_pod_security() -> (String, Message) {
    let levels = quoted_list(&LEVELS);
    (
        format!(
            "{IS_NO_TENANTS} || {} in {levels} || variables.administrator",
            label("object", POD_SECURITY)
        ),
        Message::Fixed(format!(
            "a namespace of a tenant has the label {POD_SECURITY}={}",
            LEVELS.join(" or ")
        )),
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
            "object.metadata.?labels.orValue({{}}).all(k, {IS_NO_TENANTS} ? !k.startsWith({ours}) \
             : (k in {allowed} || !(k.startsWith({ours}) || k.startsWith({pod_security}))))"
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

fn refuse_steering_annotations() -> (String, Message) {
    unless_administrator(
        &format!(
            "{IS_NO_TENANTS} || object.metadata.?annotations.orValue({{}}).all(k, !({IS_STEERING}))"
        ),
        "a new namespace of a tenant has no annotations *.kubernetes.io/*, because they decide on \
         which nodes its pods run; name the nodes in the Tenant (spec.nodeSelector)",
    )
}
