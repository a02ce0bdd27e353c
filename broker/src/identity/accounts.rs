//! Accounts with an e-mail address and a password: creation and password checks.

use secrecy::SecretString;
use tenant_shared::Role;
use uuid::Uuid;

use super::{
    Email, Identity, NotAnEmail,
    password::{self, PasswordError, PasswordSlot},
    users,
};
use crate::audit::{self, Action, Event};

/// A user cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum CreateUserError {
    /// The e-mail address is malformed.
    #[error(transparent)]
    Email(#[from] NotAnEmail),
    /// The password cannot be used.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// Another user has the e-mail address.
    #[error("a user with the e-mail address {0} exists already; choose another address")]
    Exists(Email),
    /// The database failed.
    #[error("the database failed, so no user was created; try again")]
    Storage(#[from] sqlx::Error),
}

/// Result of checking an e-mail address and a password.
#[derive(Debug)]
pub(crate) enum PasswordCheck {
    /// They are correct, and this user may sign in.
    Accepted(Uuid),
    /// They are refused. The client must not learn the reason.
    Refused {
        /// The user with this address, if there is one.
        user_id: Option<Uuid>,
        /// Reason for the audit trail.
        reason: &'static str,
    },
}

impl Identity {
    /// Creates a user for an operator, who vouches for the address, and records it in the audit
    /// trail, in one transaction. The address is stored in lower case.
    ///
    /// # Errors
    /// See [`CreateUserError`]; then no user was created.
    pub async fn create_user(
        &self,
        email: &str,
        password: SecretString,
        role: Role,
    ) -> Result<Uuid, CreateUserError> {
        self.insert_user(email, password, role, Some(users::EmailVerifier::Administrator)).await
    }

    /// Creates the account that a person registers, as [`Identity::create_user`] does. Nobody
    /// vouches for the address.
    ///
    /// # Errors
    /// See [`CreateUserError`]; then no user was created.
    pub async fn register_user(
        &self,
        email: &str,
        password: SecretString,
    ) -> Result<Uuid, CreateUserError> {
        self.insert_user(email, password, Role::User, None).await
    }

    async fn insert_user(
        &self,
        email: &str,
        password: SecretString,
        role: Role,
        email_verified_by: Option<users::EmailVerifier>,
    ) -> Result<Uuid, CreateUserError> {
        let email: Email = email.parse()?;
        let password_hash = self.passwords.hash(password).await?;
        let id = self.clock.random_id();
        let mut tx = self.db.begin().await?;
        let new = users::NewUser {
            id,
            email: email.as_str(),
            email_verified_by,
            password_hash: Some(&password_hash),
            role,
        };
        if !users::insert(&mut tx, &new, self.clock.now_ms()).await? {
            return Err(CreateUserError::Exists(email));
        }
        // The actor is not known here: the person, or an operator at the broker's own machine.
        let event = Event {
            reason: Some(format!("role {}", role.as_str())),
            ..Event::success(Action::CreateUser)
        }
        .to_user(id);
        audit::record(&mut tx, &self.clock, event).await?;
        tx.commit().await?;
        self.metrics.action(Action::CreateUser.as_str(), "success");
        Ok(id)
    }

    /// Waits for a slot to check a password.
    ///
    /// # Errors
    /// No slot became free in time.
    pub(crate) async fn acquire_password_slot(&self) -> Result<PasswordSlot, PasswordError> {
        self.passwords.acquire_slot().await
    }

    /// Checks an address and a password. The check takes as long for an unknown address as for a
    /// known one.
    ///
    /// # Errors
    /// The outer error: the database failed. The inner error: the password was not checked.
    pub(crate) async fn check_password(
        &self,
        slot: &PasswordSlot,
        email: &str,
        password: SecretString,
    ) -> sqlx::Result<Result<PasswordCheck, PasswordError>> {
        let known = match email.parse::<Email>() {
            Ok(email) => users::find_by_email(&self.db, email.as_str()).await?,
            Err(_) => None,
        };
        let (user, hash) = known.map_or((None, None), |(user, hash)| (Some(user), hash));
        let has_password = hash.is_some();
        let right = match password::verify(slot, password, hash).await {
            Ok(right) => right,
            Err(error) => return Ok(Err(error)),
        };
        let refused = |user_id, reason| PasswordCheck::Refused { user_id, reason };
        Ok(Ok(match user {
            None => refused(None, "no such account"),
            Some(user) if !has_password => refused(Some(user.id), "the account has no password"),
            Some(user) if !right => refused(Some(user.id), "wrong password"),
            Some(user) if !user.is_active() => refused(Some(user.id), "the account is suspended"),
            Some(user) => PasswordCheck::Accepted(user.id),
        }))
    }
}
