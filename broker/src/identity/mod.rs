//! Authentication: users, passwords, sessions and access tokens.
//!
//! Only this module makes a [`Caller`], from an access token or a cookie that the database knows,
//! so a [`Caller`] is evidence of a valid session. The lookup of a token reads and never writes. A
//! token that was not valid recently is looked up only within the limits of [`crate::base::rate_limit`].

mod api;
mod browser;
mod email;
mod extractor;
mod origin;
mod password;
pub(crate) mod provider;
mod secret_cache;
pub(crate) mod session;
mod user;

use std::time::Instant;

use poem::{
    Request,
    http::{HeaderMap, Method, header},
};
use secrecy::SecretString;
use tenant_shared::{Code, GATEWAY_SCOPE, Role};
use uuid::Uuid;

use crate::{
    audit::{self, Action, Event},
    base::{
        clock::Clock,
        db::{Db, Tx},
        rate_limit::{self, RateLimited, RateLimiter},
        request_context::record_field,
        secret::{PlainSecret, SecretHash},
        telemetry::Metrics,
    },
    http::{ApiError, SIGN_IN},
};

pub use api::IdentityApi;
pub(crate) use api::MAX_SESSIONS;
pub use browser::BrowserSessions;
pub use email::{Email, NotAnEmail};
pub use extractor::{Authenticated, AuthenticatedForWorkspace};
pub use origin::Origins;
pub(crate) use password::Slot as PasswordSlot;
pub use password::{MAX_BYTES as MAX_PASSWORD_BYTES, PasswordError};
pub(crate) use session::{SessionSelector, ended_after};
pub(crate) use user::{ACTIVE, User, lock_if_active};

/// Users, sessions and access tokens. Clones share everything.
#[derive(Clone, Debug)]
pub struct Identity {
    db: Db,
    /// For the lookup of a secret that is not in the cache.
    unauthenticated: Db,
    limits: RateLimiter,
    secret_cache: secret_cache::SecretCache,
    clock: Clock,
    metrics: Metrics,
    passwords: password::Passwords,
    browser: BrowserSessions,
}

/// The authenticated caller of a request. Only [`Identity`] makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    user_id: Uuid,
    email: String,
    role: Role,
    session_id: Uuid,
    session_expires_at: i64,
    scope: String,
    last_used_at: i64,
    workspace_id: Option<Uuid>,
}

impl Caller {
    /// A caller whose session is not looked up.
    #[cfg(test)]
    pub(crate) fn for_tests(clock: &Clock, user_id: Uuid, role: Role) -> Self {
        Self {
            user_id,
            email: format!("{user_id}@example.com"),
            role,
            session_id: clock.random_id(),
            session_expires_at: i64::MAX,
            scope: String::new(),
            last_used_at: clock.now_ms(),
            workspace_id: None,
        }
    }

    /// The only workspace that this session may use, if it is a machine's; it may do nothing else.
    pub fn only_workspace(&self) -> Option<Uuid> {
        self.workspace_id
    }

    /// Whether the session's scope includes this workspace of its user: a machine's session is
    /// restricted to one workspace, a user's is not.
    pub fn is_scoped_to(&self, workspace: Uuid) -> bool {
        self.workspace_id.is_none_or(|only| only == workspace)
    }

    /// Whether the token is valid for the gateway and nothing else.
    pub(crate) fn is_gateway_only(&self) -> bool {
        self.scope == GATEWAY_SCOPE
    }

    /// Refuses a token that is for the gateway only.
    fn require_api_scope(self) -> Result<Self, ApiError> {
        if self.is_gateway_only() {
            return Err(ApiError::new(
                Code::InsufficientScope,
                "this token is a kubeconfig's for the gateway, /clusters/…, and the broker's API does \
                 not take it; use `kubectl tenant`, or `kubectl proxy --append-server-path`",
            ));
        }
        Ok(self)
    }

    /// Refuses a machine.
    fn require_user(self) -> Result<Self, ApiError> {
        match self.workspace_id {
            None => Ok(self),
            Some(_) => Err(ApiError::new(
                Code::Forbidden,
                "this session is a machine's: it may use its workspace and nothing else",
            )),
        }
    }

