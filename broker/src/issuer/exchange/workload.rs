//! An issuer of machines' tokens.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};
use url::Url;

use super::{Rule, row::Place};
use crate::{
    clock::Clock,
    issuer::{
        connector::may_name,
        trust::{Claims, Discovery, Distrust, Http, HttpError, Keys, Kind},
    },
};

/// An issuer of machines' tokens in the configuration.
#[derive(Clone, Debug)]
pub struct WorkloadSettings {
    /// Its identifier, letter for letter as its tokens say it.
    pub issuer: String,
    /// Whom its tokens must be made for: this broker.
    pub audience: String,
    /// PEM file with CAs that are trusted beside the system's.
    pub ca_file: Option<PathBuf>,
    /// Where its keys are; without it, discovery says so.
    pub jwks_uri: Option<Url>,
    /// Which machines may use which workspace, by the rule's name.
    pub rules: BTreeMap<String, Rule>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    jwks_uri: Url,
}

/// An issuer, which is asked for its keys when they are needed first.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) settings: WorkloadSettings,
    discovery: Discovery<Metadata>,
    keys: Keys,
}

impl Workload {
    pub(super) fn new(settings: WorkloadSettings, clock: &Clock) -> Result<Self, HttpError> {
        let issuer = settings
            .issuer
            .parse()
            .map_err(|error| HttpError::Tls(format!("{} is no URL: {error}", settings.issuer)))?;
        let asked = settings.jwks_uri.as_ref().unwrap_or(&issuer);
        let http = Http::new(asked, settings.ca_file.as_deref())?;
        Ok(Self {
            discovery: Discovery::new(http.clone(), clock.clone(), &settings.issuer),
            keys: Keys::new(http, clock.clone()),
            settings,
        })
    }

    /// The claims of a machine's token.
    pub(super) async fn verify(&self, token: &str, now: i64) -> Result<Claims, Distrust> {
        let keys_at = if let Some(address) = &self.settings.jwks_uri {
            address.clone()
        } else {
            let named = self.discovery.get().await?.jwks_uri.clone();
            if !may_name(&self.settings.issuer, &named) {
                let why = format!("it names {named} for its keys, which is not https");
                return Err(Distrust::Outage(why));
            }
            named
        };
        let party = (self.settings.issuer.as_str(), self.settings.audience.as_str());
        Claims::verify(token, Kind::Workload, (&self.keys, &keys_at), party, now).await
    }

    /// The name of the rule that lets these claims use this workspace.
    pub(super) fn rule(&self, place: &Place, claims: &Map<String, Value>) -> Option<&str> {
        let mut rules = self.settings.rules.iter();
        let fitting = rules.find(|(_, rule)| place.is(&rule.workspace) && rule.fits(claims));
        fitting.map(|(name, _)| name.as_str())
    }
}
