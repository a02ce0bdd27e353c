//! Limits that are below what the namespaces of a tenant use, as a condition. It follows from the
//! snapshot that every run reads, so that it stays while amounts are not divided.

use kube::api::DynamicObject;

use super::TenantNamespaces;
use crate::{
    tenant::{Condition, ConditionType, QuotaScope, QuotaUse, Tenant, limits_below_use},
    tenant_controller::objects::snapshot::Snapshot,
};

/// The condition about the limits of a tenant that are below what is used; `None` if there are none.
pub(in crate::tenant_controller) fn exceeded_condition(
    tenant: &Tenant,
    namespaces: &TenantNamespaces,
    snapshot: &Snapshot,
) -> Option<Condition> {
    let is_counted = |namespace: &str| match tenant.quota_scope {
        QuotaScope::Tenant => namespaces.allocation_of(namespace).is_some(),
        // The quotas of others are left as they are.
        QuotaScope::Namespace => namespaces.allowed.contains_key(namespace),
    };
    let counted: Vec<QuotaUse<'_>> = snapshot
        .quotas()
        .filter_map(|object| {
            let namespace = object.metadata.namespace.as_deref()?;
            let quota = object.metadata.name.as_deref()?;
            let used = object.status.as_ref()?.used.as_ref()?;
            is_counted(namespace).then_some(QuotaUse { namespace, quota, used })
        })
        .collect();
    let exceeded = limits_below_use(tenant, &counted);
    (!exceeded.is_empty()).then(|| Condition::resource_quota_exceeded(&tenant.name, &exceeded))
}

/// Whether the status of an object, as it was read, has the condition.
pub(in crate::tenant_controller) fn is_reported(object: &DynamicObject) -> bool {
    let conditions = object.data["status"]["conditions"].as_array();
    let kind = ConditionType::ResourceQuotaExceeded.as_str();
    conditions.into_iter().flatten().any(|condition| condition["type"] == kind)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{cluster::Object, tenant::NamespaceStatus};

    fn tenant(scope: &str) -> Tenant {
        let quotas = json!({"scope": scope, "items": [{"hard": {"secrets": "3"}}]});
        let owner = json!({"kind": "User", "name": "alice"});
        Tenant::parse("solar", &json!({"owners": [owner], "resourceQuotas": quotas})).unwrap()
    }

    fn quota(namespace: &str, used: &str) -> Object {
        let quota = json!({
            "metadata": {"name": "tenant-quota-0", "namespace": namespace},
            "status": {"used": {"secrets": used}},
        });
        Object::ResourceQuota(serde_json::from_value(quota).unwrap())
    }

    fn namespaces() -> TenantNamespaces {
        TenantNamespaces {
            allowed: ["solar-a", "solar-b"]
                .map(|name| (name.to_owned(), NamespaceStatus::Active))
                .into(),
            terminating: vec!["solar-gone".to_owned()],
            ..TenantNamespaces::default()
        }
    }

    /// The message of the condition; empty if there is none.
    fn message(scope: &str, quotas: &[(&str, &str)]) -> String {
        let quotas = quotas.iter().map(|(namespace, used)| quota(namespace, used));
        let condition = exceeded_condition(&tenant(scope), &namespaces(), &Snapshot::new(quotas));
        condition.map(|condition| condition.message).unwrap_or_default()
    }

    #[test]
    fn all_namespaces_of_the_tenant_count() {
        let (text, end) = (message("Tenant", &[("solar-a", "4")]), ": secrets 3 (tenant-quota-0)");
        assert!(text.ends_with(end), "{text}");
        // The message is the same whatever is used.
        assert_eq!(message("Tenant", &[("solar-a", "2"), ("solar-b", "7")]), text);
        assert_eq!(message("Tenant", &[("solar-a", "2"), ("solar-gone", "2")]), text);
        for used in [[("solar-a", "2"), ("solar-b", "1")], [("solar-a", "3"), ("lunar-a", "9")]] {
            assert_eq!(message("Tenant", &used), "", "{used:?}");
        }
    }

    #[test]
    fn a_limit_for_each_namespace_counts_where_the_broker_writes_it() {
        let text = message("Namespace", &[("solar-a", "3"), ("solar-b", "4"), ("solar-gone", "4")]);
        assert!(text.ends_with(": secrets 3 (tenant-quota-0 in solar-b)"), "{text}");
        assert_eq!(message("Namespace", &[("solar-a", "3"), ("solar-gone", "4")]), "");
    }

    #[test]
    fn a_quota_without_a_status_counts_nothing() {
        let new = json!({"metadata": {"name": "tenant-quota-0", "namespace": "solar-a"}});
        let new = Object::ResourceQuota(serde_json::from_value(new).unwrap());
        let snapshot = Snapshot::new([new]);
        assert_eq!(exceeded_condition(&tenant("Tenant"), &namespaces(), &snapshot), None);
    }

    #[test]
    fn the_condition_is_found_in_the_status() {
        let object = |kind: &str| -> DynamicObject {
            let status = json!({"conditions": [{"type": "Ready"}, {"type": kind}]});
            let object = json!({
                "apiVersion": "x/v1", "kind": "Tenant", "metadata": {"name": "solar"},
                "status": status,
            });
            serde_json::from_value(object).unwrap()
        };
        assert!(is_reported(&object("ResourceQuotaExceeded")));
        assert!(!is_reported(&object("QuotaExceeded")));
    }
}
