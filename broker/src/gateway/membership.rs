//! Choice of the membership for a request: the one in the tenant that the named namespace belongs
//! to. A membership that the person has a right to is made at its first request.
//!
//! This chooses which of the person's own tokens a request is sent with, and grants nothing: the API
//! server decides as for every request with that token. So it does not matter that the broker's copy
//! of the cluster may lag.

use std::{sync::Arc, time::Instant};

use http::Method;
use tenant_shared::Code;

use super::{
    Gateway,
    in_flight::MemberNamespace,
    interception::broker_read_resource,
    kubernetes_api::path::Target,
    principals::{Principal, Workspace, request_rights::RequestRights},
};
use crate::{
    cluster::{BrokerReadResource, Cluster},
    http::ApiError,
    identity::PresentedCredential,
    tenant::{TenantName, longest_prefix},
    tenant_operations::TenantError,
    workspace::Active,
};

/// Memberships that a request needs and the caller does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MissingMembership {
    /// The one in the tenant of the named namespace.
    Tenant(TenantName),
    /// Any, because the caller has no workspace.
    Any,
    /// Those in all tenants, for a list of what they give the right to see. It shows what the caller
    /// has, if a tenant cannot be joined.
    Listed,
}

impl Gateway {
    /// The tenants of a principal that requests to this cluster may be for; none for most people.
    pub(super) fn tenants_at<'p>(
        &self,
        principal: &'p Principal,
        cluster: &Cluster,
    ) -> &'p [TenantName] {
        let tenants = principal.tenants();
        // The first check is all that people without tenants cost.
        if tenants.is_empty() || cluster.name() != self.clusters.for_new_workspaces().name() {
            &[]
        } else {
            tenants
        }
    }

    /// The workspace whose token a request is sent with.
    ///
    /// # Errors
    /// The principal has no workspace in the cluster.
    pub(super) fn choose_workspace<'p>(
        &self,
        principal: &'p Principal,
        cluster: &Cluster,
        namespace: Option<&str>,
    ) -> Result<&'p Workspace, ApiError> {
        if let Some(tenant) = self.tenant_of_request(principal, cluster, namespace)
            && let Some(membership) = principal.membership(cluster.name(), tenant)
        {
            return Ok(membership);
        }
        principal.workspace(cluster.name(), namespace)
    }

    /// The tenant of the principal that the namespace of a request belongs to; `None` also for the
    /// namespace of one of the principal's workspaces.
    fn tenant_of_request<'p>(
        &self,
        principal: &'p Principal,
        cluster: &Cluster,
        namespace: Option<&str>,
    ) -> Option<&'p TenantName> {
        let tenants = self.tenants_at(principal, cluster);
        let namespace = namespace.filter(|_| !tenants.is_empty())?;
        if principal.has_namespace(cluster.name(), namespace) {
            return None;
        }
        match self.tenants.as_ref()?.tenant_of_namespace(namespace) {
            Some(known) => tenants.iter().find(|tenant| **tenant == known),
            // It may be new, or about to be created.
            None => longest_prefix(tenants, namespace),
        }
    }

    /// The namespace and the tenant of a request that is sent with a membership.
    pub(super) fn member_namespace(
        &self,
        principal: &Principal,
        active: &Active,
        namespace: Option<&str>,
    ) -> Option<Arc<MemberNamespace>> {
        let tenants = self.tenants.as_ref()?;
        let tenant: TenantName = active.permit().resource().tenant_name()?.parse().ok()?;
        let namespace = namespace?.to_owned();
        let was_known = tenants.is_namespace_of(&namespace, &tenant).is_some().into();
        let rights = RequestRights::new(principal.caller.clone(), principal.roles_in(&tenant));
        let began_at = Instant::now();
        Some(Arc::new(MemberNamespace { namespace, tenant, was_known, began_at, rights }))
    }

    /// Whether the broker knows this namespace as one of the principal's.
    pub(super) fn is_own_namespace(
        &self,
        principal: &Principal,
        cluster: &Cluster,
        namespace: &str,
    ) -> bool {
        let tenants = self.tenants_at(principal, cluster);
        let known = self.tenants.as_ref().and_then(|it| it.tenant_of_namespace(namespace));
        known.is_some_and(|tenant| tenants.contains(&tenant))
            || principal.has_namespace(cluster.name(), namespace)
    }

    /// Whether a namespace has the name of one that a tenant of the principal may create, and is none
    /// of the principal's. What it has does not exist for the principal, whosever it is.
    pub(super) fn may_be_created(
        &self,
        principal: &Principal,
        cluster: &Cluster,
        namespace: &str,
    ) -> bool {
        let known = self.tenants.as_ref().and_then(|it| it.tenant_of_namespace(namespace));
        known.is_none_or(|known| !self.tenants_at(principal, cluster).contains(&known))
            && !principal.has_namespace(cluster.name(), namespace)
            && longest_prefix(self.tenants_at(principal, cluster), namespace).is_some()
    }

    /// The memberships that a request needs and the caller does not have. A machine is restricted to
    /// the one of its session.
    pub(super) fn missing_membership(
        &self,
        principal: &Principal,
        cluster: &Cluster,
        method: &Method,
        target: &Target<'_>,
    ) -> Option<MissingMembership> {
        self.missing_for_namespace(principal, cluster, target.namespace).or_else(|| {
            let listed = broker_read_resource(target).filter(|_| method == Method::GET)?;
            self.missing_for_list(principal, cluster, listed)
        })
    }

    /// The membership in the tenant of this namespace if the caller does not have it, or any if the
    /// caller has no workspace.
    pub(super) fn missing_for_namespace(
        &self,
        principal: &Principal,
        cluster: &Cluster,
        namespace: Option<&str>,
    ) -> Option<MissingMembership> {
        let tenants = self.tenants_at(principal, cluster);
        if tenants.is_empty() || principal.caller.only_workspace().is_some() {
            return None;
        }
        let is_missing =
            |tenant: &&TenantName| principal.membership(cluster.name(), tenant).is_none();
        let named = self.tenant_of_request(principal, cluster, namespace);
        if let Some(tenant) = named.filter(is_missing) {
            return Some(MissingMembership::Tenant(tenant.clone()));
        }
        (!principal.has_workspace(cluster.name())).then_some(MissingMembership::Any)
    }

    /// The memberships that a list of this resource needs and the caller does not have.
    pub(super) fn missing_for_list(
        &self,
        principal: &Principal,
        cluster: &Cluster,
        resource: BrokerReadResource,
    ) -> Option<MissingMembership> {
        let tenants = self.tenants_at(principal, cluster);
        if tenants.is_empty() || principal.caller.only_workspace().is_some() {
            return None;
        }
        let is_missing =
            |tenant: &TenantName| principal.membership(cluster.name(), tenant).is_none();
        let needs = match resource {
            BrokerReadResource::Namespaces => tenants.iter().any(is_missing),
            BrokerReadResource::ClusterList(list) => {
                let mut grants = principal.list_grants().iter();
                self.synthesizes_responses
                    && grants.any(|it| it.lists.contains(&list) && is_missing(&it.tenant))
            }
        };
        needs.then_some(MissingMembership::Listed)
    }

    /// Makes the memberships, and returns the principal with them.
    ///
    /// # Errors
    /// A membership cannot be made; the database failed.
    pub(super) async fn join(
        &self,
        presented: &PresentedCredential,
        principal: Arc<Principal>,
        missing: MissingMembership,
    ) -> Result<Arc<Principal>, ApiError> {
        let Some(tenants) = &self.tenants else { return Ok(principal) };
        let caller = &principal.caller;
        let attempt = match &missing {
            MissingMembership::Tenant(tenant) => {
                let join = async {
                    match tenants.join(caller, tenant).await {
                        // The copy of the Tenant was older: the API server refuses the request.
                        Ok(_) | Err(TenantError::NotFound) => Ok(()),
                        Err(error) => Err(join_error(error)),
                    }
                };
                self.joins.attempt((caller.user_id(), Some(tenant.clone())), join).await
            }
            MissingMembership::Any | MissingMembership::Listed => {
                let join = async { tenants.join_all(caller).await.map(drop).map_err(join_error) };
                self.joins.attempt((caller.user_id(), None), join).await
            }
        };
        match attempt {
            Ok(ended_at) if !principal.is_older_than(ended_at) => return Ok(principal),
            // A list shows the tenants that could be joined.
            Err(error) if missing != MissingMembership::Listed => return Err(error),
            // The principal is from before the wait.
            Ok(_) | Err(_) => {}
        }
        self.principals.remove(presented);
        self.principals.get(presented).await
    }
}

/// The error of a request whose membership cannot be made. A suspended tenant is 403, as a suspended
/// workspace is, because tools would repeat a 409.
fn join_error(error: TenantError) -> ApiError {
    match error {
        TenantError::NotActive { .. } => ApiError::new(Code::WorkspaceSuspended, error.to_string()),
        other => other.into(),
    }
}