    /// Identifier of the user.
    pub fn user_id(&self) -> Uuid {
        self.user_id
    }

    /// E-mail address of the user.
    pub fn email(&self) -> &str {
        &self.email
    }

    /// Role of the user; always [`Role::User`] for a machine.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Identifier of the session.
    pub fn session_id(&self) -> Uuid {
        self.session_id
    }

    /// Absolute end of the session, which use does not extend.
    pub fn session_expires_at(&self) -> jiff::Timestamp {
        crate::base::clock::timestamp(self.session_expires_at)
    }

    /// Whether the session was granted this scope (RFC 6749 section 3.3).
    pub(crate) fn has_scope(&self, name: &str) -> bool {
        session::contains_scope(&self.scope, name)
    }
}

/// The credential that a request presents, not yet verified. Its secret is not printed.
#[derive(Clone, Debug)]
pub(crate) enum PresentedCredential {
    /// The bearer token of the header `Authorization`.
    AccessToken(PlainSecret),
    /// A browser's session cookie; the origin of the request is checked.
    Cookie(PlainSecret),
}

impl PresentedCredential {
    /// Hash of the secret, for use as a cache key.
    pub(crate) fn hash(&self) -> SecretHash {
        match self {
            Self::AccessToken(secret) | Self::Cookie(secret) => secret.hash(),
        }
    }

    /// Whether it is a cookie, which a browser sends by itself.
    pub(crate) fn is_cookie(&self) -> bool {
        matches!(self, Self::Cookie(_))
    }
}

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
    /// They are correct, and the user may sign in.
    Accepted(User),
    /// They are refused. The client must not learn the reason.
    Refused {
        /// The user with this address, if there is one.
        user_id: Option<Uuid>,
        /// Reason for the audit trail.
        reason: &'static str,
    },
}

/// The bearer token of a request; empty if the header has another scheme.
fn access_token(headers: &HeaderMap) -> Option<PlainSecret> {
    let value = headers.get(header::AUTHORIZATION)?;
    let token = value
        .to_str()
        .ok()
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim());
    Some(PlainSecret::presented(token.unwrap_or_default()))
}

/// The error for an unauthenticated request that exceeds the rate limits.
pub(crate) fn too_many(limit: RateLimited) -> ApiError {
    let text = "too many requests without a valid session come from this address, or from \
                everywhere; try again after the time in Retry-After";
    ApiError::new(Code::RateLimited, text).retry_after(limit.retry_after)
}

fn unauthenticated() -> ApiError {
    ApiError::new(Code::Unauthenticated, SIGN_IN)
}

impl Identity {
    /// Identity on this database, without a limit on unauthenticated requests.
    pub fn new(db: Db, clock: Clock, metrics: Metrics, browser: BrowserSessions) -> Self {
        Self {
            unauthenticated: db.clone(),
            limits: RateLimiter::new(rate_limit::RateLimitSettings::NONE, metrics.clone()),
            secret_cache: secret_cache::SecretCache::default(),
            db,
            clock,
            metrics,
            passwords: password::Passwords::new(),
            browser,
        }
    }

    /// Sets the limits on unauthenticated requests, and the share of the database that these use.
    #[must_use]
    pub fn with_limits(self, unauthenticated: Db, limits: RateLimiter) -> Self {
        Self { unauthenticated, limits, ..self }
    }

    /// A clone that uses another share of the database.
    #[must_use]
    pub fn with_db(&self, db: &Db) -> Self {
        Self { db: db.clone(), ..self.clone() }
    }

    /// The limits on unauthenticated requests.
    pub fn limits(&self) -> &RateLimiter {
        &self.limits
    }

    /// Settings of browser sessions.
    pub fn browser_sessions(&self) -> &BrowserSessions {
        &self.browser
    }

    /// The origins whose pages may use the session cookie.
    pub fn origins(&self) -> &Origins {
        &self.browser.origins
    }

