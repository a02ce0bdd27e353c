//! The API groups that serve Tenants.

use crate::cluster::CustomResource;

/// An API group with the kind `Tenant`. Both have the same schema. If two objects of one name have
/// the same age, that of the first group counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApiGroup {
    /// Our own group.
    TenantBroker,
    /// The group of Capsule, so that its files can be applied unchanged.
    Capsule,
}

impl ApiGroup {
    /// All groups.
    pub const ALL: [Self; 2] = [Self::TenantBroker, Self::Capsule];

    /// Name of the group.
    pub fn name(self) -> &'static str {
        match self {
            Self::TenantBroker => "tenant-broker.io",
            Self::Capsule => "capsule.clastix.io",
        }
    }

    /// The only version.
    pub fn version(self) -> &'static str {
        match self {
            Self::TenantBroker => "v1alpha1",
            Self::Capsule => "v1beta2",
        }
    }

    /// The kind `Tenant` of the group, for requests to the API server.
    pub fn resource(self) -> CustomResource {
        CustomResource::new(self.name(), self.version(), "Tenant")
    }
}
