//! Who is calling: users with a password, sessions, and the access tokens that stand for them.
//!
//! A [`Caller`] is made here only, from an access token that the database knows, so holding one is
//! evidence that somebody is signed in. Looking it up reads and never writes.

mod api;
mod bearer;
mod email;
mod password;
pub(crate) mod session;
mod user;

use secrecy::SecretString;
use tenant_shared::{Code, Role};
use uuid::Uuid;

use crate::{
    audit::{self, Action, Event},
    clock::Clock,
    db::Db,
    problem::{Failure, SIGN_IN, note},
    secret::PlainSecret,
    telemetry::Metrics,
};

pub use api::IdentityApi;
pub use bearer::Bearer;
pub use email::{Email, NotAnEmail};
pub use password::{MOST_BYTES as PASSWORD_MOST_BYTES, PasswordError};
pub(crate) use user::User;

/// Users, sessions and access tokens. Clones share everything.
#[derive(Clone, Debug)]
pub struct Identity {
    db: Db,
    clock: Clock,
    metrics: Metrics,
    passwords: password::Passwords,
}

/// Somebody who is signed in. Only [`Identity::caller`] makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    user_id: Uuid,
    email: String,
    role: Role,
    session_id: Uuid,
    session_expires_at: i64,
    scope: String,
}

impl Caller {
    /// The user.
    pub fn user_id(&self) -> Uuid {
        self.user_id
    }

    /// The e-mail address that they sign in with.
    pub fn email(&self) -> &str {
        &self.email
    }

    /// What they may do beyond their own workspace.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The session that their token belongs to.
    pub fn session_id(&self) -> Uuid {
        self.session_id
    }

    /// When that session ends at the latest, however often it is used.
    pub fn session_expires_at(&self) -> jiff::Timestamp {
        crate::clock::timestamp(self.session_expires_at)
    }

    /// Whether the session was granted this scope (RFC 6749 section 3.3).
    pub(crate) fn has_scope(&self, name: &str) -> bool {
        session::contains_scope(&self.scope, name)
    }
}

/// A user cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateUserError {
    /// The address.
    #[error(transparent)]
    Email(#[from] NotAnEmail),
    /// The password.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// The address is taken.
    #[error("a user with the e-mail address {0} exists already; choose another address")]
    Exists(Email),
    /// The database.
    #[error("the database failed, so no user was made; try again")]
    Storage(#[from] sqlx::Error),
}

/// What came of an e-mail address and a password.
#[derive(Debug)]
pub(crate) enum SignIn {
    /// They are a user's, and the user may sign in.
    Accepted(User),
    /// They are not. Whoever typed them must not learn which of these it was.
    Refused {
        /// The user that the address belongs to.
        user_id: Option<Uuid>,
        /// Why, for the audit trail.
        why: &'static str,
    },
}

impl Identity {
    /// Identity on this database.
    pub fn new(db: Db, clock: Clock, metrics: Metrics) -> Self {
        Self { db, clock, metrics, passwords: password::Passwords::new() }
    }

    /// Who presents this access token: one statement that reads.
    ///
    /// # Errors
    /// [`Code::Unauthenticated`] for a token that is unknown or expired, or whose session or user
    /// has come to an end; [`Code::StorageUnavailable`] if the database does not answer.
    pub async fn caller(&self, presented: &str) -> Result<Caller, Failure> {
        let stranger = || Failure::new(Code::Unauthenticated, SIGN_IN);
        // What is not shaped like one of ours does not cost a statement.
        if !presented.starts_with(session::ACCESS_PREFIX) {
            return Err(stranger());
        }
        let hash = PlainSecret::presented(presented).hash();
        let caller = session::caller(&self.db, hash, self.clock.now_ms()).await?;
        let caller = caller.ok_or_else(stranger)?;
        note("user_id", caller.user_id);
        note("session_id", caller.session_id);
        Ok(caller)
    }

    /// Makes a user and records it, both or neither. The address is kept in lower case.
    ///
    /// # Errors
    /// See [`CreateUserError`]; nothing was made then.
    pub async fn create_user(
        &self,
        email: &str,
        password: SecretString,
        role: Role,
    ) -> Result<Uuid, CreateUserError> {
        let email: Email = email.parse()?;
        let password_hash = self.passwords.hash(password).await?;
        let id = self.clock.random_id();
        let mut tx = self.db.begin().await?;
        let new = user::New { id, email: email.as_str(), password_hash: &password_hash, role };
        if !user::insert(&mut tx, &new, self.clock.now_ms()).await? {
            return Err(CreateUserError::Exists(email));
        }
        let event = Event {
            user_id: Some(id),
            reason: Some(format!("role {}", role.as_str())),
            ..Event::success(Action::CreateUser)
        };
        audit::record(&mut tx, &self.clock, event).await?;
        tx.commit().await?;
        self.metrics.action(Action::CreateUser, "success");
        Ok(id)
    }

    /// Checks an address and a password. It takes as long for an address that nobody has as for one
    /// that somebody has.
    ///
    /// # Errors
    /// The outer error is the database's, the inner one says that the password was not checked.
    pub(crate) async fn check_password(
        &self,
        email: &str,
        password: SecretString,
    ) -> sqlx::Result<Result<SignIn, PasswordError>> {
        let known = match email.parse::<Email>() {
            Ok(email) => user::by_email(&self.db, email.as_str()).await?,
            Err(_) => None,
        };
        let (user, hash) = known.map_or((None, None), |(user, hash)| (Some(user), hash));
        let has_password = hash.is_some();
        let right = match self.passwords.verify(password, hash).await {
            Ok(right) => right,
            Err(error) => return Ok(Err(error)),
        };
        let refused = |user_id, why| SignIn::Refused { user_id, why };
        Ok(Ok(match user {
            None => refused(None, "no such account"),
            Some(user) if !has_password => refused(Some(user.id), "the account has no password"),
            Some(user) if !right => refused(Some(user.id), "wrong password"),
            Some(user) if !user.is_active() => refused(Some(user.id), "the account is suspended"),
            Some(user) => SignIn::Accepted(user),
        }))
    }
}