    /// Authenticates the user of an access token, with one reading statement.
    ///
    /// # Errors
    /// [`Code::Unauthenticated`] for a token that is unknown or expired, or whose session or user
    /// has come to an end; [`Code::StorageUnavailable`] if the database does not answer.
    ///
    /// [`Code::Forbidden`] for a machine, whose session is for one workspace;
    /// [`Code::InsufficientScope`] for a token that is for the gateway only.
    pub async fn authenticate_access_token(&self, token: &str) -> Result<Caller, ApiError> {
        let credential = PresentedCredential::AccessToken(PlainSecret::presented(token));
        self.authenticate(&credential).await?.require_api_scope()?.require_user()
    }

    /// Authenticates the user who sends this request, by access token or, without one, by cookie.
    ///
    /// # Errors
    /// As [`Identity::authenticate_access_token`]; [`Code::ForeignOrigin`] for a request that a
    /// foreign page caused.
    pub async fn authenticate_user(&self, request: &Request) -> Result<Caller, ApiError> {
        self.authenticate_for_workspace(request).await?.require_user()
    }

    /// Authenticates the user or machine who sends this request, for operations on a workspace,
    /// which ask [`crate::access`].
    ///
    /// # Errors
    /// As [`Identity::authenticate_user`].
    pub async fn authenticate_for_workspace(&self, request: &Request) -> Result<Caller, ApiError> {
        self.authenticate(&self.extract(request.method(), request.headers())?)
            .await?
            .require_api_scope()
    }

    /// Extracts the credential of a request, without verifying it.
    ///
    /// # Errors
    /// The request has no credential; a foreign page caused it.
    pub(crate) fn extract(
        &self,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<PresentedCredential, ApiError> {
        // If there is a token, a cookie is not considered, even if the token is invalid.
        if let Some(token) = access_token(headers) {
            return Ok(PresentedCredential::AccessToken(token));
        }
        let secret = self.browser.cookie.read(headers).ok_or_else(unauthenticated)?;
        self.browser.origins.check(method, headers)?;
        Ok(PresentedCredential::Cookie(secret))
    }

    /// Whether a request presents a secret that was valid recently. That authenticates nobody: it
    /// only decides whether the rate limits on unauthenticated requests apply.
    pub(crate) fn presents_cached_secret(&self, headers: &HeaderMap) -> bool {
        let presented = access_token(headers).or_else(|| self.browser.cookie.read(headers));
        presented.is_some_and(|secret| self.secret_cache.contains(secret.hash(), Instant::now()))
    }

    /// Authenticates the user or machine of a credential, with a token of any scope, for the
    /// gateway.
    ///
    /// # Errors
    /// As [`Identity::authenticate_access_token`], without the last two.
    pub(crate) async fn authenticate(
        &self,
        credential: &PresentedCredential,
    ) -> Result<Caller, ApiError> {
        match credential {
            PresentedCredential::AccessToken(token) => {
                self.look_up(token, session::ACCESS_PREFIX).await
            }
            PresentedCredential::Cookie(secret) => self.browser_caller(secret).await,
        }
    }

    /// Authenticates the user of a browser's cookie without an origin check, for pages that change
    /// nothing.
    ///
    /// # Errors
    /// As [`Identity::authenticate_user`], without [`Code::ForeignOrigin`].
    pub async fn authenticate_page(&self, request: &Request) -> Result<Caller, ApiError> {
        match self.browser.cookie.read(request.headers()) {
            Some(secret) => self.browser_caller(&secret).await,
            None => Err(unauthenticated()),
        }
    }

    /// Finds the caller of a session cookie. The use of the session is recorded, and its idle
    /// timeout extended, once a minute at most.
    async fn browser_caller(&self, secret: &PlainSecret) -> Result<Caller, ApiError> {
        let caller = self.look_up(secret, session::COOKIE_PREFIX).await?;
        let now = self.clock.now_ms();
        if caller.last_used_at + browser::USE_INTERVAL_MS <= now {
            let idle_expires_at = now + i64::from(self.browser.idle_seconds) * 1000;
            let mut tx = self.db.begin().await?;
            session::slide(&mut tx, caller.session_id, now, idle_expires_at)
                .await?
                .ok_or_else(unauthenticated)?;
            tx.commit().await?;
        }
        Ok(caller)
    }

    async fn look_up(&self, secret: &PlainSecret, prefix: &str) -> Result<Caller, ApiError> {
        // A secret without the broker's prefix does not cost a statement.
        if !secret.expose().starts_with(prefix) {
            return Err(unauthenticated());
        }
        let (hash, now) = (secret.hash(), self.clock.now_ms());
        let caller = if self.secret_cache.contains(hash, Instant::now()) {
            session::find_caller(&self.db, hash, now).await?
        } else {
            let admitted = self.limits.admit().map_err(too_many)?;
            let caller = session::find_caller(&self.unauthenticated, hash, now).await?;
            if caller.is_some() {
                admitted.authenticated();
            }
            caller
        };
        let Some(caller) = caller else {
            self.secret_cache.remove(hash);
            return Err(unauthenticated());
        };
        self.secret_cache.insert(hash, Instant::now());
        record_field("user_id", caller.user_id);
        record_field("session_id", caller.session_id);
        Ok(caller)
    }

    /// Lists the sessions that somebody ended after this time, in milliseconds since 1970.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn ended_since(&self, since: i64) -> sqlx::Result<Vec<Uuid>> {
        session::ended_since(&self.db, since).await
    }

