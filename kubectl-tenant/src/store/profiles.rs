//! `profiles.json`: which brokers this person uses, and which one by default.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    broker_url::BrokerUrl,
    error::Error,
    private_file::{self, Found},
    world::{Env, Messages},
};

/// Version of the file's schema.
const VERSION: u32 = 1;

/// The file. Fields of a later version are kept by not being touched: such a file is refused.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Profiles {
    version: u32,
    /// The broker of whoever names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) default: Option<BrokerUrl>,
    /// What is known of each broker.
    #[serde(default)]
    pub(crate) brokers: BTreeMap<BrokerUrl, Profile>,
}

/// One broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Profile {
    /// Name of the kubeconfig entries, if the person chose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<String>,
    /// PEM file of the broker's CA. Remembered, because a kubectl that is started from elsewhere
    /// does not have the environment of the sign-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
}

impl Default for Profiles {
    fn default() -> Self {
        Self { version: VERSION, default: None, brokers: BTreeMap::new() }
    }
}

impl Profiles {
    fn path(config: &Path) -> PathBuf {
        config.join("profiles.json")
    }

    /// Reads the file; none is an empty one, a damaged one is set aside.
    pub(crate) fn read(config: &Path, messages: &Messages) -> Result<Self, Error> {
        let path = Self::path(config);
        let bytes = match private_file::read(&path)? {
            Found::Absent => return Ok(Self::default()),
            Found::Foreign(why) => return Err(Error::other(why)),
            Found::Bytes { bytes, .. } => bytes,
        };
        match serde_json::from_slice::<Self>(&bytes) {
            Ok(profiles) if profiles.version == VERSION => Ok(profiles),
            Ok(_) => {
                Err(Error::other(format!("{} was written by a newer version", path.display()))
                    .hint("update kubectl-tenant, or delete the file"))
            }
            Err(_) => {
                messages.say(private_file::quarantine(&path));
                Ok(Self::default())
            }
        }
    }

    /// Replaces the file.
    pub(crate) fn write(&self, config: &Path) -> Result<(), Error> {
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::other(format!("cannot write the profiles: {error}")))?;
        private_file::write(&Self::path(config), &text)
    }

    /// The broker to talk to: the flag, then `TENANT_BROKER_URL`, then the remembered one.
    pub(crate) fn broker(&self, flag: Option<&str>, env: &Env) -> Result<BrokerUrl, Error> {
        let named = flag.map(str::to_owned).or_else(|| env.text(tenant_shared::BROKER_ENV));
        match (named, &self.default) {
            (Some(text), _) => BrokerUrl::parse(&text),
            (None, Some(broker)) => Ok(broker.clone()),
            (None, None) => Err(Error::usage("no broker is known").hint(format!(
                "name it: kubectl tenant login --broker https://… (or set {})",
                tenant_shared::BROKER_ENV
            ))),
        }
    }

    /// What is known of a broker, nothing by default.
    pub(crate) fn of(&self, broker: &BrokerUrl) -> Profile {
        self.brokers.get(broker).cloned().unwrap_or_default()
    }

    /// The CA file to trust for a broker: `TENANT_BROKER_CA`, then the remembered one.
    pub(crate) fn ca_file(&self, broker: &BrokerUrl, env: &Env) -> Option<PathBuf> {
        env.get(crate::cli::CA_ENV).map(PathBuf::from).or_else(|| self.of(broker).ca_file)
    }
}
