//! Upstream OpenID providers: people sign in at their company and are known here by issuer and
//! subject (OpenID Connect Core 1.0, OAuth 2.0 Security Best Current Practice RFC 9700).
//!
//! | step | where |
//! |---|---|
//! | the browser goes to the provider and comes back | [`start`], [`callback`] |
//! | the broker redeems the code and asks who it is | [`provider`], [`super::trust`] |
//! | may they sign in, and as what | [`person`] |
//! | what the provider gave is kept, sealed, with the session | [`grant`] |
//! | at every refresh the provider is asked again | [`check`] |
//! | a sweep asks about browsers' sessions, which have none | [`browsers`] |
//!
//! The browser that comes back must be the one that left: the PKCE verifier and the nonce follow
//! from the secret in its cookie and from `state`, and neither is kept anywhere ([`binding`]).

mod binding;
pub(super) mod browsers;
pub(super) mod callback;
pub(super) mod check;
pub(super) mod grant;
pub(super) mod logout;
mod person;
mod provider;
pub(super) mod start;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use secrecy::SecretString;
use url::Url;
use uuid::Uuid;

use self::provider::{NoAnswer, Provider};
use super::{IssuerSettings, trust::HttpError};
use crate::{
    clock::Clock,
    db::Tx,
    identity::session::{self, Session},
};

/// How long the provider's last answer about a person counts as new, in seconds.
const RECENT_SECONDS: i64 = 10;
/// How long a Kubernetes token works at most: its two hours, and what the API server adds.
const KUBERNETES_SECONDS: i64 = 7200 + 70;
/// How long the sign-in page says that a provider does not answer.
const SHOWN_DOWN_MS: i64 = 30 * 1000;

/// One provider in the configuration.
#[derive(Clone, Debug)]
pub struct ConnectorSettings {
    /// Its identifier, letter for letter as its tokens say it.
    pub issuer: String,
    /// The broker as a client there.
    pub client_id: String,
    /// The client's secret; `None` for a public client.
    pub client_secret: Option<SecretString>,
    /// What people call it.
    pub display_name: String,
    /// Scopes that are asked for, divided by spaces.
    pub scopes: String,
    /// Claim with a person's groups; a path with dots for one inside another.
    pub groups_claim: String,
    /// Groups whose members may sign in; everybody if empty.
    pub allowed_groups: Vec<String>,
    /// Domains of verified e-mail addresses that may sign in; any if empty.
    pub allowed_domains: Vec<String>,
    /// Groups whose members are administrators.
    pub admin_groups: Vec<String>,
    /// PEM file with CAs that are trusted beside the system's.
    pub ca_file: Option<PathBuf>,
    /// How long a session goes on while the provider does not answer, in seconds.
    pub outage_seconds: u32,
    /// How long a session lives that the provider cannot be asked about, in seconds.
    pub unchecked_seconds: u32,
}

/// A provider as the sign-in page offers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// Its name in addresses.
    pub(super) name: String,
    /// What people call it.
    pub(super) display_name: String,
    /// Whether it did not answer just now.
    pub(super) is_down: bool,
}

/// All configured providers, by name.
#[derive(Debug)]
pub(super) struct Connectors(BTreeMap<String, Arc<Connector>>);

/// A provider that people may sign in at.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) name: String,
    pub(super) settings: ConnectorSettings,
    provider: Provider,
}

impl Connectors {
    /// Providers that nobody has asked anything yet; `base` is our own address.
    pub(super) fn new(
        settings: &BTreeMap<String, ConnectorSettings>,
        base: &str,
        clock: &Clock,
    ) -> Result<Self, HttpError> {
        let connector = |(name, settings): (&String, &ConnectorSettings)| {
            let redirect = format!("{base}/login/callback/{name}");
            Ok((
                name.clone(),
                Arc::new(Connector {
                    name: name.clone(),
                    settings: settings.clone(),
                    provider: Provider::new(settings, redirect, clock)?,
                }),
            ))
        };
        settings.iter().map(connector).collect::<Result<_, _>>().map(Self)
    }

    /// The provider of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Arc<Connector>> {
        self.0.get(name)
    }

    /// The session of a grant begins at `now`. One that the provider cannot be asked about does not
    /// live long. `None` if there is no such grant, or its provider is not configured any more.
    pub(super) async fn attach(
        &self,
        tx: &mut Tx,
        grant_id: Uuid,
        mut session: Session,
        now: i64,
    ) -> sqlx::Result<Option<Session>> {
        let Some((name, can_be_asked)) = grant::attach(tx, grant_id, session.id).await? else {
            return Ok(None);
        };
        let Some(connector) = self.get(&name) else { return Ok(None) };
        if !can_be_asked {
            let most = now + i64::from(connector.settings.unchecked_seconds) * 1000;
            session::shorten(tx, &mut session, most).await?;
        }
        Ok(Some(session))
    }

    /// What the sign-in page offers.
    pub(super) fn choices(&self) -> Vec<Choice> {
        let choice = |connector: &Arc<Connector>| Choice {
            name: connector.name.clone(),
            display_name: connector.settings.display_name.clone(),
            is_down: connector.provider.failed_within(SHOWN_DOWN_MS),
        };
        self.0.values().map(choice).collect()
    }
}

impl Connector {
    /// How long somebody keeps access at most after the provider has removed them, in seconds: the
    /// outage that may hide it, the access token of the last refresh, and the Kubernetes token that
    /// this one fetched at its end.
    fn removal_seconds(&self, settings: &IssuerSettings, can_be_asked: bool) -> i64 {
        let unseen = if can_be_asked {
            i64::from(self.settings.outage_seconds) + RECENT_SECONDS
        } else {
            i64::from(self.settings.unchecked_seconds)
        };
        unseen + i64::from(settings.access_token_seconds) + KUBERNETES_SECONDS
    }
}

/// Whether an issuer or endpoint can be spoken to without giving secrets away.
pub(crate) fn is_safe(url: &Url) -> bool {
    url.scheme() == "https" || (url.scheme() == "http" && super::trust::is_loopback(url))
}

/// Whether the discovery document of this issuer may name this endpoint: https, or plain http on
/// loopback if the issuer is there too. Otherwise a hostile provider could make the broker send the
/// client's secret to whatever listens on its own machine.
pub(crate) fn may_name(issuer: &str, endpoint: &Url) -> bool {
    let is_local = |issuer: Url| issuer.scheme() == "http" && is_safe(&issuer);
    endpoint.scheme() == "https" || (is_safe(endpoint) && issuer.parse::<Url>().is_ok_and(is_local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_local_issuer_names_local_endpoints() {
        let may = |issuer: &str, endpoint: &str| may_name(issuer, &endpoint.parse().unwrap());
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
