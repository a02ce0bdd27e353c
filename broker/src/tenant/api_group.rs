//! The API groups that serve Tenants.

/// An API group with the kind `Tenant`. Both have the same schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiGroup {
    /// Our own group.
    TenantBroker,
    /// The group of Capsule, so that its files can be applied unchanged.
    Capsule,
}

impl ApiGroup {
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
}
