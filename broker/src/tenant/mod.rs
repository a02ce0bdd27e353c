//! Tenants: the `CustomResourceDefinition` of the kind `Tenant`, the validation of its objects, and
//! the rows of tenants and of their namespaces.
//!
//! Nothing acts on Tenants yet. `tenant-broker install` makes the definition, and reports objects
//! that break its rules.

mod api_group;
mod cluster_role_name;
mod definition;
mod fault;
mod limits;
mod name;
mod parse;
mod quantity;
mod schema;
mod settings;
mod status_schema;
mod store;
mod subject;

pub use api_group::ApiGroup;
pub use cluster_role_name::{ClusterRoleName, ClusterRoleNameError};
pub use definition::custom_resource_definition;
pub use fault::Fault;
pub use name::{TenantName, TenantNameError, is_reserved_home, tenant_name_rules};
pub use parse::{AdditionalRoleBinding, Owner, QuotaScope, Tenant};
pub use settings::{ClusterList, TenantSettings, UnknownClusterList};
pub(crate) use store::get_or_create_personal;
pub use store::{Claim, NamespaceRow, NamespaceStatus, Observed, TenantRow, TenantStatus, Tenants};
pub use subject::{Subject, SubjectError};
