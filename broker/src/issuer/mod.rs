//! The embedded OpenID provider: people sign in here with e-mail address and password.
//!
//! One public client, the plugin; authorization code with PKCE (S256 only); rotating refresh tokens;
//! access tokens that mean nothing outside of the database, so that ending a session ends them at
//! once. The design follows OAuth 2.0 Security Best Current Practice (RFC 9700).
//!
//! | what a client or browser holds | prefix | the database keeps |
//! |---|---|---|
//! | access token | `tba_` | SHA-256, end |
//! | refresh token | `tbr_` | SHA-256, when it was used |
//! | authorization code | `tbc_` | SHA-256, end, when it was redeemed |
//! | handle of an authorization request | `tbq_` | SHA-256 |
//! | cookie of an authorization request | `tbb_` | SHA-256 |
//! | device code | `tbd_` | SHA-256, end, when it was redeemed |
//! | user code of a device | eight letters | SHA-256, end |
//! | cookie of a browser that signed in before | `tbk_` | SHA-256, end |
//! | cookie of a browser's session | `tbs_` | SHA-256, end |
//! | state of a sign-in at a provider | `tbu_` | SHA-256, end |
//!
//! People may sign in at an upstream provider instead of with a password ([`connector`]), machines
//! exchange tokens of other issuers ([`exchange`]).

mod accept;
mod api;
mod attempt;
mod authorization;
mod authorize;
mod begin;
mod browser;
mod code;
pub mod connector;
mod device;
mod discovery;
pub mod exchange;
mod id_token;
pub mod keys;
mod known;
mod login;
mod pages;
mod parameters;
mod redirect;
mod refresh;
mod revoke;
mod seal;
mod target;
mod token;
mod trust;
mod userinfo;
mod waiting;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use poem::{Endpoint, Request, Response, Route, endpoint::make, get, post};
use url::Url;

pub use self::{api::AuthApi, trust::HttpError};
use self::{
    connector::{ConnectorSettings, Connectors, grant},
    exchange::{WorkloadSettings, Workloads},
    keys::{KeyError, SigningKeys},
};
use crate::{
    clock::Clock,
    db::Db,
    identity::{Identity, session},
    rate_limit::TooMany,
    telemetry::Metrics,
    throttle::{self, Allowance},
};

/// How long what is over is kept, so that using it again is still recognized.
const KEPT_MS: i64 = 24 * 60 * 60 * 1000;

/// How long sessions that are over are kept: the audit trail names them.
const SESSIONS_KEPT_MS: i64 = 30 * KEPT_MS;

/// How the issuer behaves.
#[derive(Clone, Debug)]
pub struct IssuerSettings {
    /// The issuer, and where browsers and clients reach it: scheme, host and port, no path.
    pub public_url: Url,
    /// PEM files with EC P-256 keys; the first signs, all are published.
    pub signing_key_files: Vec<PathBuf>,
    /// How long an access token works.
    pub access_token_seconds: u32,
    /// How long an ID token is valid.
    pub id_token_seconds: u32,
    /// How long a session lives without a refresh.
    pub session_idle_seconds: u32,
    /// How long a session lives at most, counted from the sign-in.
    pub session_max_seconds: u32,
    /// How long after its use a refresh token may be used again.
    pub refresh_grace_seconds: u32,
    /// How long a person may take to sign in.
    pub authorization_seconds: u32,
    /// Failed sign-ins of one account from one address, or from one browser that it used before.
    pub sign_in_account: Allowance,
    /// Failed sign-ins from one address.
    pub sign_in_address: Allowance,
    /// Failed sign-ins of one account from everywhere.
    pub sign_in_everywhere: Allowance,
    /// Sign-ins begun from one address.
    pub sign_in_start: Allowance,
    /// Device codes for one address.
    pub device_start: Allowance,
    /// Wrong user codes from one address.
    pub user_code: Allowance,
    /// Accounts that people make for themselves from one address.
    pub register: Allowance,
    /// Whether they may.
    pub registration: bool,
    /// Whether people may sign in with e-mail address and password.
    pub local_accounts: bool,
    /// Upstream providers, by name.
    pub connectors: BTreeMap<String, ConnectorSettings>,
    /// Issuers of machines' tokens, by name.
    pub workloads: BTreeMap<String, WorkloadSettings>,
    /// Token exchanges from one address.
    pub exchange: Allowance,
}

