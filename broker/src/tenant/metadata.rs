//! The check of the labels and annotations that a new namespace must have
//! (`spec.namespaceOptions.requiredMetadata`). Pure.

use std::{collections::BTreeMap, fmt};

use super::{Pattern, RequiredMetadata};

/// A label or annotation that a namespace lacks, or that has another value than the Tenant demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingMetadata {
    /// `label` or `annotation`.
    pub kind: &'static str,
    /// Its key.
    pub key: String,
    /// Pattern of its value.
    pub pattern: String,
}

impl fmt::Display for MissingMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, key, pattern } = self;
        write!(f, "the namespace needs the {kind} {key} with a value that matches {pattern}")
    }
}

/// Checks a new namespace.
///
/// # Errors
/// Everything that it lacks, labels first, by key.
pub fn check_required_metadata(
    required: &RequiredMetadata,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> Result<(), Vec<MissingMetadata>> {
    let mut missing = missing_of("label", &required.labels, labels);
    missing.extend(missing_of("annotation", &required.annotations, annotations));
    if missing.is_empty() { Ok(()) } else { Err(missing) }
}

fn missing_of(
    kind: &'static str,
    required: &BTreeMap<String, Pattern>,
    values: &BTreeMap<String, String>,
) -> Vec<MissingMetadata> {
    required
        .iter()
        .filter(|(key, pattern)| !values.get(*key).is_some_and(|value| pattern.matches(value)))
        .map(|(key, pattern)| MissingMetadata {
            kind,
            key: key.clone(),
            pattern: pattern.as_str().to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn patterns(entries: &[(&str, &str)]) -> BTreeMap<String, Pattern> {
        entries.iter().map(|(key, text)| ((*key).to_owned(), text.parse().unwrap())).collect()
    }

    #[test]
    fn each_missing_or_wrong_value_is_named() {
        let required = RequiredMetadata {
            labels: patterns(&[("env", "prod|test"), ("team", ".+")]),
            annotations: patterns(&[("example.com/cost", "[0-9]+")]),
        };
        let good = values(&[("env", "prod"), ("team", "a"), ("other", "x")]);
        let cost = values(&[("example.com/cost", "17")]);
        assert_eq!(check_required_metadata(&required, &good, &cost), Ok(()));

        let wrong = values(&[("env", "production")]);
        let missing = check_required_metadata(&required, &wrong, &wrong).unwrap_err();
        let texts: Vec<String> = missing.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "the namespace needs the label env with a value that matches prod|test",
                "the namespace needs the label team with a value that matches .+",
                "the namespace needs the annotation example.com/cost with a value that matches \
                 [0-9]+",
            ]
        );
    }

    #[test]
    fn without_demands_every_namespace_passes() {
        let none = BTreeMap::new();
        assert_eq!(check_required_metadata(&RequiredMetadata::default(), &none, &none), Ok(()));
    }
}
