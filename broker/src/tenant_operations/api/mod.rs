//! HTTP API of tenants: `/tenants`.

mod create_namespace;
mod error;
mod join;
mod list;
mod list_members;
mod list_namespaces;
mod resume;
mod service;
mod show;
mod suspend;

use self::{
    create_namespace::CreateNamespace, join::Join, list::List, list_members::ListMembers,
    list_namespaces::ListNamespaces, resume::Resume, service::TenantService, show::Show,
    suspend::Suspend,
};
use super::TenantOperations;

/// Operations on tenants.
pub type TenantApi =
    (List, Show, ListMembers, Join, ListNamespaces, CreateNamespace, Suspend, Resume);

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
        Suspend { tenants: tenants.clone() },
        Resume { tenants },
    )
}