/// The issuer cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its address.
    #[error(
        "{0} cannot be an issuer: public_url is http or https with a host, and has no path, query, \
         fragment or user"
    )]
    PublicUrl(Url),
    /// Its keys.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// How another issuer is reached.
    #[error("connectors or workloads: {0}")]
    Http(#[from] HttpError),
}

/// The issuer. Clones share everything.
#[derive(Clone, Debug)]
pub struct Issuer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: IssuerSettings,
    name: String,
    keys: SigningKeys,
    connectors: Connectors,
    workloads: Workloads,
    db: Db,
    clock: Clock,
    identity: Identity,
    metrics: Metrics,
}

impl Issuer {
    /// Loads the keys; answers nothing yet, see [`routes`].
    ///
    /// # Errors
    /// An address that cannot be an issuer; a key that cannot be used.
    pub fn start(
        settings: IssuerSettings,
        db: Db,
        clock: Clock,
        identity: Identity,
        metrics: Metrics,
    ) -> Result<Self, StartError> {
        let name = issuer_name(&settings.public_url)
            .ok_or_else(|| StartError::PublicUrl(settings.public_url.clone()))?;
        let keys = SigningKeys::load(&settings.signing_key_files)?;
        let connectors = Connectors::new(&settings.connectors, &name, &clock)?;
        let workloads = Workloads::new(&settings.workloads, &clock)?;
        let inner =
            Inner { settings, name, keys, connectors, workloads, db, clock, identity, metrics };
        Ok(Self(Arc::new(inner)))
    }

    /// Asks the providers about the sessions of browsers that are due. Several replicas may do it
    /// at once.
    ///
    /// # Errors
    /// The database's; the next call goes on.
    pub async fn check_browsers(&self) -> sqlx::Result<()> {
        connector::browsers::check(self).await
    }

    /// Forgets what is over: authorization requests, access tokens, refresh tokens of sessions that
    /// ended more than a day ago, limits whose window has passed. Several replicas may do it at once.
    ///
    /// # Errors
    /// The database's; the next call goes on.
    pub async fn purge(&self) -> sqlx::Result<()> {
        let now = self.clock().now_ms();
        let settings = self.settings();
        let windows = [
            settings.sign_in_account,
            settings.sign_in_address,
            settings.sign_in_everywhere,
            settings.sign_in_start,
            settings.device_start,
            settings.user_code,
            settings.register,
            settings.exchange,
        ];
        let longest = windows.iter().map(|allowance| allowance.window_seconds).max().unwrap_or(0);
        // One statement a transaction: SQLite's writer is free in between.
        let mut tx = self.db().begin().await?;
        authorization::forget(&mut tx, now, now - KEPT_MS).await?;
        tx.commit().await?;
        let mut tx = self.db().begin().await?;
        session::forget_access_tokens(&mut tx, now).await?;
        tx.commit().await?;
        let mut tx = self.db().begin().await?;
        refresh::forget(&mut tx, now - KEPT_MS).await?;
        tx.commit().await?;
        let mut tx = self.db().begin().await?;
        grant::forget_attempts(&mut tx, now).await?;
        grant::forget_unused(&mut tx, now - KEPT_MS).await?;
        tx.commit().await?;
        let mut tx = self.db().begin().await?;
        grant::forget_tokens(&mut tx, now).await?;
        grant::forget_over(&mut tx, now - KEPT_MS).await?;
        tx.commit().await?;
        let mut tx = self.db().begin().await?;
        device::forget(&mut tx, now - KEPT_MS).await?;
        known::forget(&mut tx, now).await?;
        tx.commit().await?;
        let mut tx = self.db().begin().await?;
        session::forget(&mut tx, now - SESSIONS_KEPT_MS).await?;
        tx.commit().await?;
        let mut tx = self.db().begin().await?;
        throttle::forget(&mut tx, now - (i64::from(longest) * 1000).max(KEPT_MS)).await?;
        tx.commit().await
    }

    fn settings(&self) -> &IssuerSettings {
        &self.0.settings
    }

    /// The issuer identifier: `public_url` without a slash at its end.
    fn name(&self) -> &str {
        &self.0.name
    }

    fn is_https(&self) -> bool {
        self.0.settings.public_url.scheme() == "https"
    }

    fn keys(&self) -> &SigningKeys {
        &self.0.keys
    }

