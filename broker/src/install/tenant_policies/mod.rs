//! Admission policies for everybody but the broker in tenants' namespaces (`tenant-guard-*`,
//! `tenant-suspended`): they keep a tenant's permissions revocable, and refuse writes in suspended
//! namespaces.
//!
//! The cluster's own controllers are exempt, and so are users who could change these policies
//! anyway. The broker is exempt for the kinds that it writes.
//!
//! With `tenants.enabled` there are policies for homes, for the objects in tenants' namespaces, for
//! labels by which the broker finds its objects, and for the deletion of Tenants, with
//! `tenants.direct_namespaces` also one for the creation of namespaces.

mod creation;
mod deletion;
mod homes;
mod labels;
mod llama_stacks;
mod namespaces;
mod objects;
mod secrets;
mod suspended;
mod tenant_objects;

use super::{
    Parameters,
    cel::{adds_no, is_broker_writing_its_kinds, is_system, unless_administrator},
    policy::{Message, Policy},
};
use crate::{cluster::POD_SECURITY_RESTRICTED, tenant::ApiGroup};

/// CEL: whether the object is no RoleBinding, or is deleted.
const IS_NO_BINDING_OR_DELETE: &str =
    "request.resource.resource != \"rolebindings\" || request.operation == \"DELETE\"";
/// CEL: whether the annotation `k` of a namespace may decide over what runs in it, such as
/// `scheduler.alpha.kubernetes.io/node-selector`, or is read by the broker.
const IS_GUARDED_ANNOTATION: &str = "k.startsWith(\"tenant-broker.io/\") || \
                                     k.contains(\"kubernetes.io/\") && k != \
                                     \"kubectl.kubernetes.io/last-applied-configuration\"";
/// CEL: Tenants, as the API server's authorizer knows them. The verb `own` is asked for in the home
/// of a tenant, where only the broker binds it.
pub(super) const TENANTS_OF_CALLER: &str =
    "authorizer.group(\"tenant-broker.io\").resource(\"tenants\")";

/// Labels, and also annotations, of an object of an owner, with those that are filled in. Each costs
/// the API server time in several policies.
const MAX_ENTRIES: usize = 64;
/// Managers of fields of a RoleBinding. The API server keeps ten for updates, and any number for
/// server-side apply.
const MAX_MANAGERS: usize = 16;
/// Characters of the keys and values of all annotations. The API server allows 256 KiB.
const MAX_ANNOTATION_CHARS: usize = 64 * 1024;

/// The policies that the broker verifies.
pub(super) fn policies(parameters: &Parameters) -> Vec<Policy> {
    let mut policies = vec![
        secrets::policy(parameters),
        objects::policy(parameters),
        namespaces::policy(parameters),
        llama_stacks::policy(parameters),
        suspended::policy(parameters),
    ];
    if parameters.tenants.enabled {
        policies.extend([
            homes::policy(parameters),
            tenant_objects::policy(parameters),
            labels::policy(parameters),
            deletion::policy(ApiGroup::TenantBroker),
        ]);
    }
    if parameters.tenants.enabled && parameters.tenants.direct_namespaces {
        policies.push(creation::policy(parameters));
    }
    policies
}

/// The policies that follow the command line of `install`, so the broker cannot verify them.
pub(super) fn unverified_policies(parameters: &Parameters) -> Vec<Policy> {
    let groups = parameters.tenant_groups().iter();
    groups
        .filter(|group| **group == ApiGroup::Capsule)
        .map(|group| deletion::policy(*group))
        .collect()
}

/// Match condition: requests neither of the cluster itself, nor of the broker for a kind that it
/// writes.
pub(super) fn not_system(parameters: &Parameters) -> Vec<(&'static str, String)> {
    let exempt = format!("{} || {}", is_broker_writing_its_kinds(parameters), is_system());
    vec![("is-no-system", format!("!({exempt})"))]
}

/// The weakest Pod Security level of a namespace that an owner creates. Where all tiers are
/// `restricted`, nobody would get rights in a namespace with a weaker level.
pub(super) fn weakest_level(parameters: &Parameters) -> &'static str {
    let levels = &parameters.pod_security;
    let is_restricted = levels.iter().all(|level| level == POD_SECURITY_RESTRICTED);
    if is_restricted { POD_SECURITY_RESTRICTED } else { "baseline" }
}

/// CEL: whether an object has too many labels or annotations, or too large ones.
fn has_large_metadata() -> String {
    let (labels, annotations) =
        ("object.metadata.?labels.orValue({})", "object.metadata.?annotations.orValue({})");
    format!(
        "{labels}.size() > {MAX_ENTRIES} || {annotations}.size() > {MAX_ENTRIES} || \
         {} > {MAX_ANNOTATION_CHARS}",
        annotation_chars("object")
    )
}

/// CEL: the characters of the keys and values of all annotations of `object`.
fn annotation_chars(object: &str) -> String {
    format!(
        "{object}.metadata.?annotations.orValue({{}}).map(k, size(k) + \
         size({object}.metadata.annotations[k])).sum()"
    )
}

/// CEL: whether each entry of this map in the metadata of `one` is in that of `other`, too, unless
/// `ignored` holds for its key `k`. Entries are compared first, because a pattern in `ignored` may cost
/// the API server more.
fn same_entries(map: &str, ignored: &str, one: &str, other: &str) -> String {
    format!(
        "{one}.metadata.?{map}.orValue({{}}).all(k, (k in {other}.metadata.?{map}.orValue({{}}) && \
         {other}.metadata.{map}[k] == {one}.metadata.{map}[k]) || {ignored})"
    )
}

/// Validation: the name of a RoleBinding is printable ASCII. The API server accepts names that are not
/// UTF-8 in Protobuf and replaces their bytes in JSON, so the broker could list such a RoleBinding but
/// not delete it.
fn refuse_unprintable_names() -> (String, Message) {
    unless_administrator(
        &format!("{IS_NO_BINDING_OR_DELETE} || object.metadata.name.matches(\"^[ -~]+$\")"),
        "the name of a RoleBinding in a tenant's namespace has printable ASCII characters only",
    )
}

/// Validation: a RoleBinding has few managers of fields. Each server-side apply under another name adds
/// one, and the API server takes seconds to list few objects with thousands of them.
fn refuse_many_managers() -> (String, Message) {
    unless_administrator(
        &format!(
            "{IS_NO_BINDING_OR_DELETE} || \
             object.metadata.?managedFields.orValue([]).size() <= {MAX_MANAGERS}"
        ),
        &format!(
            "a RoleBinding in a tenant's namespace has at most {MAX_MANAGERS} managers \
             (metadata.managedFields): apply it under fewer names (--field-manager)"
        ),
    )
}

/// Validation: a write adds no finalizer to a RoleBinding.
fn refuse_finalizers_of_binding() -> (String, Message) {
    unless_administrator(
        &format!("{IS_NO_BINDING_OR_DELETE} || {}", adds_no("finalizers")),
        "a RoleBinding in a tenant's namespace may not have finalizers, because it grants its \
         role until it is gone",
    )
}

#[cfg(test)]
mod tests;
