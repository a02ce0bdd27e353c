//! Namespaces: ownership, homes of tenants, namespaces that move between tenants, and searches of
//! RoleBindings in all namespaces.

mod candidate_namespaces;
mod home;
mod moved_namespace;
mod namespace_ownership;
mod tenants;

pub use self::{
    home::HomeState,
    moved_namespace::{BindingsDescription, NamespaceLimits, grants_to_other_namespaces},
    namespace_ownership::{NamespaceOwnership, RecordedUids},
    tenants::BindingWithFinalizers,
};
