//! Checks of the labels and annotations of a new namespace: those that somebody asks for, and those
//! that it must have (`spec.namespaceOptions.requiredMetadata`). Pure.

use std::{collections::BTreeMap, fmt};

use super::{
    Pattern, RequiredMetadata, TenantSettings, Violation,
    limits::{MAX_ANNOTATION_LENGTH, MAX_REQUESTED_ANNOTATIONS_LENGTH, MAX_REQUESTED_METADATA},
    metadata_key::{LAST_APPLIED_ANNOTATION, is_label_value, may_be_set},
};

/// A part of the keys of annotations that admission policies keep from people and from the broker.
const STEERING_ANNOTATION: &str = "kubernetes.io/";

/// Checks labels and annotations that somebody asks for: their number, their form, and that they
/// steer neither the cluster nor the broker, and that the operator protects none of the labels.
///
/// # Errors
/// The first rule that is broken. The field is that of the request: `labels.KEY`.
pub fn check_requested_metadata(
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
    settings: &TenantSettings,
) -> Result<(), Violation> {
    for (field, values) in [("labels", labels), ("annotations", annotations)] {
        if values.len() > MAX_REQUESTED_METADATA {
            return Err(Violation::new(field, format!("at most {MAX_REQUESTED_METADATA}")));
        }
    }
    for (key, value) in labels {
        if !may_be_set(key) {
            return Err(refused_key("labels", key));
        }
        if settings.protects_label(key) {
            let rule = "a label that the operator does not protect (tenants.protected_labels)";
            return Err(Violation::new(format!("labels.{key}"), rule));
        }
        if !is_label_value(value) {
            let rule = "a value of a label: at most 63 letters, digits, '-', '_' and '.', with a \
                        letter or digit at both ends";
            return Err(Violation::new(format!("labels.{key}"), rule));
        }
    }
    for (key, value) in annotations {
        let is_free = may_be_set(key) && !key.contains(STEERING_ANNOTATION);
        if !is_free && key != LAST_APPLIED_ANNOTATION {
            return Err(refused_key("annotations", key));
        }
        if value.len() > MAX_ANNOTATION_LENGTH {
            let rule = format!("at most {MAX_ANNOTATION_LENGTH} bytes");
            return Err(Violation::new(format!("annotations.{key}"), rule));
        }
    }
    let length: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if length > MAX_REQUESTED_ANNOTATIONS_LENGTH {
        let rule =
            format!("at most {MAX_REQUESTED_ANNOTATIONS_LENGTH} bytes in all keys and values");
        return Err(Violation::new("annotations", rule));
    }
    Ok(())
}

fn refused_key(field: &str, key: &str) -> Violation {
    // A key has at most 253 characters before the slash and 63 after it.
    let key: String = key.chars().take(317).collect();
    let rule = "a key as Kubernetes allows it, and not of the domains tenant-broker.io, \
                kubernetes.io and k8s.io";
    Violation::new(format!("{field}.{key}"), rule)
}

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

    fn check(
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) -> Result<(), Violation> {
        check_requested_metadata(labels, annotations, &TenantSettings::default())
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
    fn what_steers_the_cluster_cannot_be_asked_for() {
        let none = BTreeMap::new();
        let field = |labels: &[(&str, &str)], annotations: &[(&str, &str)]| {
            let checked = check(&values(labels), &values(annotations));
            checked.err().map(|violation| violation.field)
        };
        let part_of = ("app.kubernetes.io/part-of", "a");
        assert_eq!(field(&[("team", "a"), ("example.com/x", ""), part_of], &[("x", "a b")]), None);
        for key in [
            "tenant-broker.io/tenant",
            "pod-security.kubernetes.io/enforce",
            "kubernetes.io/metadata.name",
            "x.k8s.io/y",
            "app.kubernetes.io/managed-by",
            "a b",
            "",
        ] {
            assert_eq!(field(&[(key, "a")], &[]), Some(format!("labels.{key}")));
            assert_eq!(field(&[], &[(key, "a")]), Some(format!("annotations.{key}")));
        }
        // The admission policies refuse annotations of all subdomains.
        let refused = Some(format!("annotations.{}", part_of.0));
        assert_eq!(field(&[], &[part_of]), refused);
        assert_eq!(field(&[("team", "a b")], &[]), Some("labels.team".to_owned()));
        assert_eq!(field(&[], &[(LAST_APPLIED_ANNOTATION, "{}")]), None);
        let refused = Some(format!("labels.{LAST_APPLIED_ANNOTATION}"));
        assert_eq!(field(&[(LAST_APPLIED_ANNOTATION, "a")], &[]), refused);
        let long = "x".repeat(4097);
        assert_eq!(field(&[], &[("note", long.as_str())]), Some("annotations.note".to_owned()));
        let most = "x".repeat(MAX_ANNOTATION_LENGTH);
        let several = ["a", "b", "c", "d"].map(|key| (key, most.as_str()));
        assert_eq!(field(&[], &several[..3]), None);
        assert_eq!(field(&[], &several), Some("annotations".to_owned()), "more than 16 KiB");
        assert_eq!(field(&[], &[("note", &long[1..])]), None);
        let many = |count: usize| -> BTreeMap<String, String> {
            (0..count).map(|number| (format!("k{number}"), String::new())).collect()
        };
        assert_eq!(check(&many(64), &many(64)), Ok(()));
        let refused = check(&many(65), &none).unwrap_err();
        assert_eq!(refused.to_string(), "labels: at most 64");
        assert_eq!(check(&none, &many(65)).unwrap_err().field, "annotations");
    }

    #[test]
    fn labels_that_the_operator_protects_cannot_be_asked_for() {
        let pattern = "^(control-plane$|openshift[.]io/)".to_owned().into();
        let settings =
            TenantSettings { protected_labels: Some(pattern), ..TenantSettings::default() };
        let none = BTreeMap::new();
        for (key, is_protected) in
            [("control-plane", true), ("openshift.io/run-level", true), ("my-control-plane", false)]
        {
            let labels = values(&[(key, "0")]);
            let refused = check_requested_metadata(&labels, &none, &settings).err();
            let text = format!(
                "labels.{key}: a label that the operator does not protect \
                 (tenants.protected_labels)"
            );
            let refusal = refused.map(|it| it.to_string());
            assert_eq!(refusal, is_protected.then_some(text));
            assert_eq!(check_requested_metadata(&none, &labels, &settings), Ok(()), "annotation");
        }
    }

    #[test]
    fn without_demands_every_namespace_passes() {
        let none = BTreeMap::new();
        assert_eq!(check_required_metadata(&RequiredMetadata::default(), &none, &none), Ok(()));
    }
}
