//! Errors of writes of Tenants.

use std::collections::BTreeSet;

use super::{TenantError, truncated};
use crate::{
    access::AccessError,
    cluster::{ClusterError, CustomWriteError, FieldConflict},
    tenant::{ApiGroup, KEEP_NAMESPACES, ON_DELETE_ANNOTATION, TenantName, Violation},
};

/// Faults and conflicts that an error names.
const MAX_NAMED: usize = 10;
/// Characters of the text of each.
const MAX_CHARS: usize = 300;

/// A Tenant was not written.
#[derive(Debug, thiserror::Error)]
pub enum TenantWriteError {
    /// The broker does not write Tenants.
    #[error(
        "this broker does not write Tenants (tenants.write); change them with kubectl, or have an \
         operator set tenants.write and run tenant-broker install --apply"
    )]
    Disabled,
    /// The request breaks rules of the definition.
    #[error("the Tenant is not valid: {}", list(.0.iter().map(ToString::to_string)))]
    Invalid(Vec<Violation>),
    /// The API server found the request not valid; each text has its field.
    #[error("the API server refused the Tenant: {}", list(.0.iter().cloned()))]
    InvalidForServer(Vec<String>),
    /// A Tenant of this name exists.
    #[error(
        "a Tenant {0} exists already; to change it, use PUT (kubectl tenant tenants apply or edit)"
    )]
    Exists(TenantName),
    /// The Tenant of this name is one of Capsule's group.
    #[error(
        "{tenant} is a Tenant of {group}, which the broker only reads; change it with kubectl",
        tenant = .0,
        group = ApiGroup::Capsule.name()
    )]
    OtherGroup(TenantName),
    /// The Tenant is not the one that the request names, or `spec` was changed since it was read.
    #[error("the Tenant {0} was changed or replaced meanwhile; read it again")]
    Changed(TenantName),
    /// Concurrent writers changed the Tenant in every attempt.
    #[error("the Tenant {0} is being changed by others all the time; try again")]
    Busy(TenantName),
    /// Other managers have set fields that the request would change.
    #[error(
        "other field managers have set what would change: {}; change it where they get it from, or \
         take the fields over with force (--force-conflicts)",
        list(.0.iter().map(|it| format!("{} (manager {})", it.field, it.manager)))
    )]
    FieldConflict(BTreeSet<FieldConflict>),
    /// The Tenant has namespaces.
    #[error(
        "tenant {tenant} still has {count} namespaces: delete them first, or let them stay with the \
         annotation {ON_DELETE_ANNOTATION}={KEEP_NAMESPACES} (--namespaces keep)"
    )]
    NotEmpty {
        /// The tenant.
        tenant: TenantName,
        /// Number of its namespaces.
        count: usize,
    },
    /// A policy of the API server, its RBAC or a webhook refused the write.
    #[error("the API server forbids it: {}", text(.0))]
    Forbidden(String),
    /// The API server does not serve the definition of Tenants.
    #[error(
        "the API server does not serve Tenants to the broker; have an operator run tenant-broker \
         install --apply"
    )]
    NotServed,
    /// The request to the API server failed.
    #[error(transparent)]
    Write(CustomWriteError),
    /// Another error of an operation on a tenant.
    #[error(transparent)]
    Tenant(#[from] TenantError),
}

impl TenantWriteError {
    /// Whether an administrator was refused, so that the audit trail has a row for it.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::Exists(_)
            | Self::OtherGroup(_)
            | Self::Changed(_)
            | Self::FieldConflict(_)
            | Self::NotEmpty { .. }
            | Self::InvalidForServer(_)
            | Self::Forbidden(_) => true,
            // The refusal of an authorization is recorded where it happens.
            Self::Disabled
            | Self::Invalid(_)
            | Self::Busy(_)
            | Self::NotServed
            | Self::Write(_)
            | Self::Tenant(_) => false,
        }
    }
}

impl From<CustomWriteError> for TenantWriteError {
    fn from(error: CustomWriteError) -> Self {
        match error {
            CustomWriteError::Invalid(faults) => Self::InvalidForServer(faults),
            CustomWriteError::Forbidden(message) => Self::Forbidden(message),
            CustomWriteError::NotServed => Self::NotServed,
            CustomWriteError::Missing => Self::Tenant(TenantError::NotFound),
            other => Self::Write(other),
        }
    }
}

impl From<AccessError> for TenantWriteError {
    fn from(error: AccessError) -> Self {
        Self::Tenant(error.into())
    }
}

impl From<ClusterError> for TenantWriteError {
    fn from(error: ClusterError) -> Self {
        Self::Tenant(error.into())
    }
}

impl From<sqlx::Error> for TenantWriteError {
    fn from(error: sqlx::Error) -> Self {
        Self::Tenant(error.into())
    }
}

/// The first of these texts, and how many more there are.
fn list(texts: impl ExactSizeIterator<Item = String>) -> String {
    let more = texts.len().saturating_sub(MAX_NAMED);
    let mut named: Vec<String> = texts.take(MAX_NAMED).map(|it| text(&it)).collect();
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    named.join("; ")
}

/// A text of the request or of the cluster, on one line and of limited length.
fn text(text: &str) -> String {
    truncated(text.chars().map(|c| if c.is_control() { ' ' } else { c }), MAX_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_fields_and_has_a_limited_length() {
        let conflict =
            |field: &str| FieldConflict { field: field.to_owned(), manager: "argocd".to_owned() };
        let conflicts = BTreeSet::from([conflict("spec.tier"), conflict("spec.bindings")]);
        let text = TenantWriteError::FieldConflict(conflicts).to_string();
        assert!(text.contains("spec.bindings (manager argocd); spec.tier (manager"), "{text}");
        let many = vec!["x\n".repeat(1000); 50];
        let text = TenantWriteError::InvalidForServer(many).to_string();
        assert!(text.ends_with("and 40 more") && text.len() < 4000, "{text}");
        assert!(!text.contains('\n'));
    }
}
