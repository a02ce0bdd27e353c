//! Limits of a Tenant that are below what its namespaces use, for example because somebody lowered
//! them. Pure.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{QuotaScope, Tenant, quota_name};
use crate::cluster::nanos_of;

/// What the ResourceQuota of a namespace counts.
#[derive(Clone, Copy, Debug)]
pub struct QuotaUse<'a> {
    pub namespace: &'a str,
    /// Name of the ResourceQuota.
    pub quota: &'a str,
    /// `status.used`.
    pub used: &'a BTreeMap<String, Quantity>,
}

impl QuotaUse<'_> {
    /// The amount in units of 10⁻⁹; 0 if the resource is not counted yet.
    fn amount(&self, resource: &str) -> i128 {
        self.used.get(resource).and_then(nanos_of).unwrap_or(0)
    }
}

/// A limit of which more is used than it allows.
#[derive(Clone, Debug, PartialEq)]
pub struct ExceededLimit {
    /// Name of the ResourceQuota.
    pub quota: String,
    /// The resource, such as `requests.cpu`.
    pub resource: String,
    /// What the Tenant allows.
    pub limit: Quantity,
    /// `None`: all namespaces together.
    pub namespace: Option<String>,
}

impl fmt::Display for ExceededLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quota, resource, limit, namespace } = self;
        match namespace {
            Some(namespace) => write!(f, "{resource} {} ({quota} in {namespace})", limit.0),
            None => write!(f, "{resource} {} ({quota})", limit.0),
        }
    }
}

/// The limits that are below what is used, in a fixed order.
pub fn limits_below_use(tenant: &Tenant, counted: &[QuotaUse<'_>]) -> Vec<ExceededLimit> {
    let mut exceeded = Vec::new();
    for (index, item) in tenant.quotas.iter().enumerate() {
        let name = quota_name(index);
        let of_item: Vec<&QuotaUse<'_>> = counted.iter().filter(|it| it.quota == name).collect();
        for (resource, limit) in &item.hard {
            let Some(allowed) = nanos_of(limit) else { continue };
            let exceeded_in = |namespace: Option<&str>| ExceededLimit {
                quota: name.clone(),
                resource: resource.clone(),
                limit: limit.clone(),
                namespace: namespace.map(str::to_owned),
            };
            match tenant.quota_scope {
                QuotaScope::Tenant => {
                    let total: i128 = of_item.iter().map(|it| it.amount(resource)).sum();
                    if total > allowed {
                        exceeded.push(exceeded_in(None));
                    }
                }
                QuotaScope::Namespace => {
                    let over = of_item.iter().filter(|it| it.amount(resource) > allowed);
                    exceeded.extend(over.map(|it| exceeded_in(Some(it.namespace))));
                }
            }
        }
    }
    exceeded
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tenant(scope: &str) -> Tenant {
        let items = json!([
            {"hard": {"secrets": "5", "requests.cpu": "1"}},
            {"hard": {"pods": "2"}, "scopes": ["BestEffort"]},
        ]);
        let owner = json!({"kind": "User", "name": "alice"});
        let spec = json!({"owners": [owner], "resourceQuotas": {"scope": scope, "items": items}});
        Tenant::parse("solar", &spec).unwrap()
    }

    /// The texts of the limits that are exceeded, if quotas of these namespaces and names count these
    /// amounts of these resources.
    fn texts(scope: &str, counted: &[(&str, &str, &str, &str)]) -> Vec<String> {
        let counted: Vec<(&str, &str, BTreeMap<String, Quantity>)> = counted
            .iter()
            .map(|(namespace, quota, resource, amount)| {
                let amount = Quantity((*amount).to_owned());
                (*namespace, *quota, BTreeMap::from([((*resource).to_owned(), amount)]))
            })
            .collect();
        let counted: Vec<QuotaUse<'_>> = counted
            .iter()
            .map(|(namespace, quota, used)| QuotaUse { namespace, quota, used })
            .collect();
        limits_below_use(&tenant(scope), &counted).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_namespaces_together_use_more_than_a_limit() {
        let (first, second) = ("tenant-quota-0", "tenant-quota-1");
        let used = [
            ("solar-a", first, "secrets", "3"),
            ("solar-b", first, "secrets", "3"),
            ("solar-a", first, "requests.cpu", "500m"),
            ("solar-b", first, "requests.cpu", "0.501"),
            ("solar-a", second, "pods", "2"),
        ];
        let expected = ["requests.cpu 1 (tenant-quota-0)", "secrets 5 (tenant-quota-0)"];
        assert_eq!(texts("Tenant", &used), expected);
        assert!(texts("Namespace", &used).is_empty());
    }

    #[test]
    fn a_limit_that_is_used_up_is_not_exceeded() {
        let used = [
            ("solar-a", "tenant-quota-0", "secrets", "2"),
            ("solar-b", "tenant-quota-0", "secrets", "3"),
            // Neither of an item nor of a resource of the Tenant.
            ("solar-b", "tenant-quota-7", "secrets", "9"),
            ("solar-b", "tenant-quota-1", "secrets", "9"),
        ];
        assert!(texts("Tenant", &used).is_empty());
        assert!(texts("Tenant", &[]).is_empty());
    }

    #[test]
    fn a_limit_of_each_namespace_is_exceeded_in_some() {
        let used = [
            ("solar-a", "tenant-quota-1", "pods", "3"),
            ("solar-b", "tenant-quota-1", "pods", "2"),
            ("solar-c", "tenant-quota-1", "pods", "4"),
        ];
        let expected = ["pods 2 (tenant-quota-1 in solar-a)", "pods 2 (tenant-quota-1 in solar-c)"];
        assert_eq!(texts("Namespace", &used), expected);
    }
}
