//! Errors of the operations, as API errors.

use tenant_shared::Code;

use crate::{
    base::throttle::RateLimited, http::ApiError, identity::PasswordError, issuer::sign_in::WRONG,
};

/// A refused request to sign in or to create an account.
#[derive(Debug, thiserror::Error)]
pub(super) enum AuthError {
    /// `issuer.local_accounts` is off.
    #[error("passwords are not used here; sign in on the page /login instead")]
    PasswordsDisabled,
    /// `issuer.registration` is off.
    #[error("people cannot create accounts here; ask an administrator")]
    RegistrationDisabled,
    /// The e-mail address or the password is wrong.
    #[error("{WRONG}")]
    Wrong,
    /// Too many attempts came from this address or failed for this account.
    #[error("too many attempts; try again later")]
    TooMany(RateLimited),
    /// The password could not be checked.
    #[error(transparent)]
    Unchecked(#[from] PasswordError),
    /// The random number generator failed.
    #[error("the operating system gave no randomness")]
    NoRandomness,
}

impl From<AuthError> for ApiError {
    fn from(error: AuthError) -> Self {
        let text = error.to_string();
        match &error {
            AuthError::PasswordsDisabled | AuthError::RegistrationDisabled => {
                Self::new(Code::Forbidden, text)
            }
            AuthError::Wrong => Self::new(Code::Unauthenticated, text),
            AuthError::TooMany(limit) => {
                Self::new(Code::RateLimited, text).retry_after(limit.retry_after)
            }
            AuthError::Unchecked(PasswordError::Busy) => {
                Self::new(Code::RateLimited, text).retry_after(10)
            }
            AuthError::Unchecked(PasswordError::Length | PasswordError::Failed(_))
            | AuthError::NoRandomness => Self::internal(&error),
        }
    }
}
