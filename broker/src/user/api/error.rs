//! The API error of each error of the user service.

use tenant_shared::Code;

use crate::{http::ApiError, user::UserError};

impl From<UserError> for ApiError {
    fn from(error: UserError) -> Self {
        let code = match error {
            UserError::NotFound => Code::NotFound,
            UserError::Yourself => Code::Forbidden,
            UserError::FormerAdministrator => Code::Unauthenticated,
            UserError::EmailTaken => Code::EmailTaken,
            UserError::GroupsOfProvider => Code::ProviderDecides,
            UserError::Email(_) | UserError::NoGroups | UserError::Groups(_) => {
                Code::InvalidRequest
            }
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
    use crate::workspace::WorkspaceError;

    #[test]
    fn a_caller_who_was_suspended_meanwhile_is_unauthenticated() {
        for error in [UserError::FormerAdministrator, WorkspaceError::NotActive.into()] {
            assert_eq!(ApiError::from(error).code(), Code::Unauthenticated);
        }
    }
}
