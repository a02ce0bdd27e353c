//! Quotas and limit ranges.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{LimitRangeItem, ScopeSelector},
    apimachinery::pkg::api::resource::Quantity,
};
use serde::Deserialize;

use super::{
    raw::{RawAmounts, RawLimit, RawLimitRange, RawQuota},
    violations::Violations,
};
use crate::tenant::{
    limits::{MAX_AMOUNTS, MAX_QUOTA_SCOPES, MAX_QUOTAS},
    quantity::is_amount,
    schema::LIMIT_TYPES,
};

/// Scope of the quotas (`spec.resourceQuotas.scope`).
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

pub(super) fn quotas(raw: Vec<RawQuota>, violations: &mut Violations) -> Vec<Quota> {
    let field = "spec.resourceQuotas.items";
    violations.limit(field, raw.len(), MAX_QUOTAS);
    let mut quotas = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let at = format!("{field}[{index}]");
        violations.limit(&format!("{at}.scopes"), raw.scopes.len(), MAX_QUOTA_SCOPES);
        let hard = amounts(&format!("{at}.hard"), raw.hard, violations);
        quotas.push(Quota { hard, scopes: raw.scopes, scope_selector: raw.scope_selector });
    }
    quotas
}

/// The limits of each LimitRange.
pub(super) fn limit_ranges(
    raw: Vec<RawLimitRange>,
    violations: &mut Violations,
) -> Vec<Vec<LimitRangeItem>> {
    let field = "spec.limitRanges.items";
    violations.limit(field, raw.len(), MAX_QUOTAS);
    let mut ranges = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let at = format!("{field}[{index}].limits");
        violations.limit(&at, raw.limits.len(), MAX_QUOTAS);
        let limits = raw.limits.into_iter().enumerate();
        let limits =
            limits.map(|(index, raw)| limit(&format!("{at}[{index}]"), raw, violations)).collect();
        ranges.push(limits);
    }
    ranges
}

fn limit(at: &str, raw: RawLimit, violations: &mut Violations) -> LimitRangeItem {
    if !LIMIT_TYPES.contains(&raw.kind.as_str()) {
        violations.add(format!("{at}.type"), LIMIT_TYPES.join(", "));
    }
    let mut read = |name: &str, raw: Option<RawAmounts>| {
        raw.map(|raw| amounts(&format!("{at}.{name}"), raw, violations))
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

fn amounts(at: &str, raw: RawAmounts, violations: &mut Violations) -> BTreeMap<String, Quantity> {
    violations.limit(at, raw.len(), MAX_AMOUNTS);
    let mut amounts = BTreeMap::new();
    for (resource, amount) in raw {
        if !is_amount(&amount) {
            violations.add(
                format!("{at}.{resource}"),
                "a quantity that is not negative, such as 8 or 16Gi",
            );
        }
        let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
        amounts.insert(resource, Quantity(text));
    }
    amounts
}
