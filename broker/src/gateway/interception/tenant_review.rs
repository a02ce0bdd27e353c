//! Access reviews of members of tenants (see [`super`]).

use std::sync::Arc;

use serde_json::{Value, json};

use super::{CREATES_NAMESPACES, Interception, LISTS_GRANTED, LISTS_NAMESPACES};
use crate::{
    cluster::{BrokerReadResource, ClusterList},
    gateway::{kubernetes_api::review, upstream_call::UpstreamCall},
    http::ApiError,
    tenant_operations::TenantOperations,
};

/// The namespace that a review is about, if the token depends on it: for members of tenants.
pub(in crate::gateway) fn reviewed_namespace(
    call: &UpstreamCall<'_>,
    interception: &Interception,
    review: &[u8],
) -> Option<String> {
    if call.gateway.tenants_at(call.principal, call.cluster).is_empty() {
        return None;
    }
    let namespace = match interception {
        Interception::AccessReview => review::attributes(review)?.namespace,
        Interception::RulesReview => review::rules_namespace(review)?,
        _ => return None,
    };
    Some(namespace).filter(|namespace| !namespace.is_empty())
}

/// Why a `SelfSubjectAccessReview` is allowed although RBAC denies it, because the gateway carries
/// such a request out for members and owners of tenants. kubectl puts any namespace into a review of
/// a cluster-scoped resource, so that one is ignored.
///
/// # Errors
/// The tenants of the caller cannot be read.
pub(in crate::gateway) async fn reason_to_allow(
    call: &UpstreamCall<'_>,
    review: &[u8],
) -> Result<Option<&'static str>, ApiError> {
    let (gateway, principal) = (call.gateway, call.principal);
    let (Some(tenants), false) =
        (&gateway.tenants, gateway.tenants_at(principal, call.cluster).is_empty())
    else {
        return Ok(None);
    };
    let Some(asked) = review::attributes(review) else { return Ok(None) };
    if let Some(list) = asked.cluster_list() {
        let is_listed = asked.is_list() && Box::pin(is_listed(call, list)).await?;
        return Ok(is_listed.then_some(LISTS_GRANTED));
    }
    if !asked.is_about_namespaces() {
        return Ok(None);
    }
    if asked.is_list() {
        let is_listed =
            !principal.shown(call.cluster.name(), BrokerReadResource::Namespaces).is_empty()
                && (asked.name.is_empty()
                    || gateway.is_own_namespace(principal, call.cluster, &asked.name));
        return Ok(is_listed.then_some(LISTS_NAMESPACES));
    }
    if asked.verb == "create" && may_create(call, tenants, &asked.name).await? {
        return Ok(Some(CREATES_NAMESPACES));
    }
    Ok(None)
}

/// The rules of a `SelfSubjectRulesReview` about requests that the gateway carries out although RBAC
/// denies them. Such a review is about the memberships that the caller has.
///
/// # Errors
/// The tenants of the caller cannot be read.
pub(in crate::gateway) async fn further_rules(
    call: &UpstreamCall<'_>,
) -> Result<Vec<Value>, ApiError> {
    let (gateway, principal, cluster) = (call.gateway, call.principal, call.cluster);
    let (Some(tenants), false) =
        (&gateway.tenants, gateway.tenants_at(principal, cluster).is_empty())
    else {
        return Ok(Vec::new());
    };
    let rule = |verbs: &[&str], group: &str, resource: &str| json!({"verbs": verbs, "apiGroups": [group], "resources": [resource]});
    let lists = ClusterList::ALL.map(BrokerReadResource::ClusterList);
    let shown = [BrokerReadResource::Namespaces]
        .into_iter()
        .chain(lists)
        .filter(|resource| principal.shown(cluster.name(), *resource).read("", false).is_ok());
    let mut rules: Vec<Value> =
        shown.map(|it| rule(&["list", "watch"], it.group(), it.resource())).collect();
    if may_create(call, tenants, "").await? {
        rules.push(rule(&["create"], "", "namespaces"));
    }
    Ok(rules)
}

/// Whether the gateway lists a cluster-scoped resource for the caller. The memberships that a list
/// would make are made, because they decide. A review with the name of an object is about a list with
/// this name as its field selector.
async fn is_listed(call: &UpstreamCall<'_>, list: ClusterList) -> Result<bool, ApiError> {
    let (gateway, cluster) = (call.gateway, call.cluster);
    let resource = BrokerReadResource::ClusterList(list);
    let mut principal = Arc::clone(call.principal);
    if let Some(missing) = gateway.missing_for_list(&principal, cluster, resource) {
        principal = gateway.join(call.presented, principal, missing).await?;
    }
    Ok(principal.shown(cluster.name(), resource).read("", false).is_ok())
}

/// Whether the caller owns an active tenant, and their membership in it is not suspended; for a name,
/// whether that is the tenant for which the gateway would create a namespace of this name.
async fn may_create(
    call: &UpstreamCall<'_>,
    tenants: &TenantOperations,
    name: &str,
) -> Result<bool, ApiError> {
    let (principal, cluster) = (call.principal, call.cluster.name());
    let candidates = if name.is_empty() {
        tenants.owned_by(&principal.caller).await?
    } else {
        let tenant = Box::pin(tenants.tenant_of_new_namespace(&principal.caller, name)).await?;
        tenant.into_iter().collect()
    };
    for tenant in &candidates {
        // An owner who is no member becomes one.
        let is_suspended = principal.membership(cluster, tenant).is_some()
            && !principal.is_active_member(cluster, tenant);
        if !is_suspended && tenants.is_active(tenant).await? {
            return Ok(true);
        }
    }
    Ok(false)
}
