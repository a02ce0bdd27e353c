//! The policy for namespaces (`tenant-guard-namespaces`).

use tenant_shared::{HOME_LABEL, LABEL_PREFIX, SUSPENDED_LABEL, TENANT_LABEL, WORKSPACE_LABEL};

use super::{
    IS_GUARDED_ANNOTATION, MAX_ANNOTATION_CHARS, MAX_ENTRIES, annotation_chars, not_system,
    same_entries,
};
use crate::{
    cluster::POD_SECURITY_PREFIX,
    install::{
        Parameters,
        cel::{
            OBJECT_NAME, WRITE_OPERATIONS, administrator, has_label, is_protected_label,
            is_workspace_account, managed_labels, unless_administrator,
        },
        policy::{Message, Namespaces, Policy, rule},
        quoted,
    },
};

pub(super) fn policy(parameters: &Parameters) -> Policy {
    let mut validations = vec![
        refuse_growing_metadata(),
        refuse_accounts_of_tenants(),
        refuse_labels_of_broker(parameters),
    ];
    if parameters.tenants.enabled {
        validations.extend([
            refuse_names_of_broker(),
            keep_pod_security(),
            keep_owners_and_finalizers(),
            keep_guarded_annotations(),
            refuse_deletions(),
        ]);
        validations.extend(is_protected_label(parameters).map(|it| keep_protected_labels(&it)));
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
        variables: variables(parameters),
        validations,
        namespaces: Namespaces::All,
    }
}

fn variables(parameters: &Parameters) -> Vec<(&'static str, String)> {
    let mut variables = administrator();
    // The validations below go through all labels and annotations, unless they are refused.
    let grows = in_changed_namespace(managed_labels(parameters), &grows_large(), "false");
    variables.push(("grows", grows));
    variables
}

/// CEL: whether an update adds labels, annotations or characters of annotations to metadata that is
/// large then. Administrators and other programs of the cluster may have made it large before.
fn grows_large() -> String {
    let entries = |object: &str, map: &str| format!("{object}.metadata.?{map}.orValue({{}})");
    let grows = |map: &str| {
        let (after, before) = (entries("object", map), entries("oldObject", map));
        format!("{after}.size() > {MAX_ENTRIES} && {after}.size() > {before}.size()")
    };
    // The characters of many annotations are not counted.
    let few = ["object", "oldObject"]
        .map(|object| format!("{}.size() <= {MAX_ENTRIES}", entries(object, "annotations")));
    let chars = ["object", "oldObject"].map(annotation_chars);
    format!(
        "{} || {} || {} && {chars} > {MAX_ANNOTATION_CHARS} && {chars} > {before}",
        grows("labels"),
        grows("annotations"),
        few.join(" && "),
        chars = chars[0],
        before = chars[1],
    )
}

/// Validation: the metadata of a managed namespace does not become large, because the policies go
/// through all of it when the broker suspends the namespace, and the API server refuses what costs it
/// too much.
fn refuse_growing_metadata() -> (String, Message) {
    unless_administrator(
        "!variables.grows",
        &format!(
            "a managed namespace has at most {MAX_ENTRIES} labels and {MAX_ENTRIES} annotations, and \
             {MAX_ANNOTATION_CHARS} characters in all annotations together, because the API server \
             checks each of them: remove some"
        ),
    )
}

/// Validation: the account of a personal workspace writes no namespace of a workspace.
fn refuse_accounts_of_tenants() -> (String, Message) {
    let written = "(request.operation == \"CREATE\" ? object : oldObject)";
    let managed = has_label(written, WORKSPACE_LABEL);
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
            "request.operation == \"DELETE\" || variables.grows || (request.operation == \"CREATE\" ? \
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

/// CEL: this expression if the request changes a namespace with one of these labels, or else the other
/// one.
fn in_changed_namespace(labels: &[&str], expression: &str, otherwise: &str) -> String {
    let labelled: Vec<String> = labels.iter().map(|label| has_label("oldObject", label)).collect();
    let is_managed = labelled.join(" || ");
    format!("request.operation == \"UPDATE\" && ({is_managed}) ? ({expression}) : {otherwise}")
}

/// CEL: whether an expression holds where there are tenants, if the request changes a managed
/// namespace. One that is refused because of its metadata is not gone through.
fn holds_in_changed_namespace(expression: &str) -> String {
    let expression = format!("variables.grows || {expression}");
    format!("({})", in_changed_namespace(&[WORKSPACE_LABEL, TENANT_LABEL], &expression, "true"))
}

/// CEL: whether an update keeps the entries of a map, unless `ignored` holds for their key `k`.
fn keeps(map: &str, ignored: &str) -> String {
    let same = |one, other| same_entries(map, ignored, one, other);
    format!("{} && {}", same("object", "oldObject"), same("oldObject", "object"))
}

fn keep_pod_security() -> (String, Message) {
    let is_other = format!("!k.startsWith({})", quoted(POD_SECURITY_PREFIX));
    unless_administrator(
        &holds_in_changed_namespace(&keeps("labels", &is_other)),
        "the Pod Security of a managed namespace follows its tier: labels \
         pod-security.kubernetes.io/* are written by the broker only",
    )
}

fn keep_protected_labels(is_protected: &str) -> (String, Message) {
    unless_administrator(
        &holds_in_changed_namespace(&keeps("labels", &format!("!{is_protected}"))),
        "these labels of a managed namespace belong to the cluster (tenants.protected_labels)",
    )
}

fn keep_owners_and_finalizers() -> (String, Message) {
    let kept = |list: &str| format!("object.{list}.orValue([]) == oldObject.{list}.orValue([])");
    let all = ["metadata.?ownerReferences", "metadata.?finalizers", "?spec.?finalizers"].map(kept);
    unless_administrator(
        &holds_in_changed_namespace(&all.join(" && ")),
        "ownerReferences and finalizers of a managed namespace stay, because they decide when it \
         is gone",
    )
}

fn keep_guarded_annotations() -> (String, Message) {
    unless_administrator(
        &holds_in_changed_namespace(&keeps("annotations", &format!("!({IS_GUARDED_ANNOTATION})"))),
        "annotations *.kubernetes.io/* and tenant-broker.io/* of a managed namespace stay, because \
         those decide on which nodes its pods run, and these are the broker's; name the nodes in the \
         Tenant (spec.nodeSelector)",
    )
}

/// Validation: a home, and a namespace whose tenant or workspace is suspended, is not deleted.
fn refuse_deletions() -> (String, Message) {
    unless_administrator(
        &format!(
            "request.operation != \"DELETE\" || !({} || {})",
            has_label("oldObject", HOME_LABEL),
            has_label("oldObject", SUSPENDED_LABEL)
        ),
        "administrators alone delete the home of a tenant, and namespaces that are suspended: delete \
         the Tenant, or ask for its resumption",
    )
}
