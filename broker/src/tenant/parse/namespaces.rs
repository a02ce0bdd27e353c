//! Number, names and metadata of namespaces.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    faults::Faults,
    raw::{RawMetadata, RawNamespaceOptions, RawTexts},
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

/// Whom owners may bind themselves (`spec.bindings`).
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
    faults: &mut Faults,
    not_carried_out: &mut Vec<String>,
) -> NamespaceOptions {
    let at = "spec.namespaceOptions";
    let is_allowed = |quota: u32| {
        usize::try_from(quota).is_ok_and(|quota| (1..=MAX_NAMESPACES).contains(&quota))
    };
    if raw.quota.is_some_and(|quota| !is_allowed(quota)) {
        faults.add(format!("{at}.quota"), format!("a number from 1 to {MAX_NAMESPACES}"));
    }
    let additional = format!("{at}.additionalMetadata");
    let required = format!("{at}.requiredMetadata");
    NamespaceOptions {
        quota: raw.quota,
        force_tenant_prefix: raw.force_tenant_prefix.unwrap_or(true),
        additional_metadata: metadata(
            &additional,
            raw.additional_metadata,
            faults,
            not_carried_out,
        ),
        required_metadata: RequiredMetadata {
            labels: patterns(&format!("{required}.labels"), raw.required_metadata.labels, faults),
            annotations: patterns(
                &format!("{required}.annotations"),
                raw.required_metadata.annotations,
                faults,
            ),
        },
    }
}

/// The node selector: labels of nodes.
pub(super) fn node_selector(raw: RawTexts, faults: &mut Faults) -> RawTexts {
    let field = "spec.nodeSelector";
    faults.limit(field, raw.len(), MAX_LABELS);
    for (key, value) in &raw {
        if !is_key(key) || !is_label_value(value) {
            faults.add(format!("{field}.{key}"), "a key and a value of a label");
        }
    }
    raw
}

fn metadata(
    at: &str,
    raw: RawMetadata,
    faults: &mut Faults,
    not_carried_out: &mut Vec<String>,
) -> Metadata {
    let mut settable = |field: &str, raw: RawTexts, faults: &mut Faults| {
        let at = format!("{at}.{field}");
        faults.limit(&at, raw.len(), MAX_LABELS);
        let (kept, others): (RawTexts, RawTexts) =
            raw.into_iter().partition(|(key, _)| may_be_set(key));
        not_carried_out.extend(others.into_keys().map(|key| format!("{at}[{key}]")));
        kept
    };
    let labels = settable("labels", raw.labels, faults);
    let annotations = settable("annotations", raw.annotations, faults);
    for (key, _) in labels.iter().filter(|(_, value)| !is_label_value(value)) {
        faults.add(format!("{at}.labels.{key}"), "a value of a label, at most 63 characters");
    }
    let is_long = |value: &str| value.chars().count() > MAX_ANNOTATION_LENGTH;
    for (key, _) in annotations.iter().filter(|(_, value)| is_long(value)) {
        let rule = format!("at most {MAX_ANNOTATION_LENGTH} characters");
        faults.add(format!("{at}.annotations.{key}"), rule);
    }
    Metadata { labels, annotations }
}

fn patterns(at: &str, raw: RawTexts, faults: &mut Faults) -> BTreeMap<String, Pattern> {
    faults.limit(at, raw.len(), MAX_LABELS);
    raw.into_iter()
        .filter_map(|(key, text)| {
            let pattern = faults.keep(&format!("{at}.{key}"), text.parse::<Pattern>())?;
            Some((key, pattern))
        })
        .collect()
}
