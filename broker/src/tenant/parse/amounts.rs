//! Quotas and limit ranges.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{LimitRangeItem, ScopeSelector},
    apimachinery::pkg::api::resource::Quantity,
};
use serde::Deserialize;

use super::{
    faults::Faults,
    raw::{RawAmounts, RawLimit, RawLimitRange, RawQuota},
};
use crate::tenant::{
    limits::{MAX_AMOUNTS, MAX_QUOTA_SCOPES, MAX_QUOTAS},
    quantity::is_amount,
    schema::LIMIT_TYPES,
};

/// What a quota is for (`spec.resourceQuotas.scope`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum QuotaScope {
    /// All namespaces together.
    #[default]
    Tenant,
    /// Each namespace.
    Namespace,
}

/// A quota (`spec.resourceQuotas.items`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quota {
    /// Amounts by resource.
    pub hard: BTreeMap<String, Quantity>,
    /// Objects that it applies to; without any scope all.
    pub scopes: Vec<String>,
    pub scope_selector: Option<ScopeSelector>,
}

pub(super) fn quotas(raw: Vec<RawQuota>, faults: &mut Faults) -> Vec<Quota> {
    let field = "spec.resourceQuotas.items";
    faults.limit(field, raw.len(), MAX_QUOTAS);
    let mut quotas = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let at = format!("{field}[{index}]");
        faults.limit(&format!("{at}.scopes"), raw.scopes.len(), MAX_QUOTA_SCOPES);
        let hard = amounts(&format!("{at}.hard"), raw.hard, faults);
        quotas.push(Quota { hard, scopes: raw.scopes, scope_selector: raw.scope_selector });
    }
    quotas
}

/// The limits of each LimitRange.
pub(super) fn limit_ranges(
    raw: Vec<RawLimitRange>,
    faults: &mut Faults,
) -> Vec<Vec<LimitRangeItem>> {
    let field = "spec.limitRanges.items";
    faults.limit(field, raw.len(), MAX_QUOTAS);
    let mut ranges = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let at = format!("{field}[{index}].limits");
        faults.limit(&at, raw.limits.len(), MAX_QUOTAS);
        let limits = raw.limits.into_iter().enumerate();
        let limits =
            limits.map(|(index, raw)| limit(&format!("{at}[{index}]"), raw, faults)).collect();
        ranges.push(limits);
    }
    ranges
}

fn limit(at: &str, raw: RawLimit, faults: &mut Faults) -> LimitRangeItem {
    if !LIMIT_TYPES.contains(&raw.kind.as_str()) {
        faults.add(format!("{at}.type"), LIMIT_TYPES.join(", "));
    }
    let mut read = |name: &str, raw: Option<RawAmounts>| {
        raw.map(|raw| amounts(&format!("{at}.{name}"), raw, faults))
    };
    LimitRangeItem {
        max: read("max", raw.max),
        min: read("min", raw.min),
        default: read("default", raw.default),
        default_request: read("defaultRequest", raw.default_request),
        max_limit_request_ratio: read("maxLimitRequestRatio", raw.max_limit_request_ratio),
        type_: raw.kind,
    }
}

fn amounts(at: &str, raw: RawAmounts, faults: &mut Faults) -> BTreeMap<String, Quantity> {
    faults.limit(at, raw.len(), MAX_AMOUNTS);
    let mut amounts = BTreeMap::new();
    for (resource, amount) in raw {
        if !is_amount(&amount) {
            faults.add(
                format!("{at}.{resource}"),
                "a quantity that is not negative, such as 8 or 16Gi",
            );
        }
        let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
        amounts.insert(resource, Quantity(text));
    }
    amounts
}
