//! The embedded OpenID provider, where people sign in with e-mail address and password.
//!
//! One public client, the plugin; authorization code with PKCE (S256 only); rotating refresh
//! tokens; opaque access tokens that the broker looks up in its database, so that ending a session
//! ends them immediately. The design follows OAuth 2.0 Security Best Current Practice (RFC 9700).
//!
//! | secret of a client or browser | prefix | stored in the database |
//! |---|---|---|
//! | access token | `tba_` | SHA-256, expiry |
//! | refresh token | `tbr_` | SHA-256, when it was used |
//! | authorization code | `tbc_` | SHA-256, expiry, when it was redeemed |
//! | handle of an authorization request | `tbq_` | SHA-256 |
//! | cookie of an authorization request | `tbb_` | SHA-256 |
//! | device code | `tbd_` | SHA-256, expiry, when it was redeemed |
//! | user code of a device | eight letters | SHA-256, expiry |
//! | cookie of a trusted browser | `tbk_` | SHA-256, expiry |
//! | cookie of a browser session | `tbs_` | SHA-256, expiry |
//! | `state` of a sign-in at a provider | `tbu_` | SHA-256, expiry |
//!
//! People may sign in at an upstream provider instead of with a password ([`connector`]), machines
//! exchange tokens of other issuers ([`token_exchange`]).

pub mod api;
mod authorization;
pub mod connector;
mod device;
mod discovery;
mod jwt;
pub mod keys;
mod pages;
mod parameters;
mod redirect;
mod restored;
mod revoke;
mod sign_in;
mod token_endpoint;
pub mod token_exchange;
mod tokens;
mod userinfo;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use poem::{Endpoint, Request, Response, Route, endpoint::make, get, post};
use url::Url;

pub use self::jwt::HttpClientError;
pub(crate) use self::restored::{TABLES_EMPTIED_BY_RESTORE, forget_sign_ins};
use self::{
    authorization::authorize,
    connector::{ConnectorSettings, Connectors, grant},
    keys::{KeyError, SigningKeyFiles, SigningKeys},
    sign_in::{login, trusted_browser},
    token_exchange::{WorkloadSettings, Workloads},
    tokens::{refresh_tokens, token_error},
};
use crate::{
    base::{
        clock::Clock,
        db::Db,
        lease,
        rate_limit::RateLimited,
        reload::{Reloaded, Reloader},
        telemetry::Metrics,
        throttle::{self, WindowQuota},
    },
    identity::{Identity, sessions},
};

/// How long used and expired rows are retained, so that a reuse is still detected.
const RETENTION_MS: i64 = 24 * 60 * 60 * 1000;

/// How long ended sessions are retained, because the audit trail refers to them.
const SESSION_RETENTION_MS: i64 = 30 * RETENTION_MS;

/// Settings of the issuer.
#[derive(Clone, Debug)]
pub struct IssuerSettings {
    /// Issuer identifier, and the URL at which browsers and clients reach it: scheme, host and
    /// port, no path.
    pub public_url: Url,
    /// PEM files with EC P-256 keys, at least one in each; the first key signs, all are published.
    pub signing_key_files: Vec<PathBuf>,
    /// Lifetime of an access token.
    pub access_token_seconds: u32,
    /// Lifetime of an ID token.
    pub id_token_seconds: u32,
    /// Idle timeout of a session: how long it lasts without a refresh.
    pub session_idle_seconds: u32,
    /// Lifetime of a session at most, counted from the sign-in.
    pub session_max_seconds: u32,
    /// How long after its use a refresh token may be used again.
    pub refresh_grace_seconds: u32,
    /// Time that a person has to sign in.
    pub authorization_seconds: u32,
    /// Failed sign-ins of one account from one address, or from one trusted browser.
    pub sign_in_account: WindowQuota,
    /// Failed sign-ins from one address.
    pub sign_in_address: WindowQuota,
    /// Failed sign-ins of one account from everywhere.
    pub sign_in_everywhere: WindowQuota,
    /// Sign-ins started from one address.
    pub sign_in_start: WindowQuota,
    /// Device codes for one address.
    pub device_start: WindowQuota,
    /// Wrong user codes from one address.
    pub user_code: WindowQuota,
    /// Accounts that people create from one address.
    pub register: WindowQuota,
    /// Whether people may create accounts for themselves.
    pub registration: bool,
    /// Whether people may sign in with e-mail address and password.
    pub local_accounts: bool,
    /// Upstream providers, by name.
    pub connectors: BTreeMap<String, ConnectorSettings>,
    /// Issuers of machines' tokens, by name.
    pub workloads: BTreeMap<String, WorkloadSettings>,
    /// Token exchanges from one address.
    pub exchange: WindowQuota,
}

