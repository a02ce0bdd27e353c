//! Who is calling: users with a password, sessions, and the access tokens that stand for them.
//!
//! A [`Caller`] is made here only, from an access token or a cookie that the database knows, so
//! holding one is evidence that somebody is signed in. Looking up a token reads and never writes.
//! A token that was not good a while ago is looked up within the limits of [`crate::rate_limit`] only.

mod api;
mod bearer;
mod browser;
mod email;
mod known;
mod origin;
mod password;
pub(crate) mod provider;
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
    clock::Clock,
    db::{Db, Tx},
    problem::{Failure, SIGN_IN, note},
    rate_limit::{self, RateLimits, TooMany},
    secret::{PlainSecret, SecretHash},
    telemetry::Metrics,
};

pub use api::IdentityApi;
pub(crate) use api::MOST_SESSIONS;
pub use bearer::{Bearer, WorkspaceBearer};
pub use browser::BrowserSessions;
pub use email::{Email, NotAnEmail};
pub use origin::Origins;
pub(crate) use password::Slot as PasswordSlot;
pub use password::{MOST_BYTES as PASSWORD_MOST_BYTES, PasswordError};
pub(crate) use session::{Which, ended_after};
pub(crate) use user::{ACTIVE, User, hold_active};

/// Users, sessions and access tokens. Clones share everything.
#[derive(Clone, Debug)]
pub struct Identity {
    db: Db,
    /// For looking up a secret that is not known.
    unauthenticated: Db,
    limits: RateLimits,
    known: known::KnownSecrets,
    clock: Clock,
    metrics: Metrics,
    passwords: password::Passwords,
    browser: BrowserSessions,
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
    last_used_at: i64,
    workspace_id: Option<Uuid>,
}

