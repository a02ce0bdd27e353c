//! The API error of each error of credentials.

use tenant_shared::Code;

use crate::{
    base::request_context::{Field, record_field},
    credential::{IssueError, NotRecorded, RevokeError},
    http::ApiError,
    workspace::WorkspaceError,
};

impl From<IssueError> for ApiError {
    fn from(error: IssueError) -> Self {
        match error {
            IssueError::Workspace(error) => error.into(),
            IssueError::Cluster(error) => error.into(),
            IssueError::Ledger(NotRecorded::Changed) => WorkspaceError::Rotating.into(),
            IssueError::Ledger(error @ NotRecorded::Failed) => {
                record_field(Field::Cause, error.to_string());
                Self::new(
                    Code::StorageUnavailable,
                    "the issuance could not be recorded, so the token was dropped; try again",
                )
            }
        }
    }
}

impl From<RevokeError> for ApiError {
    fn from(error: RevokeError) -> Self {
        match error {
            RevokeError::Unknown => Self::new(
                Code::NotFound,
                "the workspace has no such credential; `kubectl tenant credentials list --all` \
                 lists them",
            ),
            RevokeError::Storage(error) => error.into(),
        }
    }
}
