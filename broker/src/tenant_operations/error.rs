//! Errors of operations on tenants.

use std::error::Error;

use tenant_shared::TENANT_LABEL;

use crate::{
    access::AccessError,
    cluster::ClusterError,
    tenant::{MissingMetadata, NamespaceNameError, TenantName},
    workspace::WorkspaceError,
};

/// A cause of any type.
pub(super) type Cause = Box<dyn Error + Send + Sync>;

/// Error of an operation on a tenant.
#[derive(Debug, thiserror::Error)]
pub enum TenantError {
    /// There is no such tenant, or the caller must not learn about it.
    #[error("there is no such tenant; `kubectl tenant tenants list` lists yours")]
    NotFound,
    /// The caller may see the tenant, but does not own it.
    #[error(
        "only an owner of tenant {tenant} may do that; ask an owner or an administrator \
         (`kubectl tenant tenants get {tenant}` shows your rights)"
    )]
    NotOwner {
        /// The tenant.
        tenant: TenantName,
    },
    /// The tenant is suspended, being suspended or resumed, or its object is being deleted.
    #[error(
        "tenant {tenant} is suspended, is not resumed yet, or is being deleted; ask an administrator"
    )]
    NotActive {
        /// The tenant.
        tenant: TenantName,
    },
    /// The tenant may not have a namespace of this name.
    #[error(transparent)]
    InvalidName(#[from] NamespaceNameError),
    /// A new namespace lacks labels or annotations that the Tenant demands.
    #[error(
        "tenant {tenant} requires metadata of its namespaces (requiredMetadata): {}; add what is \
         missing, or ask an administrator", joined(.missing)
    )]
    MissingMetadata {
        /// The tenant.
        tenant: TenantName,
        /// What the namespace lacks.
        missing: Vec<MissingMetadata>,
    },
    /// A label or annotation cannot be set; the text has its field and the rule.
    #[error("{0}")]
    InvalidMetadata(String),
    /// The tenant has as many namespaces as it may have.
    #[error(
        "exceeded namespace quota: tenant {tenant} has {used} of {quota}; delete a namespace, or \
         ask an administrator"
    )]
    QuotaExceeded {
        /// The tenant.
        tenant: TenantName,
        /// Namespaces that are counted.
        used: u32,
        /// The limit.
        quota: u32,
    },
    /// A namespace of this name exists, or another tenant has claimed it.
    #[error(
        "no namespace was created for tenant {tenant}, because {namespace} exists already; choose \
         another name"
    )]
    NamespaceExists {
        /// The tenant of the request. The namespace may be of another one, which is not named.
        tenant: TenantName,
        /// Name of the namespace.
        namespace: String,
    },
    /// The API server refused to create this namespace, and does not have it.
    #[error("the API server did not create the namespace {namespace}; nothing was changed")]
    NotCreated {
        /// Name of the namespace.
        namespace: String,
        /// The refusal.
        #[source]
        cause: Cause,
    },
    /// The namespace is claimed, and perhaps created, but does not have all of its objects.
    #[error(
        "the namespace {namespace} is not complete yet, and the broker goes on with it; try again"
    )]
    Unfinished {
        /// Name of the namespace.
        namespace: String,
        /// Cause.
        #[source]
        cause: Cause,
    },
    /// The cluster has no namespace of this name.
    #[error("there is no namespace {0} in the cluster")]
    NoNamespace(String),
    /// The namespace may not be moved, or not as the request says.
    #[error("the namespace {namespace} was not moved: {reason}")]
    MoveRefused {
        /// Name of the namespace.
        namespace: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The caller owns no tenant.
    #[error("you own no tenant, and only owners make namespaces; ask an administrator")]
    NoTenant,
    /// The caller owns these tenants, and the name of the namespace begins with none of them.
    #[error(
        "you own several tenants ({}), and the name of the namespace begins with none of them: \
         name it TENANT-NAME, or give it the label {TENANT_LABEL}", names(.0)
    )]
    AmbiguousTenant(Vec<TenantName>),
    /// The broker or the tenant is in a state that does not allow the operation yet.
    #[error("{reason}")]
    NotReady {
        /// The state, of which tenant if it is known, and what to do.
        reason: String,
    },
    /// The caller may not do this.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The membership does not allow it, or could not be made.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The cluster failed.
    #[error("the cluster failed")]
    Cluster(#[from] ClusterError),
    /// The database failed.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
}

impl TenantError {
    /// Whether the caller was refused, so that the audit trail has a row for it. Malformed requests,
    /// requests for unknown tenants and failures have none.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::NotOwner { .. }
            | Self::NotActive { .. }
            | Self::InvalidName(_)
            | Self::MissingMetadata { .. }
            | Self::QuotaExceeded { .. }
            | Self::NamespaceExists { .. }
            | Self::NotCreated { .. }
            | Self::Access(_)
            | Self::Workspace(
                WorkspaceError::Suspended
                | WorkspaceError::NotActive
                | WorkspaceError::NotMember(_),
            ) => true,
            Self::NotFound
            | Self::InvalidMetadata(_)
            | Self::Unfinished { .. }
            | Self::NoNamespace(_)
            | Self::MoveRefused { .. }
            | Self::NoTenant
            | Self::AmbiguousTenant(_)
            | Self::NotReady { .. }
            | Self::Workspace(_)
            | Self::Cluster(_)
            | Self::Database(_) => false,
        }
    }

    /// Error of the cluster, if it is the cause.
    pub fn cluster_error(&self) -> Option<&ClusterError> {
        let mut next: Option<&(dyn Error + 'static)> = Some(self);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<ClusterError>() {
                return Some(found);
            }
            next = error.source();
        }
        None
    }
}

fn joined(missing: &[MissingMetadata]) -> String {
    missing.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn names(tenants: &[TenantName]) -> String {
    tenants.iter().map(TenantName::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_the_cluster_is_found_in_the_chain() {
        let conflict = || ClusterError::Conflict("it exists".to_owned());
        let unfinished =
            TenantError::Unfinished { namespace: "solar-a".to_owned(), cause: conflict().into() };
        let member = TenantError::Workspace(WorkspaceError::Cluster(conflict()));
        for error in [unfinished, member, conflict().into()] {
            let found = error.cluster_error();
            assert!(matches!(found, Some(ClusterError::Conflict(_))), "{error:?}");
        }
        assert!(TenantError::NotFound.cluster_error().is_none());
    }

    #[test]
    fn several_tenants_are_named() {
        let tenants = ["lunar", "solar"].map(|name| name.parse().unwrap());
        assert_eq!(
            TenantError::AmbiguousTenant(tenants.to_vec()).to_string(),
            "you own several tenants (lunar, solar), and the name of the namespace begins with \
             none of them: name it TENANT-NAME, or give it the label tenant-broker.io/tenant"
        );
    }
}