/// The issuer cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The public URL cannot be an issuer identifier.
    #[error(
        "{0} cannot be an issuer: public_url is http or https with a host, and has no path, query, \
         fragment or user"
    )]
    PublicUrl(Url),
    /// A signing key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The client for another issuer cannot be created, because of its CA or the client secret.
    #[error("connectors or workloads: {0}")]
    Http(#[from] HttpClientError),
}

/// The issuer. Clones share everything.
#[derive(Clone, Debug)]
pub struct Issuer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: IssuerSettings,
    name: String,
    keys: Reloaded<SigningKeys>,
    connectors: Connectors,
    workloads: Workloads,
    db: Db,
    clock: Clock,
    identity: Identity,
    metrics: Metrics,
}

impl Issuer {
    /// Loads the keys, the secrets of connectors and the CAs of other issuers; the reloader replaces
    /// them when their files change. [`routes`] returns the endpoints.
    ///
    /// # Errors
    /// The public URL cannot be an issuer identifier, or a key or another file cannot be used.
    pub fn start(
        settings: IssuerSettings,
        db: Db,
        clock: Clock,
        identity: Identity,
        metrics: Metrics,
        reloader: &Reloader,
    ) -> Result<Self, StartError> {
        let name = issuer_name(&settings.public_url)
            .ok_or_else(|| StartError::PublicUrl(settings.public_url.clone()))?;
        let paths = settings.signing_key_files.clone();
        let keys = SigningKeyFiles { paths, metrics: metrics.clone() };
        let keys = reloader.load("issuer.signing_key_files", keys)?;
        let connectors = Connectors::new(&settings.connectors, &name, &clock, reloader)?;
        let workloads = Workloads::new(&settings.workloads, &clock, reloader)?;
        let inner =
            Inner { settings, name, keys, connectors, workloads, db, clock, identity, metrics };
        Ok(Self(Arc::new(inner)))
    }

    /// Checks the browser sessions that are due with their upstream providers. Several replicas may
    /// call it concurrently.
    ///
    /// # Errors
    /// The database failed; the next call continues.
    pub async fn check_browsers(&self) -> sqlx::Result<()> {
        connector::browser_sessions::check(self).await
    }

