//! The home, namespaces, quotas and limits.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{LimitRange, LimitRangeSpec, Namespace, ResourceQuota, ResourceQuotaSpec},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use tenant_shared::{BINDINGS_LABEL, HOME_LABEL, SUSPENDED_LABEL, TIER_LABEL};

use super::Inputs;
use crate::{
    cluster::{Object, POD_SECURITY, POD_SECURITY_RESTRICTED, POD_SECURITY_WARN, labels_of_tenant},
    tenant::{
        ADDED_KEYS, AddedKeys, Bindings, NODE_SELECTOR_ANNOTATION, Quota, QuotaScope, Tenant,
        home_name, limits_name, quota_name,
    },
    tier::Tiers,
};

type Labels = BTreeMap<String, String>;

/// Metadata of an object of a tenant.
pub(super) fn meta(tenant: &Tenant, namespace: Option<&str>, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: namespace.map(str::to_owned),
        labels: Some(labels_of_tenant(tenant.name.as_str())),
        ..ObjectMeta::default()
    }
}

/// The namespace that the members' ServiceAccounts are in.
pub(super) fn home(inputs: &Inputs<'_>) -> Object {
    let mut labels = labels_of_tenant(inputs.tenant.name.as_str());
    labels.insert(HOME_LABEL.to_owned(), "true".to_owned());
    // No pod runs in a home.
    set_pod_security(&mut labels, POD_SECURITY_RESTRICTED);
    set_suspended(&mut labels, inputs.suspended);
    let mut metadata = meta(inputs.tenant, None, home_name(&inputs.tenant.name));
    metadata.labels = Some(labels);
    Object::Namespace(Box::new(Namespace { metadata, ..Namespace::default() }))
}

/// A namespace of the tenant.
pub(super) fn namespace(inputs: &Inputs<'_>, name: &str) -> Object {
    let tenant = inputs.tenant;
    let additional = &tenant.namespace_options.additional_metadata;
    // Ours come last, so that no additional label replaces one.
    let given = inputs.settings.without_protected(&additional.labels);
    let mut labels = given.clone();
    labels.extend(labels_of_tenant(tenant.name.as_str()));
    if let Some(tier) = tenant.tier.as_deref().filter(|tier| inputs.tiers.get(tier).is_some()) {
        labels.insert(TIER_LABEL.to_owned(), tier.to_owned());
    }
    set_pod_security(&mut labels, pod_security_of(tenant, inputs.tiers));
    if tenant.bindings == Bindings::Any {
        labels.insert(BINDINGS_LABEL.to_owned(), "any".to_owned());
    }
    set_suspended(&mut labels, inputs.suspended);
    let mut annotations = additional.annotations.clone();
    if !tenant.node_selector.is_empty() {
        let selector = node_selector(&tenant.node_selector);
        annotations.insert(NODE_SELECTOR_ANNOTATION.to_owned(), selector);
    }
    if let Some(keys) = AddedKeys::of(&given, &additional.annotations).text() {
        annotations.insert(ADDED_KEYS.to_owned(), keys);
    }
    let mut metadata = meta(tenant, None, name.to_owned());
    metadata.labels = Some(labels);
    metadata.annotations = Some(annotations).filter(|annotations| !annotations.is_empty());
    Object::Namespace(Box::new(Namespace { metadata, ..Namespace::default() }))
}

/// The Pod Security level of the namespaces of a tenant: that of its tier. Without a tier it is the widest level of the tiers, because the broker
/// policies allow no other ones. With a tier that is not configured it is the strictest one, because
/// the level of a namespace is never changed.
pub fn pod_security_of<'a>(tenant: &Tenant, tiers: &'a Tiers) -> &'a str {
    // `baseline` sorts before `restricted`.
    let levels = tiers.pod_security_levels();
    let level = match tenant.tier.as_deref() {
        None => levels.first().copied(),
        Some(name) => tiers
            .get(name)
            .map(|tier| tier.pod_security.as_str())
            .or_else(|| levels.last().copied()),
    };
    level.unwrap_or(POD_SECURITY_RESTRICTED)
}

fn set_pod_security(labels: &mut Labels, level: &str) {
    for label in [POD_SECURITY, POD_SECURITY_WARN] {
        labels.insert(label.to_owned(), level.to_owned());
    }
}

fn set_suspended(labels: &mut Labels, suspended: bool) {
    if suspended {
        labels.insert(SUSPENDED_LABEL.to_owned(), "true".to_owned());
    }
}

fn node_selector(labels: &Labels) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// The quotas and limits of a namespace.
pub(super) fn limits(tenant: &Tenant, namespace: &str) -> Vec<Object> {
    let meta = |name: String| meta(tenant, Some(namespace), name);
    let quotas = tenant.quotas.iter().enumerate().map(|(index, quota)| {
        let spec = Some(quota_spec(tenant.quota_scope, quota));
        let metadata = meta(quota_name(index));
        Object::ResourceQuota(Box::new(ResourceQuota { metadata, spec, status: None }))
    });
    let ranges = tenant.limit_ranges.iter().enumerate().map(|(index, limits)| {
        let spec = Some(LimitRangeSpec { limits: limits.clone() });
        Object::LimitRange(Box::new(LimitRange { metadata: meta(limits_name(index)), spec }))
    });
    quotas.chain(ranges).collect()
}

fn quota_spec(scope: QuotaScope, quota: &Quota) -> ResourceQuotaSpec {
    let hard = match scope {
        QuotaScope::Namespace => quota.hard.clone(),
        QuotaScope::Tenant => {
            quota.hard.keys().map(|resource| (resource.clone(), Quantity("0".to_owned()))).collect()
        }
    };
    ResourceQuotaSpec {
        hard: Some(hard),
        scopes: Some(quota.scopes.clone()).filter(|scopes| !scopes.is_empty()),
        scope_selector: quota.scope_selector.clone(),
    }
}