    /// Whether this session is valid: nobody ended it, and it has not expired.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn is_alive(&self, session: Uuid) -> sqlx::Result<bool> {
        session::is_alive(&self.db, session, self.clock.now_ms()).await
    }

    /// Ends sessions of a user, requested by the user or by an administrator; returns their number.
    ///
    /// # Errors
    /// The database failed; then no session was ended.
    pub(crate) async fn end_sessions(
        &self,
        by: &Caller,
        user_id: Uuid,
        selector: SessionSelector,
    ) -> sqlx::Result<u32> {
        let reason = if by.user_id == user_id { "signed out" } else { "ended by an administrator" };
        let mut tx = self.db.begin().await?;
        let now = self.clock.now_ms();
        let ended = session::end_for_user(&mut tx, user_id, selector, now, reason).await?;
        self.record_ended(&mut tx, user_id, &ended, reason, by).await?;
        tx.commit().await?;
        for _ in &ended {
            self.metrics.action(Action::SignOut, "success");
        }
        Ok(u32::try_from(ended.len()).unwrap_or(u32::MAX))
    }

    async fn record_ended(
        &self,
        tx: &mut Tx,
        user_id: Uuid,
        ended: &[Uuid],
        reason: &str,
        by: &Caller,
    ) -> sqlx::Result<()> {
        for session_id in ended {
            let event = Event {
                user_id: Some(by.user_id),
                session_id: Some(by.session_id),
                reason: (by.user_id != user_id).then(|| reason.to_owned()),
                ..Event::success(Action::SignOut)
            }
            .to_user(user_id)
            .to_session(*session_id);
            audit::record(tx, &self.clock, event).await?;
        }
        Ok(())
    }

    /// Ends all sessions of a user as part of the caller's transaction.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn end_all_sessions(
        &self,
        tx: &mut Tx,
        by: &Caller,
        user_id: Uuid,
        reason: &str,
    ) -> sqlx::Result<()> {
        let now = self.clock.now_ms();
        let ended = session::end_for_user(tx, user_id, SessionSelector::All, now, reason).await?;
        self.record_ended(tx, user_id, &ended, reason, by).await
    }

    /// Creates a user and records it in the audit trail, in one transaction. The address is stored
    /// in lower case.
    ///
    /// # Errors
    /// See [`CreateUserError`]; then no user was created.
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
        let new =
            user::NewUser { id, email: email.as_str(), password_hash: Some(&password_hash), role };
        if !user::insert(&mut tx, &new, self.clock.now_ms()).await? {
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
        self.metrics.action(Action::CreateUser, "success");
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
            Ok(email) => user::find_by_email(&self.db, email.as_str()).await?,
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
            Some(user) => PasswordCheck::Accepted(user),
        }))
    }
}
