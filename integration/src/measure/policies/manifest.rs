//! Parsing of the admission policies in a manifest that `tenant-broker install` prints.

use anyhow::{Context, Result};
use kube::api::DynamicObject;
use kube::core::TypeMeta;
use serde::Deserialize as _;
use serde_json::Value;

/// Prefix of the kinds of validating policies and their bindings.
const VALIDATION_PREFIX: &str = "ValidatingAdmissionPolicy";
/// Prefix of the kinds of mutating policies and their bindings.
const MUTATION_PREFIX: &str = "MutatingAdmissionPolicy";

/// Returns the policies and their bindings, in the manifest's order.
///
/// # Errors
/// The manifest is no YAML, or a policy has no name.
pub(super) fn policies(manifest: &str) -> Result<Vec<DynamicObject>> {
    let mut policies = Vec::new();
    for document in serde_norway::Deserializer::from_str(manifest) {
        let document = Value::deserialize(document).context("read the manifest")?;
        let kind = document["kind"].as_str().unwrap_or_default();
        if kind.starts_with(VALIDATION_PREFIX) || kind.starts_with(MUTATION_PREFIX) {
            let mut object: DynamicObject =
                serde_json::from_value(document.clone()).context("read a policy")?;
            object.metadata.name.as_ref().context("a policy has no name")?;
            object.types = Some(TypeMeta {
                api_version: document["apiVersion"].as_str().unwrap_or_default().to_owned(),
                kind: kind.to_owned(),
            });
            policies.push(object);
        }
    }
    Ok(policies)
}

/// Whether an object is a mutating policy or the binding of one.
pub(super) fn is_mutating(object: &DynamicObject) -> bool {
    object.types.as_ref().is_some_and(|types| types.kind.starts_with(MUTATION_PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_of_both_kinds_are_read_and_other_objects_are_not() {
        let kinds = [
            "ClusterRole",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
        ];
        let manifest = kinds.map(|kind| {
            format!(
                "apiVersion: admissionregistration.k8s.io/v1\nkind: {kind}\nmetadata: {{name: a}}\n"
            )
        });
        let policies = policies(&manifest.join("---\n")).unwrap();
        let read: Vec<&str> =
            policies.iter().filter_map(|it| Some(it.types.as_ref()?.kind.as_str())).collect();
        assert_eq!(read, kinds[1..]);
        let mutating: Vec<bool> = policies.iter().map(is_mutating).collect();
        assert_eq!(mutating, [false, false, true, true]);
    }
}
