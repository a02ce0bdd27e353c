//! The API error of each error of a workspace operation.

use tenant_shared::Code;

use crate::{base::rate_limit::RateLimited, http::ApiError, workspace::WorkspaceError};

impl From<WorkspaceError> for ApiError {
    fn from(error: WorkspaceError) -> Self {
        let text = error.to_string();
        match error {
            WorkspaceError::UnknownTier { .. } => Self::new(Code::UnknownTier, text),
            WorkspaceError::OtherTier(_) => Self::new(Code::TierConflict, text),
            WorkspaceError::NotActive => Self::new(Code::Unauthenticated, text),
            WorkspaceError::TooMany(RateLimited { retry_after }) => {
                Self::new(Code::RateLimited, text).retry_after(retry_after)
            }
            WorkspaceError::Suspended | WorkspaceError::TenantNotActive(_) => {
                Self::new(Code::WorkspaceSuspended, text)
            }
            WorkspaceError::NotReady(_) | WorkspaceError::NotMember(_) => {
                Self::new(Code::WorkspaceNotReady, text)
            }
            WorkspaceError::StreamsOpen(_)
            | WorkspaceError::Rotating
            | WorkspaceError::NoHome(_) => Self::new(Code::WorkspaceNotReady, text).retry_after(1),
            WorkspaceError::TooEarly(seconds) => {
                Self::new(Code::WorkspaceNotReady, text).retry_after(seconds)
            }
            WorkspaceError::OwnerSuspended(_) => Self::new(Code::OwnerSuspended, text),
            WorkspaceError::Conflict(_)
            | WorkspaceError::Relabelled { .. }
            | WorkspaceError::ForeignNamespace(_) => Self::new(Code::NamespaceConflict, text),
            WorkspaceError::TimedOut(_) | WorkspaceError::Interrupted => {
                Self::new(Code::ClusterUnavailable, text)
            }
            WorkspaceError::Access(error) => error.into(),
            WorkspaceError::Cluster(error) => error.into(),
            WorkspaceError::Storage(error) => error.into(),
        }
    }
}
