//! The keys of the labels and annotations that a Tenant adds to a namespace. An annotation of the
//! namespace has them, so that those are removed that the Tenant no longer adds, and those of others
//! stay.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Namespace;
use serde::{Deserialize, Serialize};
use tenant_shared::{LABEL_PREFIX, MANAGED_BY_LABEL};

use super::{
    limits::MAX_ANNOTATION_LENGTH,
    metadata_key::{NODE_SELECTOR_ANNOTATION, may_be_set},
};
use crate::cluster::POD_SECURITY_PREFIX;

/// Bytes of an annotation that the broker writes. The largest Tenant needs 21 KiB for [`ADDED_KEYS`].
const MAX_OWN_ANNOTATION_LENGTH: usize = 32 * 1024;

/// The annotation: JSON.
pub const ADDED_KEYS: &str = "tenant-broker.io/added-keys";

/// Keys of labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AddedKeys {
    /// Keys of labels.
    pub labels: BTreeSet<String>,
    /// Keys of annotations.
    pub annotations: BTreeSet<String>,
}

impl AddedKeys {
    /// The keys of these labels and annotations.
    pub(super) fn of(
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) -> Self {
        Self {
            labels: labels.keys().cloned().collect(),
            annotations: annotations.keys().cloned().collect(),
        }
    }

    /// The keys that the annotation of a namespace has. Keys that no Tenant may add are left out,
    /// because others may have written the annotation. A text that is not the broker's, or is longer
    /// than the broker's can be, has none.
    pub fn read(namespace: &Namespace) -> Self {
        let annotations = namespace.metadata.annotations.as_ref();
        let text = annotations.and_then(|annotations| annotations.get(ADDED_KEYS));
        let text = text.filter(|text| text.len() <= MAX_OWN_ANNOTATION_LENGTH);
        let keys: Option<Self> = text.and_then(|text| serde_json::from_str(text).ok());
        let mut keys = keys.unwrap_or_default();
        keys.labels.retain(|key| may_be_set(key));
        keys.annotations.retain(|key| may_be_set(key));
        keys
    }

    /// The value of the annotation; `None` without any keys.
    pub(super) fn text(&self) -> Option<String> {
        let is_empty = self.labels.is_empty() && self.annotations.is_empty();
        if is_empty { None } else { serde_json::to_string(self).ok() }
    }
}

/// Removes the labels and annotations of a namespace that the controller neither sets nor reads, and
/// annotations that are longer than a Tenant's. Owners may fill a namespace with both, and the
/// controller has those of thousands in memory at once. What a Tenant sets is in [`ADDED_KEYS`] after
/// the first run.
pub fn drop_unmanaged_metadata(mut namespace: Namespace) -> Namespace {
    let added = AddedKeys::read(&namespace);
    let metadata = &mut namespace.metadata;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|key, value| match key.as_str() {
            ADDED_KEYS | NODE_SELECTOR_ANNOTATION => value.len() <= MAX_OWN_ANNOTATION_LENGTH,
            key => added.annotations.contains(key) && value.len() <= MAX_ANNOTATION_LENGTH,
        });
    }
    if let Some(labels) = &mut metadata.labels {
        labels.retain(|key, _| {
            let is_ours = [LABEL_PREFIX, POD_SECURITY_PREFIX].iter().any(|it| key.starts_with(it));
            is_ours || key == MANAGED_BY_LABEL || added.labels.contains(key)
        });
    }
    metadata.managed_fields = None;
    namespace
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenant_shared::TENANT_LABEL;

    use super::*;

    fn namespace(text: &str) -> Namespace {
        serde_json::from_value(json!({"metadata": {"annotations": {ADDED_KEYS: text}}})).unwrap()
    }

    #[test]
    fn keys_are_read_as_they_were_written() {
        let of = |keys: &[&str]| -> BTreeMap<String, String> {
            keys.iter().map(|key| ((*key).to_owned(), "x".to_owned())).collect()
        };
        let keys = AddedKeys::of(&of(&["team", "a"]), &of(&["example.com/cost"]));
        let text = keys.text().unwrap();
        assert_eq!(text, r#"{"labels":["a","team"],"annotations":["example.com/cost"]}"#);
        assert_eq!(AddedKeys::read(&namespace(&text)), keys);
        assert_eq!(AddedKeys::of(&of(&[]), &of(&[])).text(), None);
    }

    #[test]
    fn a_text_of_others_has_no_keys() {
        let reserved = r#"{"labels":["tenant-broker.io/tenant","kubernetes.io/metadata.name"]}"#;
        for text in ["", "team", "[1]", r#"{"labels":"team"}"#, reserved] {
            assert_eq!(AddedKeys::read(&namespace(text)), AddedKeys::default(), "{text}");
        }
        assert_eq!(AddedKeys::read(&Namespace::default()), AddedKeys::default());
    }

    #[test]
    fn metadata_that_the_controller_does_not_need_is_dropped() {
        let keys = json!({"labels": ["team"], "annotations": ["example.com/cost"]}).to_string();
        let large = "<".repeat(4097);
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {
            "annotations": {
                ADDED_KEYS: keys, "example.com/cost": "7", "example.com/note": "x",
                "tenant-broker.io/x": large, NODE_SELECTOR_ANNOTATION: "a=b",
            },
            "labels": {
                "team": "a", "other": "b", TENANT_LABEL: "solar", MANAGED_BY_LABEL: "x",
                "pod-security.kubernetes.io/enforce": "baseline",
                "kubernetes.io/metadata.name": "solar-a",
            },
        }}))
        .unwrap();
        let kept = drop_unmanaged_metadata(namespace).metadata;
        let keys = |kept: Option<BTreeMap<String, String>>| -> Vec<String> {
            kept.unwrap().into_keys().collect()
        };
        let annotations = ["example.com/cost", NODE_SELECTOR_ANNOTATION, ADDED_KEYS];
        assert_eq!(keys(kept.annotations), annotations);
        let labels = [MANAGED_BY_LABEL, "pod-security.kubernetes.io/enforce", "team", TENANT_LABEL];
        assert_eq!(keys(kept.labels), labels);
    }

    #[test]
    fn annotations_that_are_longer_than_a_tenants_are_dropped() {
        let keys = json!({"annotations": ["example.com/cost"]}).to_string();
        let of = |keys: &str, cost: usize| -> Namespace {
            let annotations = json!({ADDED_KEYS: keys, "example.com/cost": "x".repeat(cost)});
            serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap()
        };
        let kept = |namespace| drop_unmanaged_metadata(namespace).metadata.annotations.unwrap();
        assert_eq!(kept(of(&keys, MAX_ANNOTATION_LENGTH)).len(), 2);
        assert_eq!(kept(of(&keys, MAX_ANNOTATION_LENGTH + 1)).len(), 1);
        let long = format!("{keys}{}", " ".repeat(MAX_OWN_ANNOTATION_LENGTH));
        assert_eq!(kept(of(&long, 1)).len(), 0);
    }
}
