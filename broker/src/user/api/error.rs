//! The API error of each error of the user service.

use tenant_shared::Code;

use crate::{http::ApiError, user::UserError};

impl From<UserError> for ApiError {
    fn from(error: UserError) -> Self {
        let code = match error {
            UserError::NotFound | UserError::NameNotFound => Code::NotFound,
            UserError::Yourself => Code::Forbidden,
            UserError::FormerAdministrator => Code::Unauthenticated,
            UserError::EmailTaken => Code::EmailTaken,
            UserError::Email(_) => Code::InvalidRequest,
            UserError::Access(error) => return error.into(),
            UserError::Workspace(error) => return error.into(),
            UserError::Storage(error) => return error.into(),
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{access::AccessError, workspace::WorkspaceError};

    #[test]
    fn a_caller_who_was_suspended_meanwhile_is_unauthenticated() {
        for error in [UserError::FormerAdministrator, WorkspaceError::NotActive.into()] {
            assert_eq!(ApiError::from(error).code(), Code::Unauthenticated);
        }
    }

    #[test]
    fn an_unknown_name_has_the_same_error_for_users_as_for_workspaces() {
        let user = ApiError::from(UserError::NameNotFound);
        let workspace = ApiError::from(AccessError::NameNotFound);
        assert_eq!((user.code(), user.detail()), (workspace.code(), workspace.detail()));
    }
}
