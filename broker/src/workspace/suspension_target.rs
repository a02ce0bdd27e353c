//! The namespace that a suspension applies to.

use super::{WorkspaceError, WorkspaceRow};
use crate::cluster::NamespaceOwnership;

/// The namespace as a suspension finds it in the cluster.
pub(super) enum SuspensionTarget {
    /// The namespace that the broker created, with this uid.
    Managed(String),
    /// The namespace that the broker created, without our label.
    Relabelled,
    /// The cluster did not return it in time.
    Unknown,
    /// A namespace of the same name that the broker did not create.
    Foreign,
    /// No namespace: it was never created, or it is gone.
    Nothing,
}

impl SuspensionTarget {
    /// The target for a namespace of this ownership.
    pub(super) fn from_ownership(workspace: &WorkspaceRow, ownership: NamespaceOwnership) -> Self {
        match ownership {
            NamespaceOwnership::Managed { uid } => Self::Managed(uid),
            NamespaceOwnership::Relabelled { .. } => Self::Relabelled,
            // A foreign namespace from before the workspace: the broker never created anything in
            // it.
            NamespaceOwnership::Foreign if !workspace.had_rights() => Self::Nothing,
            NamespaceOwnership::Foreign => Self::Foreign,
            NamespaceOwnership::Missing => Self::Nothing,
        }
    }

    /// Whether rights in it may have to be revoked.
    pub(super) fn may_have_rights(&self) -> bool {
        matches!(self, Self::Managed(_) | Self::Relabelled | Self::Unknown)
    }

    /// The result of a step that is skipped for this namespace.
    pub(super) fn skipped(&self, workspace: &WorkspaceRow) -> Result<(), WorkspaceError> {
        match self {
            Self::Foreign => Err(WorkspaceError::ForeignNamespace(workspace.k8s_namespace.clone())),
            _ => Ok(()),
        }
    }
}
