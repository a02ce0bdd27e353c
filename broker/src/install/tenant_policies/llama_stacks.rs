//! The policy for the Llama Stacks of model services (`tenant-guard-llama-stacks`).

use tenant_shared::DISTRIBUTION_NAME;

use super::{MAX_ANNOTATION_CHARS, MAX_ENTRIES, has_large_metadata, not_system};
use crate::install::{
    LLAMA_STACK, Parameters,
    cel::{
        adds_no, administrator, is_allowed_in_all_namespaces, managed_namespaces,
        unless_administrator,
    },
    policy::{Message, Policy, rule},
    quoted,
};

/// CEL: whether the request creates no object.
const IS_NO_CREATION: &str = "request.operation != \"CREATE\"";

/// The policy is in force without model services, too, because the ClusterRoles follow the command
/// line of `install`, and the operator of Llama Stack has ClusterRoles that aggregate as well.
pub(super) fn policy(parameters: &Parameters) -> Policy {
    let (group, resources) = LLAMA_STACK;
    Policy {
        name: "tenant-guard-llama-stacks",
        reason: "No quota counts this kind, which the roles edit and admin may create where \
                 install --model-services or the operator of Llama Stack adds it to them. With one \
                 name there is one object in a namespace, so a tenant cannot fill etcd with them.",
        rules: vec![rule(group, resources, &["CREATE", "UPDATE"], "Namespaced")],
        conditions: not_system(parameters),
        variables: variables(),
        validations: vec![
            require_name(),
            refuse_large_metadata(),
            refuse_finalizers_and_owners(),
            refuse_config_maps_elsewhere(),
        ],
        namespaces: managed_namespaces(parameters),
    }
}

/// The operator of Llama Stack may change the objects in all namespaces. The request does not say
/// which verb it needs.
fn variables() -> Vec<(&'static str, String)> {
    let mut variables = administrator();
    variables.extend([
        ("updatesAll", is_allowed_in_all_namespaces("update")),
        ("patchesAll", is_allowed_in_all_namespaces("patch")),
    ]);
    variables
}

/// Validation: a new object has the name that model services use. A generated name is another one.
fn require_name() -> (String, Message) {
    unless_administrator(
        &format!("{IS_NO_CREATION} || object.metadata.name == {}", quoted(DISTRIBUTION_NAME)),
        &format!(
            "a tenant's namespace has one LlamaStackDistribution, which is named \
             {DISTRIBUTION_NAME}, because no quota counts this kind: use this name"
        ),
    )
}

/// Validation: a new object has few labels and annotations.
fn refuse_large_metadata() -> (String, Message) {
    unless_administrator(
        &format!("{IS_NO_CREATION} || !({})", has_large_metadata()),
        &format!(
            "a LlamaStackDistribution in a tenant's namespace has at most {MAX_ENTRIES} labels and \
             {MAX_ENTRIES} annotations, and {MAX_ANNOTATION_CHARS} characters in all annotations \
             together: leave some out"
        ),
    )
}

/// Validation: a write adds no finalizers and no owners, except that the operator may add its own
/// to an object that is there.
fn refuse_finalizers_and_owners() -> (String, Message) {
    unless_administrator(
        &format!(
            "({} && {}) || (request.operation == \"UPDATE\" && (variables.updatesAll || \
             variables.patchesAll))",
            adds_no("finalizers"),
            adds_no("ownerReferences"),
        ),
        "a LlamaStackDistribution in a tenant's namespace may get no finalizers and no \
         ownerReferences, because they decide when it is gone",
    )
}

/// Validation: a write names ConfigMaps of its own namespace only. The operator may read those of all
/// namespaces: it copies certificates from them, and says in the status what it does not find.
fn refuse_config_maps_elsewhere() -> (String, Message) {
    let namespaces = ["userConfig", "tlsConfig.?caBundle"]
        .map(|of| format!("object.?spec.?server.?{of}.?configMapNamespace"));
    unless_administrator(
        &format!(
            "[{}].all(n, n.orValue(\"\") in [\"\", request.namespace]) || (request.operation == \
             \"UPDATE\" && object.?spec.orValue({{}}) == oldObject.?spec.orValue({{}}))",
            namespaces.join(", ")
        ),
        "a LlamaStackDistribution in a tenant's namespace names ConfigMaps of its own namespace only: \
         leave configMapNamespace out",
    )
}
