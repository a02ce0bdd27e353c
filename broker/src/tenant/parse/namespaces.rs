//! Number, names and metadata of namespaces.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    raw::{RawMetadata, RawNamespaceOptions, RawTexts},
    violations::Violations,
};
use crate::tenant::{
    Pattern,
    limits::{MAX_ANNOTATION_LENGTH, MAX_LABELS, MAX_NAMESPACES},
    metadata_key::{is_key, is_label_value, may_be_set},
};

/// Rules on the namespaces of a tenant (`spec.namespaceOptions`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceOptions {
    /// How many namespaces the tenant may have; `None`: no limit of its own.
    pub quota: Option<u32>,
    /// Whether names begin with the name of the tenant and a dash.
    pub force_tenant_prefix: bool,
    /// Labels and annotations of each namespace, without keys that a Tenant may not set.
    pub additional_metadata: Metadata,
    /// Labels and annotations that a new namespace must have.
    pub required_metadata: RequiredMetadata,
}

/// Labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

/// Patterns for the values of labels and annotations, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequiredMetadata {
    pub labels: BTreeMap<String, Pattern>,
    pub annotations: BTreeMap<String, Pattern>,
}

/// Subjects to which owners may bind roles (`spec.bindings`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Bindings {
    /// ServiceAccounts of the same namespace.
    #[default]
    Own,
    /// Also users, groups and other ServiceAccounts.
    Any,
}

/// The options. Keys of metadata that a Tenant may not set are added to `not_carried_out`.
pub(super) fn namespace_options(
    raw: RawNamespaceOptions,
    violations: &mut Violations,
    not_carried_out: &mut Vec<String>,
) -> NamespaceOptions {
    let at = "spec.namespaceOptions";
    let is_allowed = |quota: u32| {
        usize::try_from(quota).is_ok_and(|quota| (1..=MAX_NAMESPACES).contains(&quota))
    };
    if raw.quota.is_some_and(|quota| !is_allowed(quota)) {
        violations.add(format!("{at}.quota"), format!("a number from 1 to {MAX_NAMESPACES}"));
    }
    let additional = format!("{at}.additionalMetadata");
    let required = format!("{at}.requiredMetadata");
    NamespaceOptions {
        quota: raw.quota,
        force_tenant_prefix: raw.force_tenant_prefix.unwrap_or(true),
        additional_metadata: metadata(
            &additional,
            raw.additional_metadata,
            violations,
            not_carried_out,
        ),
        required_metadata: RequiredMetadata {
            labels: patterns(
                &format!("{required}.labels"),
                raw.required_metadata.labels,
                violations,
            ),
            annotations: patterns(
                &format!("{required}.annotations"),
                raw.required_metadata.annotations,
                violations,
            ),
        },
    }
}

/// The node selector: labels of nodes.
pub(super) fn node_selector(raw: RawTexts, violations: &mut Violations) -> RawTexts {
    let field = "spec.nodeSelector";
    violations.limit(field, raw.len(), MAX_LABELS);
    for (key, value) in &raw {
        if !is_key(key) || !is_label_value(value) {
            violations.add(format!("{field}.{key}"), "a key and a value of a label");
        }
    }
    raw
}

fn metadata(
    at: &str,
    raw: RawMetadata,
    violations: &mut Violations,
    not_carried_out: &mut Vec<String>,
) -> Metadata {
    let mut settable = |field: &str, raw: RawTexts, violations: &mut Violations| {
        let at = format!("{at}.{field}");
        violations.limit(&at, raw.len(), MAX_LABELS);
        let (kept, others): (RawTexts, RawTexts) =
            raw.into_iter().partition(|(key, _)| may_be_set(key));
        not_carried_out.extend(others.into_keys().map(|key| format!("{at}[{key}]")));
        kept
    };
    let labels = settable("labels", raw.labels, violations);
    let annotations = settable("annotations", raw.annotations, violations);
    for (key, _) in labels.iter().filter(|(_, value)| !is_label_value(value)) {
        violations.add(format!("{at}.labels.{key}"), "a value of a label, at most 63 characters");
    }
    let is_long = |value: &str| value.chars().count() > MAX_ANNOTATION_LENGTH;
    for (key, _) in annotations.iter().filter(|(_, value)| is_long(value)) {
        let rule = format!("at most {MAX_ANNOTATION_LENGTH} characters");
        violations.add(format!("{at}.annotations.{key}"), rule);
    }
    Metadata { labels, annotations }
}

fn patterns(at: &str, raw: RawTexts, violations: &mut Violations) -> BTreeMap<String, Pattern> {
    violations.limit(at, raw.len(), MAX_LABELS);
    raw.into_iter()
        .filter_map(|(key, text)| {
            let pattern =
                violations.ok_or_record(&format!("{at}.{key}"), text.parse::<Pattern>())?;
            Some((key, pattern))
        })
        .collect()
}
