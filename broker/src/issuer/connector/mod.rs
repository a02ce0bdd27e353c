//! Connectors: sign-in at upstream OpenID providers. A user is identified by issuer and subject
//! (OpenID Connect Core 1.0, OAuth 2.0 Security Best Current Practice RFC 9700).
//!
//! | step | where |
//! |---|---|
//! | the browser goes to the provider and comes back | [`start`], [`callback`] |
//! | the broker redeems the code and fetches the claims | [`provider`], [`super::jwt`] |
//! | claims are mapped to a user, a role and groups | [`claim_mapping`] |
//! | the refresh token of the provider is stored, sealed, with the session | [`grant`] |
//! | every refresh of the session asks the provider again | [`check`] |
//! | a sweep asks about browser sessions, which have no refresh | [`browser_sessions`] |
//!
//! The browser that comes back must be the one that left: the PKCE verifier and the nonce are
//! derived from the secret in its cookie and from `state`, and neither is stored ([`binding`]).

mod binding;
pub(super) mod browser_sessions;
pub(super) mod callback;
pub(super) mod check;
mod claim_mapping;
mod client_secret;
pub(super) mod grant;
pub(super) mod logout;
mod provider;
pub(super) mod start;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use url::Url;
use uuid::Uuid;

pub use self::client_secret::ClientSecret;
use self::provider::{Provider, ProviderError};
use super::{IssuerSettings, jwt::HttpClientError, pages::ProviderChoice};
use crate::{
    base::{clock::Clock, db::Tx, reload::Reloader},
    identity::sessions::{self, Session},
};

/// TTL of a provider's last answer about a user, in seconds.
const CHECK_TTL_SECONDS: i64 = 10;
/// Maximum lifetime of a Kubernetes token, in seconds: two hours, and the leeway that the API
/// server adds.
const MAX_KUBERNETES_TOKEN_SECONDS: i64 = 7200 + 70;
/// How long the sign-in page shows that a provider is unavailable, in milliseconds.
const UNAVAILABLE_SHOWN_MS: i64 = 30 * 1000;

/// One provider in the configuration.
#[derive(Clone, Debug)]
pub struct ConnectorSettings {
    /// Issuer identifier, exactly as in `iss` of its tokens.
    pub issuer: String,
    /// OAuth client id of the broker at the provider.
    pub client_id: String,
    /// OAuth client secret; `None` for a public client.
    pub client_secret: Option<ClientSecret>,
    /// Name that people see.
    pub display_name: String,
    /// Requested scopes, separated by spaces.
    pub scopes: String,
    /// Path of the claim with the groups of a user; dots separate nested claims.
    pub groups_claim: String,
    /// Groups whose members may sign in; everybody if empty.
    pub allowed_groups: Vec<String>,
    /// Domains of verified e-mail addresses that may sign in; any if empty.
    pub allowed_domains: Vec<String>,
    /// Groups whose members are administrators.
    pub admin_groups: Vec<String>,
    /// PEM file with CAs that are trusted in addition to those of the system.
    pub ca_file: Option<PathBuf>,
    /// How long sessions continue while the provider does not answer, in seconds.
    pub outage_seconds: u32,
    /// Maximum lifetime of a session without a refresh token of the provider, in seconds.
    pub unchecked_seconds: u32,
    /// Whether the user name and the groups of a user are kept for Tenants (`tenants.enabled`).
    pub keep_groups: bool,
}

/// All configured providers, by name.
#[derive(Debug)]
pub(super) struct Connectors(BTreeMap<String, Arc<Connector>>);

/// A configured provider with its client.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) name: String,
    pub(super) settings: ConnectorSettings,
    provider: Provider,
}

impl Connectors {
    /// The configured providers; nothing is fetched from them yet. `base` is our own URL.
    pub(super) fn new(
        settings: &BTreeMap<String, ConnectorSettings>,
        base: &str,
        clock: &Clock,
        reloader: &Reloader,
    ) -> Result<Self, HttpClientError> {
        let connector = |(name, settings): (&String, &ConnectorSettings)| {
            let redirect = format!("{base}/login/callback/{name}");
            let table = format!("connectors.{name}");
            Ok((
                name.clone(),
                Arc::new(Connector {
                    name: name.clone(),
                    settings: settings.clone(),
                    provider: Provider::new(settings, &table, redirect, clock, reloader)?,
                }),
            ))
        };
        settings.iter().map(connector).collect::<Result<_, _>>().map(Self)
    }

