//! The labels and annotations that this API reads. All others are skipped while an object is read,
//! because a map of them takes many times the memory of their text, and an object may have thousands.
//! Long values are cut, because an object may have 256 KiB of annotations, and a ServingRuntime's are
//! shown with each of its models.

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor},
};

use super::lenient::{Lenient, Reader};

/// Maximum length of a text about a model, in bytes.
pub(super) const MAX_TEXT_BYTES: usize = 4096;
/// Maximum length of any other value, in bytes. It is longer than every value that is compared, so a
/// cut value equals none of them.
pub(super) const MAX_VALUE_BYTES: usize = 1024;

/// Annotation with the name that people see.
pub(super) const DISPLAY_NAME: &str = "openshift.io/display-name";
/// Annotation with a text about the model.
pub(super) const DESCRIPTION: &str = "openshift.io/description";
/// Annotation with the use case of a model.
pub(super) const USE_CASE: &str = "opendatahub.io/genai-use-case";
/// Annotation of a model that asks for a token and serves https.
pub(super) const ENABLE_AUTH: &str = "security.opendatahub.io/enable-auth";
/// Annotations of a ServingRuntime.
pub(super) const RUNTIME_NAME: &str = "opendatahub.io/template-display-name";
pub(super) const RUNTIME_PROTOCOL: &str = "opendatahub.io/apiProtocol";
pub(super) const RUNTIME_VERSION: &str = "opendatahub.io/runtime-version";
/// Annotation of a token Secret with the name of its ServiceAccount.
pub(super) const ACCOUNT: &str = "kubernetes.io/service-account.name";
/// Label of both objects of an installation, with the value `"true"`. An operation takes no object
/// without it for one of this API.
pub(super) const DASHBOARD_LABEL: &str = "opendatahub.io/dashboard";
/// Label of the ConfigMap with the name of its `LlamaStackDistribution`.
pub(super) const DISTRIBUTION_LABEL: &str = "llamastack.io/distribution";
/// Annotation of the distribution with an identifier of the installation that created it. A request
/// whose answer was lost recognizes its object by it.
pub(super) const INSTALLATION_ANNOTATION: &str = "tenant-broker.io/installation";

/// The keys that are kept.
const KNOWN_KEYS: [&str; 11] = [
    DISPLAY_NAME,
    DESCRIPTION,
    USE_CASE,
    ENABLE_AUTH,
    RUNTIME_NAME,
    RUNTIME_PROTOCOL,
    RUNTIME_VERSION,
    ACCOUNT,
    DASHBOARD_LABEL,
    DISTRIBUTION_LABEL,
    INSTALLATION_ANNOTATION,
];

/// The known ones of an object's labels or annotations, with their values.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownKeys(Vec<(&'static str, String)>);

impl KnownKeys {
    /// The value of a known key; `None` if it is not there.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        let entry = self.0.iter().find(|(known, _)| *known == key);
        entry.map(|(_, value)| value.as_str())
    }

    fn set(&mut self, key: &'static str, value: String) {
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some(entry) => entry.1 = value,
            None => self.0.push((key, value)),
        }
    }
}

/// The text, cut to at most this number of bytes.
pub(super) fn truncate(text: &str, max_bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(max_bytes)).unwrap_or_default()
}

/// The beginning of a value, at most this number of bytes.
#[derive(Default)]
struct TruncatedText<const MAX_BYTES: usize>(String);

impl<const MAX_BYTES: usize> Lenient for TruncatedText<MAX_BYTES> {
    fn text(text: &str) -> Self {
        Self(truncate(text, MAX_BYTES).to_owned())
    }
}

/// Reads the next value of an object, and cuts it.
fn next_text<'de, const MAX_BYTES: usize, A: MapAccess<'de>>(
    object: &mut A,
) -> Result<String, A::Error> {
    Ok(object.next_value_seed(Reader::<TruncatedText<MAX_BYTES>>::default())?.0)
}

impl Lenient for KnownKeys {
    fn object<'de, A: MapAccess<'de>>(mut object: A) -> Result<Self, A::Error> {
        let mut known = Self::default();
        while let Some(key) = object.next_key_seed(KnownKey)? {
            match key {
                Some(key @ (DESCRIPTION | USE_CASE)) => {
                    known.set(key, next_text::<MAX_TEXT_BYTES, A>(&mut object)?);
                }
                Some(key) => known.set(key, next_text::<MAX_VALUE_BYTES, A>(&mut object)?),
                None => {
                    object.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(known)
    }
}

/// Reads a key, which is `None` if it is not known.
struct KnownKey;

impl<'de> DeserializeSeed<'de> for KnownKey {
    type Value = Option<&'static str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for KnownKey {
    type Value = Option<&'static str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(KNOWN_KEYS.into_iter().find(|known| *known == key))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{from_str, from_value, json};

    use super::{super::lenient::read, *};

    #[derive(Debug, Default, Deserialize)]
    struct View {
        #[serde(deserialize_with = "read")]
        labels: KnownKeys,
    }

    #[test]
    fn unknown_keys_are_not_kept() {
        let last_applied = "kubectl.kubernetes.io/last-applied-configuration";
        let mut labels = json!({DISPLAY_NAME: "Granite", last_applied: "{}", "odd": {"a": [1]}});
        for number in 0..1000 {
            labels[format!("example.com/{number}")] = json!("x");
        }
        labels[ENABLE_AUTH] = json!("true");
        let view: View = from_str(&json!({ "labels": labels }).to_string()).unwrap();
        assert_eq!(view.labels.0.len(), 2, "{view:?}");
        assert!(view.labels.0.capacity() <= 4);
        assert_eq!(view.labels.get(DISPLAY_NAME), Some("Granite"));
        assert_eq!(view.labels.get(ENABLE_AUTH), Some("true"));
        assert_eq!(view.labels.get(last_applied), None);
    }

    #[test]
    fn each_known_key_is_kept_once_with_its_last_value() {
        for key in KNOWN_KEYS {
            let text = format!(r#"{{"labels": {{"{key}": "a", "x": 1, "{key}": "b"}}}}"#);
            let view: View = from_str(&text).unwrap();
            assert_eq!((view.labels.get(key), view.labels.0.len()), (Some("b"), 1), "{key}");
        }
    }

    #[test]
    fn long_values_are_cut_between_two_characters() {
        for key in KNOWN_KEYS {
            let max_bytes = match key {
                DESCRIPTION | USE_CASE => MAX_TEXT_BYTES,
                _ => MAX_VALUE_BYTES,
            };
            let text = format!("x{}", "é".repeat(100_000));
            let view: View = from_value(json!({"labels": {key: text}})).unwrap();
            let value = view.labels.get(key).unwrap();
            assert_eq!(value.len(), max_bytes - 1, "{key}");
            assert!(text.starts_with(value), "{key}");
            assert!(view.labels.0[0].1.capacity() <= max_bytes, "{key}");
            let fits = "x".repeat(max_bytes);
            let view: View = from_value(json!({"labels": {key: fits}})).unwrap();
            assert_eq!(view.labels.get(key), Some(fits.as_str()), "{key}");
        }
    }

    #[test]
    fn other_values_are_empty() {
        for value in [json!(null), json!([DISPLAY_NAME]), json!(1), json!({})] {
            let view: View = from_value(json!({ "labels": value })).unwrap();
            assert!(view.labels.0.is_empty(), "{value}");
        }
        let view: View = from_value(json!({"labels": {DISPLAY_NAME: {"a": 1}}})).unwrap();
        assert_eq!(view.labels.get(DISPLAY_NAME), Some(""));
    }
}
