//! Metadata of objects without `managedFields`. Whoever may apply an object server-side can give it
//! more than a megabyte of these, which take about fifteen times as much memory when they are parsed.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};

/// An object of which only the metadata is read.
#[derive(Debug, Deserialize)]
pub(in crate::cluster) struct Metadata {
    #[serde(deserialize_with = "without_managed_fields")]
    pub(in crate::cluster) metadata: ObjectMeta,
}

/// The fields of `meta/v1` `ObjectMeta` that are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
}

/// Deserializes an `ObjectMeta`, and skips `managedFields` without keeping any of it.
///
/// # Errors
/// A field has a wrong type.
pub(in crate::cluster) fn without_managed_fields<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ObjectMeta, D::Error> {
    let fields = Fields::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: fields.name,
        namespace: fields.namespace,
        uid: fields.uid,
        resource_version: fields.resource_version,
        generation: fields.generation,
        creation_timestamp: fields.creation_timestamp,
        deletion_timestamp: fields.deletion_timestamp,
        labels: fields.labels,
        annotations: fields.annotations,
        owner_references: fields.owner_references,
        finalizers: fields.finalizers,
        ..ObjectMeta::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn all_metadata_is_read_but_managed_fields() {
        let metadata = json!({
            "name": "a", "namespace": "solar-a", "uid": "u-1", "resourceVersion": "42",
            "generation": 3, "creationTimestamp": "2026-01-02T03:04:05Z",
            "deletionTimestamp": "2026-01-02T03:04:06Z", "labels": {"a": "b"},
            "annotations": {"c": "d"}, "finalizers": ["example.com/hold"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}],
        });
        let read = |metadata: &Value| -> Value {
            let object: Metadata = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            serde_json::to_value(object.metadata).unwrap()
        };
        assert_eq!(read(&metadata), metadata);
        let mut managed = metadata.clone();
        managed["managedFields"] = json!([{"manager": "x", "fieldsV1": {"f:metadata": {}}}]);
        assert_eq!(read(&managed), metadata);
        assert_eq!(read(&json!({"creationTimestamp": null})), json!({}));
    }
}