    fn connectors(&self) -> &Connectors {
        &self.0.connectors
    }

    fn workloads(&self) -> &Workloads {
        &self.0.workloads
    }

    fn db(&self) -> &Db {
        &self.0.db
    }

    fn clock(&self) -> &Clock {
        &self.0.clock
    }

    fn identity(&self) -> &Identity {
        &self.0.identity
    }

    fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }
}

/// The identifier of an issuer at this address, if there can be one.
fn issuer_name(url: &Url) -> Option<String> {
    let is_origin = matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.path() == "/"
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    is_origin.then(|| url.origin().ascii_serialization())
}

/// Everything the issuer answers, to be put at the root.
#[expect(clippy::needless_pass_by_value, reason = "the routes own it; each takes a clone")]
pub fn routes(issuer: Issuer) -> Route {
    let at = &issuer;
    Route::new()
        .at(
            "/.well-known/openid-configuration",
            get(answer(at, |issuer, _| async move { discovery::configuration(&issuer) })),
        )
        .at("/oauth2/jwks", get(answer(at, |issuer, _| async move { discovery::jwks(&issuer) })))
        .at("/oauth2/authorize", get(limited(at, pages::too_many, authorize::authorize)))
        .at("/oauth2/token", post(answer(at, token::token)))
        .at("/oauth2/device_authorization", post(limited(at, token::too_many, device::start)))
        .at("/oauth2/revoke", post(limited(at, token::too_many, revoke::revoke)))
        .at(
            "/oauth2/userinfo",
            get(answer(at, userinfo::userinfo)).post(answer(at, userinfo::userinfo)),
        )
        .at(
            "/login",
            get(limited(at, pages::too_many, login::form)).post(limited(
                at,
                pages::too_many,
                login::submit,
            )),
        )
        .at(
            "/device",
            get(answer(at, device::form)).post(limited(at, pages::too_many, device::submit)),
        )
        .at(
            "/login/device",
            get(limited(at, pages::too_many, device::confirm)).post(limited(
                at,
                pages::too_many,
                device::decide,
            )),
        )
        .at("/login/code", get(answer(at, |_, request| async move { login::show_code(&request) })))
        .at("/login/with/:name", get(limited(at, pages::too_many, connector::start::leave)))
        .at("/login/callback/:name", get(limited(at, pages::too_many, connector::callback::arrive)))
        .at(
            "/login/backchannel/:name",
            post(limited(at, token::too_many, connector::logout::sign_out)),
        )
        .at("/login/style.css", get(answer(at, |_, _| async { pages::stylesheet() })))
}

/// What answers after the limits on unauthenticated requests let the request pass; `refuse` answers
/// otherwise. For whatever uses the database or calls a provider, except where
/// [`Identity::caller`] is the only thing that does.
fn limited<F, Fut>(
    issuer: &Issuer,
    refuse: fn(TooMany) -> Response,
    handle: F,
) -> impl Endpoint<Output = Response> + 'static
where
    F: Fn(Issuer, Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Response> + Send + 'static,
{
    let issuer = issuer.clone();
    let handle = Arc::new(handle);
    make(move |request| {
        let (issuer, handle) = (issuer.clone(), Arc::clone(&handle));
        async move {
            let admitted = match issuer.identity().limits().admit() {
                Ok(admitted) => admitted,
                Err(limit) => return refuse(limit),
            };
            let response = handle(issuer, request).await;
            drop(admitted);
            response
        }
    })
}

fn answer<F, Fut>(issuer: &Issuer, handle: F) -> impl Endpoint<Output = Response> + 'static
where
    F: Fn(Issuer, Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Response> + Send + 'static,
{
    let issuer = issuer.clone();
    make(move |request| handle(issuer.clone(), request))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_an_origin() {
        let name = |text: &str| issuer_name(&text.parse().unwrap());
        assert_eq!(
            name("https://broker.example.com/").as_deref(),
            Some("https://broker.example.com")
        );
        assert_eq!(name("http://127.0.0.1:8080").as_deref(), Some("http://127.0.0.1:8080"));
        for text in [
            "https://broker.example.com/tenants",
            "https://me@broker.example.com",
            "https://broker.example.com/?a",
            "https://broker.example.com/#a",
            "ftp://broker.example.com",
            "unix:/run/broker",
        ] {
            assert_eq!(name(text), None, "{text}");
        }
    }
}
