//! The section of the page about tenants.

use poem::http::StatusCode;
use tenant_shared::TenantInfo;

use crate::{http::ApiError, identity::Caller, tenant_operations::TenantOperations};

/// States of a tenant in which nobody joins and nobody creates namespaces.
const CLOSED_STATES: [&str; 4] = ["Suspending", "Suspended", "Resuming", "Terminating"];

/// A form about a tenant that was refused.
#[derive(Debug)]
pub(super) struct FormRefusal {
    /// Name of the tenant in the form.
    pub(super) tenant: String,
    /// Name of the namespace in the form; empty if the form has none.
    pub(super) namespace: String,
    /// Why it was refused, and what to do.
    pub(super) text: String,
    pub(super) status: StatusCode,
}

/// The tenants of a user.
#[derive(Debug)]
pub(super) struct TenantsSection {
    pub(super) tenants: Vec<TenantBlock>,
    /// Why a form was refused, or why the tenants are missing.
    pub(super) fault: Option<String>,
}

/// A tenant on the page.
#[derive(Debug)]
pub(super) struct TenantBlock {
    pub(super) info: TenantInfo,
    /// Initial value of the field for the name of a new namespace.
    pub(super) namespace: String,
}

impl TenantsSection {
    /// The tenants that a user has to do with. The page is shown without them if they cannot be
    /// listed.
    pub(super) async fn load(
        tenants: &TenantOperations,
        caller: &Caller,
        refusal: Option<FormRefusal>,
    ) -> Self {
        match tenants.list(caller).await {
            Ok(listed) => Self::new(listed, refusal),
            Err(error) => {
                let fault = ApiError::from(error).problem().detail;
                Self { tenants: Vec::new(), fault: Some(fault) }
            }
        }
    }

    /// A section with those of these tenants that name the user, or that the user is a member of.
    /// The list of an administrator has all others too.
    pub(super) fn new(listed: Vec<TenantInfo>, refusal: Option<FormRefusal>) -> Self {
        let namespace = |tenant: &TenantInfo| match &refusal {
            Some(refusal) if refusal.tenant == tenant.name && !refusal.namespace.is_empty() => {
                refusal.namespace.clone()
            }
            _ => format!("{}-", tenant.name),
        };
        let tenants = listed
            .into_iter()
            .filter(|tenant| is_named(tenant) || tenant.workspace.is_some())
            .map(|info| TenantBlock { namespace: namespace(&info), info })
            .collect();
        Self { tenants, fault: refusal.map(|refusal| refusal.text) }
    }
}

impl TenantBlock {
    /// Names of the ClusterRoles that the user has.
    pub(super) fn roles(&self) -> String {
        let roles: Vec<&str> =
            self.info.roles.iter().map(|role| role.cluster_role.as_str()).collect();
        roles.join(", ")
    }

    /// Whether the page has the form to become a member.
    pub(super) fn may_join(&self) -> bool {
        self.is_open() && is_named(&self.info) && self.info.workspace.is_none()
    }

    /// Whether the page has the form for a namespace.
    pub(super) fn may_create(&self) -> bool {
        self.is_open() && self.info.is_owner
    }

    fn is_open(&self) -> bool {
        !CLOSED_STATES.contains(&self.info.state.as_str())
    }
}

/// Whether the tenant names the user as an owner or in a binding.
fn is_named(tenant: &TenantInfo) -> bool {
    tenant.is_owner || !tenant.roles.is_empty()
}
