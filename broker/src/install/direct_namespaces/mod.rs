//! Objects for namespaces that owners of tenants create directly at the API server
//! (`tenants.direct_namespaces`): the permission to create namespaces, and the policy that labels
//! new ones. The policy `tenant-guard-creation` decides which ones they may create.

mod mutation;
mod provisioner;

use serde_json::{Value, json};

use super::{INSTALLED_BY_LABEL, INSTALLED_BY_VALUE, Parameters};

pub(super) use mutation::{API_VERSION, NAME as MUTATION_NAME, POLICIES, POLICY_BINDINGS};

/// An object with its purpose, as a comment in the manifest.
pub(super) type Explained = (&'static str, Value);

/// The mutating policy and its binding, in this order; empty without the setting.
pub(super) fn mutation(parameters: &Parameters) -> Vec<Explained> {
    if is_enabled(parameters) { Vec::from(mutation::objects(parameters)) } else { Vec::new() }
}

/// The ClusterRole that lets people create namespaces, and its binding; empty without the setting.
pub(super) fn provisioner(parameters: &Parameters) -> Vec<Explained> {
    if is_enabled(parameters) {
        Vec::from(provisioner::objects(&parameters.tenants.groups))
    } else {
        Vec::new()
    }
}

/// Whether people create namespaces directly.
pub(super) fn is_enabled(parameters: &Parameters) -> bool {
    parameters.tenants.enabled && parameters.tenants.direct_namespaces
}

/// The metadata of an object of `install`.
fn metadata(name: &str) -> Value {
    json!({"name": name, "labels": {INSTALLED_BY_LABEL: INSTALLED_BY_VALUE}})
}
