//! The Kubernetes objects of a workspace, as they have to be. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        core::v1::{
            LimitRange, LimitRangeItem, LimitRangeSpec, Namespace, ResourceQuota,
            ResourceQuotaSpec, ServiceAccount,
        },
        rbac::v1::{RoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use tenant_shared::{ROLE_BINDING_NAME, SERVICE_ACCOUNT_NAME};
use uuid::Uuid;

use crate::{
    cluster::{Compared, Object, labels_of},
    config::Tier,
};

/// Name of the ResourceQuota.
pub const QUOTA_NAME: &str = "tenant-quota";
/// Name of the LimitRange.
pub const LIMITS_NAME: &str = "tenant-limits";
/// RoleBindings in a namespace: each costs a suspension about a millisecond.
const MOST_ROLE_BINDINGS: &str = "20";
/// ConfigMaps, and as many Secrets: enough for a person, too few to fill etcd.
const MOST_CONFIG_OBJECTS: &str = "200";

/// The objects in the order in which they are made. Limits come before rights: whoever can act is
/// limited already.
pub(super) fn desired(workspace: Uuid, namespace: &str, tier: &Tier) -> Vec<Object> {
    let meta = |name: &str| meta(workspace, namespace, name);
    vec![
        Object::Namespace(Box::new(Namespace {
            metadata: ObjectMeta { namespace: None, ..namespace_meta(workspace, namespace, tier) },
            ..Namespace::default()
        })),
        Object::ResourceQuota(Box::new(ResourceQuota {
            metadata: meta(QUOTA_NAME),
            spec: Some(ResourceQuotaSpec {
                hard: Some(hard(tier)),
                ..ResourceQuotaSpec::default()
            }),
            ..ResourceQuota::default()
        })),
        Object::LimitRange(Box::new(LimitRange {
            metadata: meta(LIMITS_NAME),
            spec: Some(LimitRangeSpec { limits: vec![container_limits(tier)] }),
        })),
        Object::ServiceAccount(Box::new(service_account(workspace, namespace))),
        Object::RoleBinding(Box::new(RoleBinding {
            metadata: meta(ROLE_BINDING_NAME),
            role_ref: RoleRef {
                api_group: "rbac.authorization.k8s.io".to_owned(),
                kind: "ClusterRole".to_owned(),
                name: tier.role.clone(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name: SERVICE_ACCOUNT_NAME.to_owned(),
                namespace: Some(namespace.to_owned()),
                ..Subject::default()
            }]),
        })),
    ]
}

/// The ServiceAccount whose tokens the tenant gets.
pub(super) fn service_account(workspace: Uuid, namespace: &str) -> ServiceAccount {
    ServiceAccount {
        metadata: meta(workspace, namespace, SERVICE_ACCOUNT_NAME),
        // It is for people; a pod has no use for it.
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

fn meta(workspace: Uuid, namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        labels: Some(labels_of(workspace)),
        ..ObjectMeta::default()
    }
}

/// Whether an object of a kind has the name that ours has; a namespace is named by itself.
pub(super) fn is_name_of<K: Compared>(name: &str, namespace: &str) -> bool {
    match K::NAME {
        Namespace::NAME => name == namespace,
        ResourceQuota::NAME => name == QUOTA_NAME,
        LimitRange::NAME => name == LIMITS_NAME,
        ServiceAccount::NAME => name == SERVICE_ACCOUNT_NAME,
        _ => name == ROLE_BINDING_NAME,
    }
}

fn namespace_meta(workspace: Uuid, namespace: &str, tier: &Tier) -> ObjectMeta {
    let mut labels = labels_of(workspace);
    // The broker could not add the level later, and without it a tenant's pod may take the node.
    for mode in ["enforce", "warn"] {
        labels.insert(format!("pod-security.kubernetes.io/{mode}"), tier.pod_security.clone());
    }
    ObjectMeta { name: Some(namespace.to_owned()), labels: Some(labels), ..ObjectMeta::default() }
}

fn quantities<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<String, Quantity> {
    entries
        .into_iter()
        .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())))
        .collect()
}

fn hard(tier: &Tier) -> BTreeMap<String, Quantity> {
    quantities([
        ("requests.cpu", tier.cpu.as_str()),
        ("limits.memory", &tier.memory),
        ("requests.storage", &tier.storage),
        ("pods", &tier.pods),
        // A port on every node and a machine of the cloud are the operator's to give.
        ("services.nodeports", "0"),
        ("services.loadbalancers", "0"),
        ("count/configmaps", MOST_CONFIG_OBJECTS),
        ("count/secrets", MOST_CONFIG_OBJECTS),
        ("count/rolebindings.rbac.authorization.k8s.io", MOST_ROLE_BINDINGS),
    ])
}

fn container_limits(tier: &Tier) -> LimitRangeItem {
    LimitRangeItem {
        type_: "Container".to_owned(),
        default: Some(quantities([("cpu", &*tier.default_cpu), ("memory", &tier.default_memory)])),
        default_request: Some(quantities([("cpu", "50m"), ("memory", &tier.default_memory)])),
        ..LimitRangeItem::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Settings};

    #[test]
    fn the_objects_of_the_basic_tier() {
        let settings = Settings::load(None, std::iter::empty(), &[]).unwrap();
        let tiers = Config::from_settings(settings).unwrap().tiers;
        let objects = desired(Uuid::nil(), "tenant-x", tiers.get("basic").unwrap());
        insta::assert_json_snapshot!(objects);
    }
}
