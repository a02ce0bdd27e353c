//! Access reviews of members of tenants (see [`super::interception`]).

use super::{
    interception::{CREATES_NAMESPACES, Interception, LISTS_NAMESPACES},
    review,
    upstream_call::UpstreamCall,
};
use crate::{
    http::ApiError, identity::Caller, tenant::longest_prefix, tenant_operations::TenantOperations,
};

/// The namespace that a review is about, if the token depends on it: for members of tenants.
pub(super) fn reviewed_namespace(
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
/// namespaces, so that one is ignored.
///
/// # Errors
/// The tenants of the caller cannot be read.
pub(super) async fn reason_to_allow(
    call: &UpstreamCall<'_>,
    review: &[u8],
) -> Result<Option<&'static str>, ApiError> {
    let (gateway, principal) = (call.gateway, call.principal);
    let (Some(tenants), false) =
        (&gateway.tenants, gateway.tenants_at(principal, call.cluster).is_empty())
    else {
        return Ok(None);
    };
    let Some(asked) =
        review::attributes(review).filter(review::ResourceAttributes::is_about_namespaces)
    else {
        return Ok(None);
    };
    if asked.is_list() {
        let is_listed = !principal.listed_tenants(call.cluster.name()).is_empty()
            && (asked.name.is_empty()
                || gateway.is_own_namespace(principal, call.cluster, &asked.name));
        return Ok(is_listed.then_some(LISTS_NAMESPACES));
    }
    if asked.verb == "create" && may_create(tenants, &principal.caller, &asked.name).await? {
        return Ok(Some(CREATES_NAMESPACES));
    }
    Ok(None)
}

/// Whether the caller owns a tenant; for a name, whether it is one of that tenant.
async fn may_create(
    tenants: &TenantOperations,
    caller: &Caller,
    name: &str,
) -> Result<bool, ApiError> {
    let owned = tenants.owned_by(caller).await?;
    Ok(if name.is_empty() { !owned.is_empty() } else { longest_prefix(&owned, name).is_some() })
}
