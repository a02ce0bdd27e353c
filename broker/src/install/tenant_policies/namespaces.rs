//! The policy for namespaces (`tenant-guard-namespaces`).

use tenant_shared::{HOME_LABEL, LABEL_PREFIX, SUSPENDED_LABEL, TENANT_LABEL, WORKSPACE_LABEL};

use super::{IS_GUARDED_ANNOTATION, not_system, same_entries};
use crate::{
    cluster::POD_SECURITY_PREFIX,
    install::{
        Parameters,
        cel::{
            OBJECT_NAME, WRITE_OPERATIONS, administrator, is_workspace_account,
            unless_administrator,
        },
        policy::{Message, Namespaces, Policy, rule},
        quoted, quoted_list,
    },
};

pub(super) fn policy(parameters: &Parameters) -> Policy {
    let mut validations = vec![refuse_accounts_of_tenants(), refuse_labels_of_broker(parameters)];
    if parameters.tenants.enabled {
        validations.extend([
            refuse_names_of_broker(),
            keep_pod_security(),
            keep_owners_and_finalizers(),
            keep_guarded_annotations(),
            refuse_deletions(),
        ]);
    }
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
        validations,
        namespaces: Namespaces::All,
    }
}

/// Validation: the account of a personal workspace writes no namespace of a workspace.
fn refuse_accounts_of_tenants() -> (String, Message) {
    let managed = format!(
        "{}.?labels.orValue({{}}).exists(k, k == {})",
        "(request.operation == \"CREATE\" ? object : oldObject).metadata",
        quoted(WORKSPACE_LABEL)
    );
    unless_administrator(
        &format!(
            "!({}) || !({managed} || {OBJECT_NAME}.startsWith(\"tenant-\"))",
            is_workspace_account()
        ),
        "tenants' namespaces are made, labelled and deleted by the broker and administrators",
    )
}

/// Validation: a write adds, changes and removes no label of the broker. Where owners may create
/// namespaces, they give one the label of their tenant, which `tenant-guard-creation` checks.
fn refuse_labels_of_broker(parameters: &Parameters) -> (String, Message) {
    let ours = quoted(LABEL_PREFIX);
    let is_other = format!("!k.startsWith({ours})");
    let allowed = if parameters.tenants.enabled && parameters.tenants.direct_namespaces {
        format!(" || k == {}", quoted(TENANT_LABEL))
    } else {
        String::new()
    };
    unless_administrator(
        &format!(
            "request.operation == \"DELETE\" || (request.operation == \"CREATE\" ? \
             object.metadata.?labels.orValue({{}}).all(k, {is_other}{allowed}) : {} && {})",
            same_entries("labels", &is_other, "object", "oldObject"),
            same_entries("labels", &is_other, "oldObject", "object"),
        ),
        &format!(
            "labels {LABEL_PREFIX}* of a namespace are written by the broker (kubectl tenant \
             suspend) and by administrators of its policies only"
        ),
    )
}

/// Validation: nobody creates the home of a tenant to come, in which they could bind themselves as
/// its owner, or which the broker could no longer make. Rights to create namespaces come from
/// others, too, so this holds also without `tenants.direct_namespaces`.
fn refuse_names_of_broker() -> (String, Message) {
    unless_administrator(
        "request.operation != \"CREATE\" || !object.metadata.name.startsWith(\"tenant-\")",
        "namespaces tenant-* are made by the broker: use another name",
    )
}

/// CEL: whether an expression holds, if the request changes a managed namespace.
fn in_changed_namespace(expression: &str) -> String {
    let labels = quoted_list(&[WORKSPACE_LABEL, TENANT_LABEL]);
    format!(
        "request.operation != \"UPDATE\" || !oldObject.metadata.?labels.orValue({{}}).exists(k, k \
         in {labels}) || ({expression})"
    )
}

/// CEL: whether an update keeps the entries of a map, unless `ignored` holds for their key `k`.
fn keeps(map: &str, ignored: &str) -> String {
    let same = |one, other| same_entries(map, ignored, one, other);
    format!("{} && {}", same("object", "oldObject"), same("oldObject", "object"))
}

fn keep_pod_security() -> (String, Message) {
    let is_other = format!("!k.startsWith({})", quoted(POD_SECURITY_PREFIX));
    unless_administrator(
        &in_changed_namespace(&keeps("labels", &is_other)),
        "the Pod Security of a managed namespace follows its tier: labels \
         pod-security.kubernetes.io/* are written by the broker only",
    )
}

fn keep_owners_and_finalizers() -> (String, Message) {
    let kept = |list: &str| format!("object.{list}.orValue([]) == oldObject.{list}.orValue([])");
    let all = ["metadata.?ownerReferences", "metadata.?finalizers", "?spec.?finalizers"].map(kept);
    unless_administrator(
        &in_changed_namespace(&all.join(" && ")),
        "ownerReferences and finalizers of a managed namespace stay, because they decide when it \
         is gone",
    )
}

fn keep_guarded_annotations() -> (String, Message) {
    unless_administrator(
        &in_changed_namespace(&keeps("annotations", &format!("!({IS_GUARDED_ANNOTATION})"))),
        "annotations *.kubernetes.io/* and tenant-broker.io/* of a managed namespace stay, because \
         those decide on which nodes its pods run, and these are the broker's; name the nodes in the \
         Tenant (spec.nodeSelector)",
    )
}

/// Validation: a home, and a namespace whose tenant or workspace is suspended, is not deleted.
fn refuse_deletions() -> (String, Message) {
    unless_administrator(
        &format!(
            "request.operation != \"DELETE\" || !oldObject.metadata.?labels.orValue({{}}).exists(k, \
             k in {})",
            quoted_list(&[HOME_LABEL, SUSPENDED_LABEL])
        ),
        "administrators alone delete the home of a tenant, and namespaces that are suspended: delete \
         the Tenant, or ask for its resumption",
    )
}
