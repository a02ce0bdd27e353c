//! `POST /auth/register`

use poem::Request;
use poem_openapi::{ApiResponse, OpenApi, payload::Json};
use tenant_shared::{Code, RegisterRequest};

use super::error::AuthError;
use crate::{
    base::throttle::{self, RateLimit},
    http::ApiError,
    identity::{CreateUserError, PasswordError},
    issuer::Issuer,
};

/// `register`.
#[derive(Debug)]
pub struct Register {
    pub(super) issuer: Issuer,
}

/// Responses of `register`.
#[derive(ApiResponse)]
pub(crate) enum Registered {
    /// The account was created, or the address was taken; the response does not say which.
    #[oai(status = 202)]
    Accepted,
}

#[OpenApi(prefix_path = "/auth")]
impl Register {
    /// Create an account
    ///
    /// Creates an account, if the operator allows it (`issuer.registration`). The response is the
    /// same for an address that is taken, so that nobody learns who has an account; sign in
    /// afterwards.
    #[oai(path = "/register", method = "post", operation_id = "register")]
    async fn register(
        &self,
        request: &Request,
        body: Json<RegisterRequest>,
    ) -> Result<Registered, ApiError> {
        let issuer = &self.issuer;
        issuer.identity().origins().check_sender(request.method(), request.headers())?;
        if !issuer.settings().local_accounts {
            return Err(AuthError::PasswordsDisabled.into());
        }
        if !issuer.settings().registration {
            return Err(AuthError::RegistrationDisabled.into());
        }
        let _admitted = issuer.identity().limits().admit()?;
        let subject = throttle::client_key();
        let (clock, allowance) = (issuer.clock(), issuer.settings().register);
        // A refusal reads and does not write.
        let peeked =
            throttle::peek(issuer.db(), clock, RateLimit::Register, &subject, allowance).await?;
        peeked.map_err(AuthError::TooMany)?;
        let mut tx = issuer.db().begin().await?;
        let taken =
            throttle::consume(&mut tx, clock, RateLimit::Register, &subject, allowance).await?;
        tx.commit().await?;
        taken.map_err(AuthError::TooMany)?;
        let RegisterRequest { email, password } = body.0;
        match issuer.identity().register_user(&email, password.into()).await {
            // The password was hashed in both cases, so both take as long.
            Ok(_) | Err(CreateUserError::Exists(_)) => Ok(Registered::Accepted),
            Err(CreateUserError::Password(error @ PasswordError::Busy)) => {
                Err(AuthError::Unchecked(error).into())
            }
            Err(CreateUserError::Storage(error)) => Err(error.into()),
            Err(error) => Err(ApiError::new(Code::InvalidRequest, error.to_string())),
        }
    }
}