impl Caller {
    /// A person whom the look at their session let through.
    #[cfg(test)]
    pub(crate) fn of_test(clock: &Clock, user_id: Uuid, role: Role) -> Self {
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

    /// The one workspace that this session may use, if it is a machine's; it may do nothing else.
    pub fn only_workspace(&self) -> Option<Uuid> {
        self.workspace_id
    }

    /// Whether this session may know of a workspace of its user.
    pub fn may_know(&self, workspace: Uuid) -> bool {
        self.workspace_id.is_none_or(|only| only == workspace)
    }

    /// Whether the token is good for the gateway and nothing else.
    pub(crate) fn is_gateway_only(&self) -> bool {
        self.scope == GATEWAY_SCOPE
    }

    /// The caller, unless the token is for the gateway only.
    fn of_api(self) -> Result<Self, Failure> {
        if self.is_gateway_only() {
            return Err(Failure::new(
                Code::InsufficientScope,
                "this token is a kubeconfig's for the gateway, /clusters/…, and the broker's API does \
                 not take it; use `kubectl tenant`, or `kubectl proxy --append-server-path`",
            ));
        }
        Ok(self)
    }

    /// The caller, unless it is a machine.
    fn person(self) -> Result<Self, Failure> {
        match self.workspace_id {
            None => Ok(self),
            Some(_) => Err(Failure::new(
                Code::Forbidden,
                "this session is a machine's: it may use its workspace and nothing else",
            )),
        }
    }

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

/// What a request presents to show who sends it. It does not print.
#[derive(Clone, Debug)]
pub(crate) enum Presented {
    /// The header `Authorization`.
    AccessToken(PlainSecret),
    /// A browser's cookie, sent by a page that may.
    Cookie(PlainSecret),
}

impl Presented {
    /// What it is known by where it is remembered for a moment.
    pub(crate) fn hash(&self) -> SecretHash {
        match self {
            Self::AccessToken(secret) | Self::Cookie(secret) => secret.hash(),
        }
    }

    /// Whether a browser sent it by itself.
    pub(crate) fn is_cookie(&self) -> bool {
        matches!(self, Self::Cookie(_))
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

/// The answer to an unauthenticated request beyond the limits.
pub(crate) fn too_many(limit: TooMany) -> Failure {
    let text = "too many requests without a valid session come from this address, or from \
                everywhere; try again after the time in Retry-After";
    Failure::new(Code::RateLimited, text).retry_after(limit.retry_after)
}

fn stranger() -> Failure {
    Failure::new(Code::Unauthenticated, SIGN_IN)
}

impl Identity {
    /// Identity on this database, without a limit on unauthenticated requests.
    pub fn new(db: Db, clock: Clock, metrics: Metrics, browser: BrowserSessions) -> Self {
        Self {
            unauthenticated: db.clone(),
            limits: RateLimits::new(rate_limit::Settings::NONE, metrics.clone()),
            known: known::KnownSecrets::default(),
            db,
            clock,
            metrics,
            passwords: password::Passwords::new(),
            browser,
        }
    }

    /// The same with these limits on unauthenticated requests, which use this share of the database.
    #[must_use]
    pub fn limited(self, unauthenticated: Db, limits: RateLimits) -> Self {
        Self { unauthenticated, limits, ..self }
    }

    /// The same on another share of the database.
    #[must_use]
    pub fn on(&self, db: &Db) -> Self {
        Self { db: db.clone(), ..self.clone() }
    }

    /// The limits on unauthenticated requests.
    pub fn limits(&self) -> &RateLimits {
        &self.limits
    }

    /// What the sessions of browsers have in common.
    pub fn browser_sessions(&self) -> &BrowserSessions {
        &self.browser
    }

    /// The origins whose pages may act for a person with a cookie.
    pub fn origins(&self) -> &Origins {
        &self.browser.origins
    }

    /// Who presents this access token: one statement that reads.
    ///
    /// # Errors
    /// [`Code::Unauthenticated`] for a token that is unknown or expired, or whose session or user
    /// has come to an end; [`Code::StorageUnavailable`] if the database does not answer.
    ///
    /// [`Code::Forbidden`] for a machine, whose session is for one workspace;
    /// [`Code::InsufficientScope`] for a token that is for the gateway only.
    pub async fn caller(&self, presented: &str) -> Result<Caller, Failure> {
        let presented = Presented::AccessToken(PlainSecret::presented(presented));
        self.whose(&presented).await?.of_api()?.person()
    }

    /// Who sends this request: the bearer of an access token or, without one, a browser with a
    /// cookie.
    ///
    /// # Errors
    /// As [`Identity::caller`]; [`Code::ForeignOrigin`] for a browser that a foreign page made ask.
    pub async fn signed_in(&self, request: &Request) -> Result<Caller, Failure> {
        self.signed_in_for_workspace(request).await?.person()
    }

    /// The same, and a machine too: for operations on a workspace, which ask [`crate::access`].
    ///
    /// # Errors
    /// As [`Identity::signed_in`].
    pub async fn signed_in_for_workspace(&self, request: &Request) -> Result<Caller, Failure> {
        self.whose(&self.presented(request.method(), request.headers())?).await?.of_api()
    }

    /// What a request presents to show who sends it; nobody has looked yet whether it is good.
    ///
    /// # Errors
    /// Nothing is presented; a browser was made to ask by a foreign page.
    pub(crate) fn presented(
        &self,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Presented, Failure> {
        // A token that is worth nothing is not made good by a cookie beside it.
        if let Some(token) = access_token(headers) {
            return Ok(Presented::AccessToken(token));
        }
        let secret = self.browser.cookie.read(headers).ok_or_else(stranger)?;
        self.browser.origins.check(method, headers)?;
        Ok(Presented::Cookie(secret))
    }

    /// Whether a request presents a secret that stood for a live session a while ago. That proves
    /// nothing: it only decides whether the request is limited like that of an unknown client.
    pub(crate) fn presents_known_secret(&self, headers: &HeaderMap) -> bool {
        let presented = access_token(headers).or_else(|| self.browser.cookie.read(headers));
        presented.is_some_and(|secret| self.known.contains(secret.hash(), Instant::now()))
    }

    /// Who presents this, a person or a machine, with a token of any scope: for the gateway.
    ///
    /// # Errors
    /// As [`Identity::caller`], but for the last two.
    pub(crate) async fn whose(&self, presented: &Presented) -> Result<Caller, Failure> {
        match presented {
            Presented::AccessToken(token) => self.look_up(token, session::ACCESS_PREFIX).await,
            Presented::Cookie(secret) => self.browser_caller(secret).await,
        }
    }

    /// Whose browser holds this cookie, for pages that only show something.
    ///
    /// # Errors
    /// As [`Identity::signed_in`], without the question where the request came from.
    pub async fn page_visitor(&self, request: &Request) -> Result<Caller, Failure> {
        match self.browser.cookie.read(request.headers()) {
            Some(secret) => self.browser_caller(&secret).await,
            None => Err(stranger()),
        }
    }

    /// A browser's session lives on while it is used; that is written down once a minute.
    async fn browser_caller(&self, secret: &PlainSecret) -> Result<Caller, Failure> {
        let caller = self.look_up(secret, session::COOKIE_PREFIX).await?;
        let now = self.clock.now_ms();
        if caller.last_used_at + browser::USE_MS <= now {
            let idle_expires_at = now + i64::from(self.browser.idle_seconds) * 1000;
            let mut tx = self.db.begin().await?;
            session::slide(&mut tx, caller.session_id, now, idle_expires_at)
                .await?
                .ok_or_else(stranger)?;
            tx.commit().await?;
        }
        Ok(caller)
    }

    async fn look_up(&self, secret: &PlainSecret, prefix: &str) -> Result<Caller, Failure> {
        // What is not shaped like one of ours does not cost a statement.
        if !secret.expose().starts_with(prefix) {
            return Err(stranger());
        }
        let (hash, now) = (secret.hash(), self.clock.now_ms());
        let caller = if self.known.contains(hash, Instant::now()) {
            session::caller(&self.db, hash, now).await?
        } else {
            let admitted = self.limits.admit().map_err(too_many)?;
            let caller = session::caller(&self.unauthenticated, hash, now).await?;
            if caller.is_some() {
                admitted.authenticated();
            }
            caller
        };
        let Some(caller) = caller else {
            self.known.remove(hash);
            return Err(stranger());
        };
        self.known.insert(hash, Instant::now());
        note("user_id", caller.user_id);
        note("session_id", caller.session_id);
        Ok(caller)
    }

    /// The sessions that somebody ended after this time, in milliseconds since 1970.
    ///
    /// # Errors
    /// The database's.
    pub(crate) async fn ended_since(&self, since: i64) -> sqlx::Result<Vec<Uuid>> {
        session::ended_since(&self.db, since).await
    }

    /// Whether this session goes on: nobody ended it, and it has not expired.
    ///
    /// # Errors
    /// The database's.
    pub(crate) async fn is_alive(&self, session: Uuid) -> sqlx::Result<bool> {
        session::is_alive(&self.db, session, self.clock.now_ms()).await
    }

    /// Ends sessions of a user, on their own wish or on an administrator's; returns how many.
    ///
    /// # Errors
    /// The database's; then none was ended.
    pub(crate) async fn end_sessions(
        &self,
        by: &Caller,
        user_id: Uuid,
        which: Which,
    ) -> sqlx::Result<u32> {
        let why = if by.user_id == user_id { "signed out" } else { "ended by an administrator" };
        let mut tx = self.db.begin().await?;
        let now = self.clock.now_ms();
        let ended = session::end_of_user(&mut tx, user_id, which, now, why).await?;
        self.record_ended(&mut tx, user_id, &ended, why, by).await?;
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
        why: &str,
        by: &Caller,
    ) -> sqlx::Result<()> {
        for session_id in ended {
            let event = Event {
                user_id: Some(by.user_id),
                session_id: Some(by.session_id),
                reason: (by.user_id != user_id).then(|| why.to_owned()),
                ..Event::success(Action::SignOut)
            }
            .to_user(user_id)
            .to_session(*session_id);
            audit::record(tx, &self.clock, event).await?;
        }
        Ok(())
    }

    /// Ends all sessions of a user within a transaction that does more.
    ///
    /// # Errors
    /// The database's.
    pub(crate) async fn end_all_sessions(
        &self,
        tx: &mut Tx,
        by: &Caller,
        user_id: Uuid,
        why: &str,
    ) -> sqlx::Result<()> {
        let now = self.clock.now_ms();
        let ended = session::end_of_user(tx, user_id, Which::All, now, why).await?;
        self.record_ended(tx, user_id, &ended, why, by).await
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
        let new =
            user::New { id, email: email.as_str(), password_hash: Some(&password_hash), role };
        if !user::insert(&mut tx, &new, self.clock.now_ms()).await? {
            return Err(CreateUserError::Exists(email));
        }
        // Who made it is not known here: the person, or an operator at the broker's own machine.
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

    /// Waits until one more password may be checked.
    ///
    /// # Errors
    /// Too many are being checked.
    pub(crate) async fn password_slot(&self) -> Result<PasswordSlot, PasswordError> {
        self.passwords.slot().await
    }

    /// Checks an address and a password. It takes as long for an address that nobody has as for one
    /// that somebody has.
    ///
    /// # Errors
    /// The outer error is the database's, the inner one says that the password was not checked.
    pub(crate) async fn check_password(
        &self,
        slot: &PasswordSlot,
        email: &str,
        password: SecretString,
    ) -> sqlx::Result<Result<SignIn, PasswordError>> {
        let known = match email.parse::<Email>() {
            Ok(email) => user::by_email(&self.db, email.as_str()).await?,
            Err(_) => None,
        };
        let (user, hash) = known.map_or((None, None), |(user, hash)| (Some(user), hash));
        let has_password = hash.is_some();
        let right = match password::verify(slot, password, hash).await {
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
