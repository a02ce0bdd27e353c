//! Desired state of the Kubernetes objects of a workspace. No I/O.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        core::v1::{
            LimitRange, LimitRangeItem, LimitRangeSpec, Namespace, ResourceQuota,
            ResourceQuotaSpec, ServiceAccount,
        },
        networking::v1::{
            NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicySpec,
        },
        rbac::v1::{RoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
    },
};
use tenant_shared::{ROLE_BINDING_NAME, SERVICE_ACCOUNT_NAME, TIER_LABEL};
use uuid::Uuid;

use crate::{
    cluster::{
        Compared, Object, POD_SECURITY, POD_SECURITY_WARN, RBAC, labels_of, labels_of_tenant,
    },
    tier::Tier,
    workspace::WorkspaceRow,
};

const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Name of the ResourceQuota.
pub const QUOTA_NAME: &str = "tenant-quota";
/// Name of the LimitRange.
pub const LIMITS_NAME: &str = "tenant-limits";
/// Name of the NetworkPolicy.
pub const NETWORK_POLICY_NAME: &str = "tenant-deny-ingress";

/// The objects in the order in which they are created. Limits come before rights, so that a tenant
/// who can act is limited already.
pub(super) fn desired(
    workspace: Uuid,
    namespace: &str,
    tier_name: &str,
    tier: &Tier,
) -> Vec<Object> {
    let meta = |name: &str| meta(workspace, namespace, name);
    let mut objects = vec![
        Object::Namespace(Box::new(Namespace {
            metadata: namespace_meta(workspace, namespace, tier_name, tier),
            ..Namespace::default()
        })),
        Object::ResourceQuota(Box::new(ResourceQuota {
            metadata: meta(QUOTA_NAME),
            spec: Some(ResourceQuotaSpec {
                hard: Some(hard_limits(tier)),
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
                api_group: RBAC.to_owned(),
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
    ];
    if tier.network_policy {
        // Before anybody can create a pod.
        objects
            .insert(1, Object::NetworkPolicy(Box::new(network_policy(meta(NETWORK_POLICY_NAME)))));
    }
    objects
}

/// A policy by which pods accept connections only from pods of their own namespace. A tenant's own
/// policies may allow more.
fn network_policy(metadata: ObjectMeta) -> NetworkPolicy {
    let same_namespace = NetworkPolicyPeer {
        pod_selector: Some(LabelSelector::default()),
        ..NetworkPolicyPeer::default()
    };
    NetworkPolicy {
        metadata,
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector::default()),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(vec![NetworkPolicyIngressRule {
                from: Some(vec![same_namespace]),
                ports: None,
            }]),
            egress: None,
        }),
    }
}

/// The object as an older version of the broker created it, whose quota counted only nine
/// resources. A workspace keeps the objects that it was created with, so this difference is no
/// drift.
pub(super) fn older_version_of(object: &Object, tier: &Tier) -> Option<Object> {
    match object {
        Object::ResourceQuota(quota) => {
            let mut quota = quota.clone();
            quota.spec.get_or_insert_default().hard = Some(older_hard_limits(tier));
            Some(Object::ResourceQuota(quota))
        }
        Object::LimitRange(range) => {
            let mut range = range.clone();
            for item in &mut range.spec.get_or_insert_default().limits {
                for amounts in [&mut item.default, &mut item.default_request] {
                    amounts.get_or_insert_default().remove(EPHEMERAL_STORAGE);
                }
            }
            Some(Object::LimitRange(range))
        }
        _ => None,
    }
}

/// The ServiceAccount whose tokens the user of a workspace receives.
pub(super) fn account_of(workspace: &WorkspaceRow) -> ServiceAccount {
    let Some(tenant) = workspace.tenant_name() else {
        return service_account(workspace.id, &workspace.k8s_namespace);
    };
    ServiceAccount {
        metadata: ObjectMeta {
            name: Some(workspace.k8s_sa_name.clone()),
            namespace: Some(workspace.k8s_namespace.clone()),
            labels: Some(labels_of_tenant(&tenant)),
            ..ObjectMeta::default()
        },
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

/// The ServiceAccount of a personal workspace.
fn service_account(workspace: Uuid, namespace: &str) -> ServiceAccount {
    ServiceAccount {
        metadata: meta(workspace, namespace, SERVICE_ACCOUNT_NAME),
        // The account is for people; a pod does not need it.
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

/// Whether this is the name of our object of this kind. The namespace object has the namespace's
/// name.
pub(super) fn is_name_of<K: Compared>(name: &str, namespace: &str) -> bool {
    match K::NAME {
        Namespace::NAME => name == namespace,
        ResourceQuota::NAME => name == QUOTA_NAME,
        LimitRange::NAME => name == LIMITS_NAME,
        ServiceAccount::NAME => name == SERVICE_ACCOUNT_NAME,
        NetworkPolicy::NAME => name == NETWORK_POLICY_NAME,
        _ => name == ROLE_BINDING_NAME,
    }
}

fn namespace_meta(workspace: Uuid, namespace: &str, tier_name: &str, tier: &Tier) -> ObjectMeta {
    let mut labels = labels_of(workspace);
    // The admission policies select the rules of the tier by this label.
    labels.insert(TIER_LABEL.to_owned(), tier_name.to_owned());
    // The broker may not add the level later, and without it a tenant's pod can take over the node.
    for label in [POD_SECURITY, POD_SECURITY_WARN] {
        labels.insert(label.to_owned(), tier.pod_security.clone());
    }
    ObjectMeta { name: Some(namespace.to_owned()), labels: Some(labels), ..ObjectMeta::default() }
}

fn quantities<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<String, Quantity> {
    entries
        .into_iter()
        .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())))
        .collect()
}

fn hard_limits(tier: &Tier) -> BTreeMap<String, Quantity> {
    let mut hard = quantities([
        ("requests.cpu", tier.cpu.as_str()),
        ("limits.cpu", &tier.cpu_limit),
        ("limits.memory", &tier.memory),
        ("requests.storage", &tier.storage),
        ("limits.ephemeral-storage", &tier.ephemeral_storage),
        ("pods", &tier.pods),
    ]);
    let counts = tier.counts.iter().map(|(key, most)| (key.clone(), Quantity(most.clone())));
    hard.extend(counts);
    hard
}

fn older_hard_limits(tier: &Tier) -> BTreeMap<String, Quantity> {
    quantities([
        ("requests.cpu", tier.cpu.as_str()),
        ("limits.memory", &tier.memory),
        ("requests.storage", &tier.storage),
        ("pods", &tier.pods),
        ("services.nodeports", "0"),
        ("services.loadbalancers", "0"),
        ("count/configmaps", "200"),
        ("count/secrets", "200"),
        ("count/rolebindings.rbac.authorization.k8s.io", "20"),
    ])
}

/// Default requests and limits of containers. A quota for a resource refuses containers that set no
/// amount of it, so these defaults set the amounts.
fn container_limits(tier: &Tier) -> LimitRangeItem {
    LimitRangeItem {
        type_: "Container".to_owned(),
        default: Some(quantities([
            ("cpu", &*tier.default_cpu),
            ("memory", &tier.default_memory),
            (EPHEMERAL_STORAGE, &tier.default_ephemeral_storage),
        ])),
        default_request: Some(quantities([
            ("cpu", "50m"),
            ("memory", &tier.default_memory),
            (EPHEMERAL_STORAGE, "50Mi"),
        ])),
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
        let objects = desired(Uuid::nil(), "tenant-x", "basic", tiers.get("basic").unwrap());
        insta::assert_json_snapshot!(objects);
    }

    /// The NetworkPolicy is in the cluster before the first pod can be.
    #[test]
    fn the_network_policy_comes_before_any_right() {
        let toml = "[tiers.basic]\nnetwork_policy = 'deny-ingress'";
        let settings = Settings::load(Some(("test.toml", toml)), std::iter::empty(), &[]).unwrap();
        let tiers = Config::from_settings(settings).unwrap().tiers;
        let objects = desired(Uuid::nil(), "tenant-x", "basic", tiers.get("basic").unwrap());
        let kinds: Vec<&str> = objects.iter().map(Object::kind).collect();
        assert_eq!(kinds[..2], ["Namespace", "NetworkPolicy"]);
        insta::assert_json_snapshot!(objects[1]);
    }
}
