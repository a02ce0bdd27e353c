//! Workloads: issuers of machine tokens and their rules.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};
use url::Url;

use super::{Rule, workspace_ref::WorkspaceRef};
use crate::{
    base::{clock::Clock, reload::Reloader},
    issuer::{
        connector::is_allowed_endpoint,
        jwt::{
            Claims, Discovery, HttpClient, HttpClientError, JwksCache, TokenKind, VerificationError,
        },
    },
};

/// An issuer of machine tokens in the configuration.
#[derive(Clone, Debug)]
pub struct WorkloadSettings {
    /// Issuer identifier, exactly as in `iss` of its tokens.
    pub issuer: String,
    /// Expected audience (`aud`) of its tokens: this broker.
    pub audience: String,
    /// PEM file with CAs that are trusted in addition to those of the system.
    pub ca_file: Option<PathBuf>,
    /// URL of its keys; by default, that of its discovery document.
    pub jwks_uri: Option<Url>,
    /// Rules by name: which machines may use which workspace.
    pub rules: BTreeMap<String, Rule>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    jwks_uri: Url,
}

/// An issuer of machine tokens; its keys are fetched when first needed.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) settings: WorkloadSettings,
    discovery: Discovery<Metadata>,
    keys: JwksCache,
}

impl Workload {
    /// A client for this issuer; `table` is the configuration's table of the workload.
    pub(super) fn new(
        settings: WorkloadSettings,
        table: &str,
        clock: &Clock,
        reloader: &Reloader,
    ) -> Result<Self, HttpClientError> {
        let issuer = settings.issuer.parse().map_err(|error| {
            HttpClientError::Tls(format!("{} is no URL: {error}", settings.issuer))
        })?;
        let url = settings.jwks_uri.as_ref().unwrap_or(&issuer);
        let http = HttpClient::new(url, settings.ca_file.as_deref(), table, reloader)?;
        Ok(Self {
            discovery: Discovery::new(http.clone(), clock.clone(), &settings.issuer),
            keys: JwksCache::new(http, clock.clone()),
            settings,
        })
    }

    /// Verifies a machine's token and returns its claims.
    pub(super) async fn verify(&self, token: &str, now: i64) -> Result<Claims, VerificationError> {
        let keys_at = if let Some(address) = &self.settings.jwks_uri {
            address.clone()
        } else {
            let named = self.discovery.get().await?.jwks_uri.clone();
            if !is_allowed_endpoint(&self.settings.issuer, &named) {
                let why = format!("it names {named} for its keys, which is not https");
                return Err(VerificationError::Unavailable(why));
            }
            named
        };
        let party = (self.settings.issuer.as_str(), self.settings.audience.as_str());
        Claims::verify(token, TokenKind::Workload, (&self.keys, &keys_at), party, now).await
    }

    /// The name of the rule that grants these claims access to this workspace.
    pub(super) fn matching_rule(
        &self,
        workspace: &WorkspaceRef,
        claims: &Map<String, Value>,
    ) -> Option<&str> {
        let mut rules = self.settings.rules.iter();
        let fitting =
            rules.find(|(_, rule)| workspace.is_named(&rule.workspace) && rule.matches(claims));
        fitting.map(|(name, _)| name.as_str())
    }
}
