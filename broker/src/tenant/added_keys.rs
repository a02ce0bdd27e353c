//! The keys of the labels and annotations that a Tenant adds to a namespace. An annotation of the
//! namespace has them, so that those are removed that the Tenant no longer adds, and those of others
//! stay.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Namespace;
use serde::{Deserialize, Serialize};

use super::metadata_key::{NODE_SELECTOR_ANNOTATION, may_be_set};

/// Prefix of the broker's own annotations.
const OUR_PREFIX: &str = "tenant-broker.io/";

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
    /// because others may have written the annotation. A text that is not the broker's has none.
    pub fn read(namespace: &Namespace) -> Self {
        let annotations = namespace.metadata.annotations.as_ref();
        let text = annotations.and_then(|annotations| annotations.get(ADDED_KEYS));
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

/// Removes the annotations of a namespace that the controller neither sets nor reads. Owners may fill a
/// namespace with annotations, and the controller has those of thousands in memory at once.
pub fn drop_unmanaged_annotations(mut namespace: Namespace) -> Namespace {
    let added = AddedKeys::read(&namespace).annotations;
    if let Some(annotations) = &mut namespace.metadata.annotations {
        annotations.retain(|key, _| {
            key.starts_with(OUR_PREFIX) || key == NODE_SELECTOR_ANNOTATION || added.contains(key)
        });
    }
    namespace.metadata.managed_fields = None;
    namespace
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
    fn annotations_that_the_controller_does_not_need_are_dropped() {
        let keys = json!({"annotations": ["example.com/cost"]}).to_string();
        let large = "<".repeat(4096);
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"annotations": {
            ADDED_KEYS: keys, "example.com/cost": "7", "example.com/note": large,
            "tenant-broker.io/on-delete": "keep", NODE_SELECTOR_ANNOTATION: "a=b",
        }}}))
        .unwrap();
        let kept = drop_unmanaged_annotations(namespace).metadata.annotations.unwrap();
        let keys: Vec<&str> = kept.keys().map(String::as_str).collect();
        let ours = ["tenant-broker.io/added-keys", "tenant-broker.io/on-delete"];
        assert_eq!(keys, ["example.com/cost", NODE_SELECTOR_ANNOTATION, ours[0], ours[1]]);
    }
}
