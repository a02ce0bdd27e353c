//! HTTP API of tenants: `/tenants`.

mod announce_move;
mod apply;
mod create;
mod create_namespace;
mod delete;
mod error;
mod join;
mod list;
mod list_members;
mod list_namespaces;
mod plan_move;
mod resume;
mod service;
mod show;
mod show_spec;
mod suspend;
mod write_error;

use self::{
    announce_move::AnnounceMove, apply::Apply, create::Create, create_namespace::CreateNamespace,
    delete::Delete, join::Join, list::List, list_members::ListMembers,
    list_namespaces::ListNamespaces, plan_move::PlanMove, resume::Resume, service::TenantService,
    show::Show, show_spec::ShowSpec, suspend::Suspend,
};
use tenant_shared::is_dns_label;

use super::{TenantError, TenantOperations};
use crate::{
    http::ApiError,
    tenant::{NamespaceNameError, TenantName},
};

/// Operations on tenants.
pub type TenantApi = (
    List,
    Show,
    ListMembers,
    Join,
    ListNamespaces,
    CreateNamespace,
    PlanMove,
    AnnounceMove,
    Suspend,
    Resume,
    Create,
    ShowSpec,
    Apply,
    Delete,
);

/// The operations of this service. `None` without `tenants.enabled`: they answer 404 then.
pub fn api(tenants: Option<TenantOperations>) -> TenantApi {
    let tenants = TenantService(tenants);
    (
        List { tenants: tenants.clone() },
        Show { tenants: tenants.clone() },
        ListMembers { tenants: tenants.clone() },
        Join { tenants: tenants.clone() },
        ListNamespaces { tenants: tenants.clone() },
        CreateNamespace { tenants: tenants.clone() },
        PlanMove { tenants: tenants.clone() },
        AnnounceMove { tenants: tenants.clone() },
        Suspend { tenants: tenants.clone() },
        Resume { tenants: tenants.clone() },
        Create { tenants: tenants.clone() },
        ShowSpec { tenants: tenants.clone() },
        Apply { tenants: tenants.clone() },
        Delete { tenants },
    )
}

/// The name of a namespace in a path, which a tenant is to get.
///
/// # Errors
/// 400: no namespace can have this name.
fn namespace_name<'a>(tenant: &TenantName, name: &'a str) -> Result<&'a str, ApiError> {
    if is_dns_label(name) {
        Ok(name)
    } else {
        Err(TenantError::InvalidName(NamespaceNameError::Malformed(tenant.clone())).into())
    }
}
