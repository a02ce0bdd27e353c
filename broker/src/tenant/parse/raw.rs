//! `spec` as JSON has it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ScopeSelector;
use serde::Deserialize;
use serde_json::Value;

use super::{Bindings, QuotaScope};

/// Fields of any name with values that are not checked yet.
pub(super) type RawAmounts = BTreeMap<String, Value>;
/// Labels, annotations or patterns.
pub(super) type RawTexts = BTreeMap<String, String>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawSpec {
    pub(super) owners: Vec<RawOwner>,
    #[serde(default)]
    pub(super) additional_role_bindings: Vec<RawBinding>,
    #[serde(default)]
    pub(super) namespace_options: RawNamespaceOptions,
    #[serde(default)]
    pub(super) resource_quotas: RawQuotas,
    #[serde(default)]
    pub(super) limit_ranges: RawLimitRanges,
    #[serde(default)]
    pub(super) node_selector: RawTexts,
    #[serde(default)]
    pub(super) bindings: Bindings,
    pub(super) tier: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawOwner {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) cluster_roles: Option<Vec<String>>,
    #[serde(default)]
    pub(super) proxy_settings: Vec<RawProxySetting>,
}

#[derive(Deserialize)]
pub(super) struct RawProxySetting {
    pub(super) kind: String,
    pub(super) operations: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawBinding {
    pub(super) cluster_role_name: String,
    pub(super) subjects: Vec<RawSubject>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawSubject {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) api_group: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawNamespaceOptions {
    pub(super) quota: Option<u32>,
    pub(super) force_tenant_prefix: Option<bool>,
    #[serde(default)]
    pub(super) additional_metadata: RawMetadata,
    #[serde(default)]
    pub(super) required_metadata: RawMetadata,
}

#[derive(Default, Deserialize)]
pub(super) struct RawMetadata {
    #[serde(default)]
    pub(super) labels: RawTexts,
    #[serde(default)]
    pub(super) annotations: RawTexts,
}

#[derive(Default, Deserialize)]
pub(super) struct RawQuotas {
    #[serde(default)]
    pub(super) scope: QuotaScope,
    #[serde(default)]
    pub(super) items: Vec<RawQuota>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawQuota {
    #[serde(default)]
    pub(super) hard: RawAmounts,
    #[serde(default)]
    pub(super) scopes: Vec<String>,
    pub(super) scope_selector: Option<ScopeSelector>,
}

#[derive(Default, Deserialize)]
pub(super) struct RawLimitRanges {
    #[serde(default)]
    pub(super) items: Vec<RawLimitRange>,
}

#[derive(Deserialize)]
pub(super) struct RawLimitRange {
    pub(super) limits: Vec<RawLimit>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawLimit {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) max: Option<RawAmounts>,
    pub(super) min: Option<RawAmounts>,
    pub(super) default: Option<RawAmounts>,
    pub(super) default_request: Option<RawAmounts>,
    pub(super) max_limit_request_ratio: Option<RawAmounts>,
}