    /// Deletes rows that are not needed any more: authorization requests, access tokens, refresh
    /// tokens of sessions that ended more than a day ago, rate limits whose window has passed.
    /// Several replicas may call it concurrently.
    ///
    /// # Errors
    /// The database failed; the next call continues.
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
        // Few statements per transaction, so that SQLite's single writer is free in between.
        let mut tx = self.db().begin().await?;
        authorization::delete_expired(&mut tx, now, now - RETENTION_MS).await?;
        tx.commit().await?;
        let mut tx = self.db().begin().await?;
        sessions::delete_expired_access_tokens(&mut tx, now).await?;
        tx.commit().await?;
        let mut tx = self.db().begin().await?;
        refresh_tokens::delete_ended(&mut tx, now - RETENTION_MS).await?;
        tx.commit().await?;
        let mut tx = self.db().begin().await?;
        grant::delete_expired_attempts(&mut tx, now).await?;
        grant::delete_unused(&mut tx, now - RETENTION_MS).await?;
        tx.commit().await?;
        let mut tx = self.db().begin().await?;
        grant::clear_refresh_tokens(&mut tx, now).await?;
        grant::delete_ended(&mut tx, now - RETENTION_MS).await?;
        tx.commit().await?;
        let mut tx = self.db().begin().await?;
        device::delete_expired(&mut tx, now - RETENTION_MS).await?;
        trusted_browser::delete_expired(&mut tx, now).await?;
        tx.commit().await?;
        let mut tx = self.db().begin().await?;
        sessions::delete_expired(&mut tx, now - SESSION_RETENTION_MS).await?;
        tx.commit().await?;
        let mut tx = self.db().begin().await?;
        throttle::delete_expired(&mut tx, now - (i64::from(longest) * 1000).max(RETENTION_MS))
            .await?;
        lease::delete_expired(&mut tx, self.clock(), RETENTION_MS).await?;
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

    fn keys(&self) -> Arc<SigningKeys> {
        self.0.keys.get()
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

/// The issuer identifier for this URL, if the URL is an origin.
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

/// The routes of the issuer's endpoints, to be mounted at the root.
#[expect(clippy::needless_pass_by_value, reason = "the routes own it; each takes a clone")]
pub fn routes(issuer: Issuer) -> Route {
    let at = &issuer;
    Route::new()
        .at(
            "/.well-known/openid-configuration",
            get(endpoint(at, |issuer, _| async move { discovery::configuration(&issuer) })),
        )
        .at("/oauth2/jwks", get(endpoint(at, |issuer, _| async move { discovery::jwks(&issuer) })))
        .at("/oauth2/authorize", get(rate_limited(at, pages::too_many, authorize::authorize)))
        .at("/oauth2/token", post(endpoint(at, token_endpoint::token)))
        .at(
            "/oauth2/device_authorization",
            post(rate_limited(at, token_error::too_many, device::start)),
        )
        .at("/oauth2/revoke", post(rate_limited(at, token_error::too_many, revoke::revoke)))
        .at(
            "/oauth2/userinfo",
            get(endpoint(at, userinfo::userinfo)).post(endpoint(at, userinfo::userinfo)),
        )
        .at(
            "/login",
            get(rate_limited(at, pages::too_many, login::form)).post(rate_limited(
                at,
                pages::too_many,
                login::submit,
            )),
        )
        .at(
            "/device",
            get(endpoint(at, device::form)).post(rate_limited(at, pages::too_many, device::submit)),
        )
        .at(
            "/login/device",
            get(rate_limited(at, pages::too_many, device::confirm)).post(rate_limited(
                at,
                pages::too_many,
                device::decide,
            )),
        )
        .at(
            "/login/code",
            get(endpoint(at, |_, request| async move { login::show_code(&request) })),
        )
        .at(
            "/login/with/:name",
            get(rate_limited(at, pages::too_many, connector::start::redirect_to_provider)),
        )
        .at(
            "/login/callback/:name",
            get(rate_limited(at, pages::too_many, connector::callback::handle_callback)),
        )
        .at(
            "/login/backchannel/:name",
            post(rate_limited(at, token_error::too_many, connector::logout::handle_logout)),
        )
        .at("/login/style.css", get(endpoint(at, |_, _| async { pages::stylesheet() })))
}

/// An endpoint behind the rate limits on unauthenticated requests; `refuse` responds to a request
/// beyond them. Every endpoint that uses the database or calls a provider needs it, except where
/// [`Identity::authenticate_access_token`] is the only such call, because that applies the limits
/// itself.
fn rate_limited<F, Fut>(
    issuer: &Issuer,
    refuse: fn(RateLimited) -> Response,
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

fn endpoint<F, Fut>(issuer: &Issuer, handle: F) -> impl Endpoint<Output = Response> + 'static
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