    /// The provider with this name.
    pub(super) fn get(&self, name: &str) -> Option<&Arc<Connector>> {
        self.0.get(name)
    }

    /// Attaches the session that begins at `now` to its grant. A session whose provider cannot be
    /// asked again is shortened. `None` if there is no such grant, or its provider is no longer
    /// configured.
    pub(super) async fn attach(
        &self,
        tx: &mut Tx,
        grant_id: Uuid,
        mut session: Session,
        now: i64,
    ) -> sqlx::Result<Option<Session>> {
        let Some((name, has_refresh_token)) =
            grant::attach_session(tx, grant_id, session.id).await?
        else {
            return Ok(None);
        };
        let Some(connector) = self.get(&name) else { return Ok(None) };
        if !has_refresh_token {
            let most = now + i64::from(connector.settings.unchecked_seconds) * 1000;
            sessions::set_earlier_end(tx, &mut session, most).await?;
        }
        Ok(Some(session))
    }

    /// The providers that the sign-in page offers.
    pub(super) fn choices(&self) -> Vec<ProviderChoice> {
        let choice = |connector: &Arc<Connector>| ProviderChoice {
            name: connector.name.clone(),
            display_name: connector.settings.display_name.clone(),
            is_unavailable: connector.provider.failed_within(UNAVAILABLE_SHOWN_MS),
        };
        self.0.values().map(choice).collect()
    }
}

impl Connector {
    /// Maximum time that a user keeps access after the provider has removed them, in seconds: the
    /// outage that may hide it, the access token of the last refresh, and the Kubernetes token that
    /// was issued at its end.
    fn removal_seconds(&self, settings: &IssuerSettings, has_refresh_token: bool) -> i64 {
        let unseen = if has_refresh_token {
            i64::from(self.settings.outage_seconds) + CHECK_TTL_SECONDS
        } else {
            i64::from(self.settings.unchecked_seconds)
        };
        unseen + i64::from(settings.access_token_seconds) + MAX_KUBERNETES_TOKEN_SECONDS
    }
}

/// Whether a URL of an issuer or endpoint protects secrets in transit: https, or http on loopback.
pub(crate) fn is_https_or_loopback(url: &Url) -> bool {
    url.scheme() == "https" || (url.scheme() == "http" && super::jwt::is_loopback(url))
}

/// Whether the discovery document of this issuer may name this endpoint: https, or plain http on
/// loopback if the issuer is there too. Otherwise a hostile provider could make the broker send the
/// client secret to any listener on its own machine.
pub(crate) fn is_allowed_endpoint(issuer: &str, endpoint: &Url) -> bool {
    let is_local = |issuer: Url| issuer.scheme() == "http" && is_https_or_loopback(&issuer);
    endpoint.scheme() == "https"
        || (is_https_or_loopback(endpoint) && issuer.parse::<Url>().is_ok_and(is_local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_local_issuer_names_local_endpoints() {
        let may =
            |issuer: &str, endpoint: &str| is_allowed_endpoint(issuer, &endpoint.parse().unwrap());
        let (far, here) = ("https://sso.example.com", "http://127.0.0.1:9000");
        for endpoint in ["https://sso.example.com/token", "https://login.example.net/token"] {
            assert!(may(far, endpoint) && may(here, endpoint), "{endpoint}");
        }
        for endpoint in
            ["http://127.0.0.1:9000/token", "http://localhost/token", "http://[::1]:8080/token"]
        {
            assert!(may(here, endpoint), "{endpoint}");
            assert!(!may(far, endpoint), "{endpoint}");
            assert!(!may("https://127.0.0.1:9000", endpoint), "{endpoint}");
        }
        for endpoint in ["http://sso.example.com/token", "ftp://127.0.0.1/token"] {
            assert!(!may(far, endpoint) && !may(here, endpoint), "{endpoint}");
        }
        assert!(!may("no url", "http://127.0.0.1/token"));
    }
}
