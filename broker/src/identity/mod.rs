//! Authentication: users, passwords, sessions and access tokens.
//!
//! Only this module makes a [`Caller`], from an access token or a cookie that the database knows,
//! so a [`Caller`] is evidence of a valid session. The lookup of a token reads and never writes. A
//! token that was not valid recently is looked up only within the limits of
//! [`crate::base::rate_limit`].
//!
//! | file | responsibility |
//! |---|---|
//! | `authenticate`, `presented_credential`, `secret_cache` | requests: credentials, callers and rate limits |
//! | `caller`, `error` | the authenticated caller, and the reasons why there is none |
//! | `accounts`, `password`, `email` | accounts with an e-mail address and a password |
//! | `upstream` | identities at upstream providers |
//! | `rbac_user` | user name and groups of a person in Kubernetes |
//! | `users`, `sessions` | the tables `users`, `sessions` and `access_tokens` |
//! | `browser`, `host_cookie`, `origin` | browser sessions: their cookie, and the pages that may use it |
//! | `api` | the HTTP API of the caller's own account |

mod accounts;
pub mod api;
mod authenticate;
mod browser;
mod caller;
mod email;
mod error;
mod host_cookie;
mod origin;
mod password;
mod presented_credential;
mod rbac_user;
mod secret_cache;
pub(crate) mod sessions;
mod upstream;
pub(crate) mod users;

pub use self::{
    accounts::CreateUserError,
    browser::BrowserSessions,
    caller::Caller,
    email::{Email, NotAnEmail},
    error::{AuthenticationError, SIGN_IN},
    host_cookie::HostCookie,
    origin::Origins,
    password::{MAX_BYTES as MAX_PASSWORD_BYTES, PasswordError},
    rbac_user::{
        Groups, GroupsError, MAX_GIVEN_GROUPS, MAX_GROUPS, RbacUser, RbacUserRules,
        RbacUserRulesError, UserNameSource, rbac_users, rbac_users_changed_since,
    },
};
pub(crate) use self::{
    accounts::PasswordCheck,
    password::PasswordSlot,
    presented_credential::PresentedCredential,
    rbac_user::{GivenGroups, TooManyGroups, give_groups, groups_of_user, is_subject_name},
    sessions::{MAX_SESSIONS, SessionSelector},
    upstream::{AdmittedUser, NotAdmitted, UpstreamClaims, UpstreamIdentity, placeholder_email},
    users::lock_if_active,
};

use self::{password::Passwords, secret_cache::SecretCache};
use crate::base::{
    clock::Clock,
    db::Db,
    rate_limit::{RateLimitSettings, RateLimiter},
    telemetry::Metrics,
};

/// Users, sessions and access tokens. Clones share everything.
#[derive(Clone, Debug)]
pub struct Identity {
    db: Db,
    /// For the lookup of a secret that is not in the cache.
    unauthenticated: Db,
    limits: RateLimiter,
    secret_cache: SecretCache,
    clock: Clock,
    metrics: Metrics,
    passwords: Passwords,
    browser: BrowserSessions,
}

impl Identity {
    /// Identity on this database, without a limit on unauthenticated requests.
    pub fn new(db: Db, clock: Clock, metrics: Metrics, browser: BrowserSessions) -> Self {
        Self {
            unauthenticated: db.clone(),
            limits: RateLimiter::new(RateLimitSettings::NONE, metrics.clone()),
            secret_cache: SecretCache::default(),
            db,
            clock,
            metrics,
            passwords: Passwords::new(),
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
}
