//! Namespaces: ownership, the home of a workspace, namespaces of tenants, and RoleBindings in all of them.

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
