//! Parsing of the admission policies in a manifest that `tenant-broker install` prints.

use anyhow::{Context, Result};
use kube::api::DynamicObject;
use kube::core::TypeMeta;
use serde::Deserialize as _;
use serde_json::Value;

/// Returns the policies and their bindings, in the manifest's order.
///
/// # Errors
/// The manifest is no YAML, or a policy has no name.
pub(super) fn policies(manifest: &str) -> Result<Vec<DynamicObject>> {
    let mut policies = Vec::new();
    for document in serde_norway::Deserializer::from_str(manifest) {
        let document = Value::deserialize(document).context("read the manifest")?;
        let kind = document["kind"].as_str().unwrap_or_default();
        if kind.starts_with("ValidatingAdmissionPolicy") {
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
