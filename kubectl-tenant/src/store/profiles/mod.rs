//! `profiles.json`: the accounts that this person uses, and the current one.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::Storage;
use crate::{
    broker_url::BrokerUrl,
    error::Error,
    identity::{Identity, ProfileName},
    private_file::{self, Found},
    world::{Env, Messages},
};

/// Version of the file's schema. The first one knew one account for each broker.
const VERSION: u32 = 2;

/// What is known of the accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Profiles {
    /// The account of whoever names none.
    pub(crate) current: Option<Identity>,
    known: BTreeMap<Identity, Profile>,
}

/// One account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Profile {
    /// Name of the kubeconfig entries, if the person chose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<String>,
    /// PEM file of the broker's CA. Remembered, because a kubectl that is started from elsewhere
    /// does not have the environment of the sign-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Where the person wants the session to be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) storage: Option<Storage>,
    /// Whether the person was told that it is in a file, for want of a keyring.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) told_of_file: bool,
}

/// The file. Accounts are filed under their names, those without one under their broker's address.
#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    #[serde(default)]
    profiles: BTreeMap<String, Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    broker: BrokerUrl,
    #[serde(flatten)]
    profile: Profile,
}

/// The file's first version.
#[derive(Deserialize)]
struct FirstFile {
    default: Option<BrokerUrl>,
    #[serde(default)]
    brokers: BTreeMap<BrokerUrl, Profile>,
}

/// Why a file is not used.
enum Unusable {
    Newer,
    Damaged,
}

/// What the command line says about the account.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Choice {
    /// Address of the broker (`https://…`)
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) broker: Option<String>,
    /// Account, if you use several: see `kubectl tenant profiles`
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) profile: Option<String>,
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
        match Self::parse(&bytes) {
            Ok(profiles) => Ok(profiles),
            Err(Unusable::Newer) => {
                Err(Error::other(format!("{} was written by a newer version", path.display()))
                    .hint("update kubectl-tenant, or delete the file"))
            }
            Err(Unusable::Damaged) => {
                messages.say(private_file::quarantine(&path));
                Ok(Self::default())
            }
        }
    }

    fn parse(bytes: &[u8]) -> Result<Self, Unusable> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let damaged = |_| Unusable::Damaged;
        match serde_json::from_slice::<Version>(bytes).map_err(damaged)?.version {
            1 => {
                let file: FirstFile = serde_json::from_slice(bytes).map_err(damaged)?;
                Ok(Self {
                    current: file.default.map(Identity::unnamed),
                    known: file
                        .brokers
                        .into_iter()
                        .map(|(broker, profile)| (Identity::unnamed(broker), profile))
                        .collect(),
                })
            }
            VERSION => Self::of_file(serde_json::from_slice(bytes).map_err(damaged)?)
                .ok_or(Unusable::Damaged),
            _ => Err(Unusable::Newer),
        }
    }

    fn of_file(file: File) -> Option<Self> {
        let known: BTreeMap<Identity, Profile> = file
            .profiles
            .into_iter()
            .map(|(name, Entry { broker, profile })| {
                let identity = if name == broker.as_str() {
                    Identity::unnamed(broker)
                } else {
                    Identity::named(broker, ProfileName::parse(&name).ok()?)
                };
                Some((identity, profile))
            })
            .collect::<Option<_>>()?;
        let current = match file.current {
            Some(name) => Some(known.keys().find(|it| it.name() == name)?.clone()),
            None => None,
        };
        Some(Self { current, known })
    }

    /// Replaces the file.
    pub(crate) fn write(&self, config: &Path) -> Result<(), Error> {
        let file = File {
            version: VERSION,
            current: self.current.as_ref().map(|it| it.name().to_owned()),
            profiles: self
                .known
                .iter()
                .map(|(identity, profile)| {
                    let entry = Entry { broker: identity.broker.clone(), profile: profile.clone() };
                    (identity.name().to_owned(), entry)
                })
                .collect(),
        };
        let text = serde_json::to_vec_pretty(&file)
            .map_err(|error| Error::other(format!("cannot write the profiles: {error}")))?;
        private_file::write(&Self::path(config), &text)
    }

    /// The account to act for.
    pub(crate) fn choose(&self, choice: &Choice, env: &Env) -> Result<Identity, Error> {
        self.find(choice, env, false)
    }

    /// The account to sign in: a name that is not known yet is a new one, at the broker that is
    /// named, else at the current one.
    pub(crate) fn choose_for_login(&self, choice: &Choice, env: &Env) -> Result<Identity, Error> {
        self.find(choice, env, true)
    }

    /// The flags come first, then the variables, then the current account. A flag that names a
    /// broker and no profile means the account without a name, whatever the variables say: so does
    /// a kubeconfig, and what it means must not depend on who runs kubectl.
    fn find(&self, choice: &Choice, env: &Env, may_be_new: bool) -> Result<Identity, Error> {
        let flag = choice.broker.as_deref().map(BrokerUrl::parse).transpose()?;
        let variable = || {
            let text = env.text(tenant_shared::BROKER_ENV);
            text.map(|text| BrokerUrl::parse(&text)).transpose()
        };
        if let Some(name) = &choice.profile {
            return self.by_name(name, flag, variable, may_be_new);
        }
        if let Some(broker) = flag {
            return Ok(Identity::unnamed(broker));
        }
        if let Some(name) = env.text(crate::cli::PROFILE_ENV) {
            return self.by_name(&name, None, variable, may_be_new);
        }
        match (variable()?, &self.current) {
            (Some(broker), Some(current)) if current.broker == broker => Ok(current.clone()),
            (Some(broker), _) => Ok(Identity::unnamed(broker)),
            (None, Some(current)) => Ok(current.clone()),
            (None, None) => Err(Error::usage("no broker is known").hint(format!(
                "name it: kubectl tenant login --broker https://… (or set {})",
                tenant_shared::BROKER_ENV
            ))),
        }
    }

    fn by_name(
        &self,
        name: &str,
        broker: Option<BrokerUrl>,
        variable: impl Fn() -> Result<Option<BrokerUrl>, Error>,
        may_be_new: bool,
    ) -> Result<Identity, Error> {
        let found = if name.contains("://") {
            Some(Identity::unnamed(BrokerUrl::parse(name)?))
        } else {
            self.known.keys().find(|it| it.name() == name).cloned()
        };
        match (found, broker) {
            (Some(found), Some(broker)) if found.broker != broker => Err(Error::usage(format!(
                "the profile {name} belongs to {} and not to {broker}",
                found.broker
            ))
            .hint("choose another name for the new account")),
            (Some(found), _) => Ok(found),
            (None, Some(broker)) => Ok(Identity::named(broker, ProfileName::parse(name)?)),
            (None, None) if may_be_new => {
                let name = ProfileName::parse(name)?;
                let current = || self.current.as_ref().map(|it| it.broker.clone());
                variable()?.or_else(current).map(|it| Identity::named(it, name)).ok_or_else(|| {
                    Error::usage("no broker is known")
                        .hint("name it: kubectl tenant login --broker https://… --profile NAME")
                })
            }
            (None, None) => Err(Error::usage(format!("there is no profile {name:?}")).hint(
                "see them: kubectl tenant profiles; make one: kubectl tenant login --profile NAME",
            )),
        }
    }

    /// What the flags and variables say, if they say anything: for commands that show everything
    /// otherwise. A broker alone means all accounts there.
    pub(crate) fn chosen(&self, choice: &Choice, env: &Env) -> Result<Option<Chosen>, Error> {
        let set = |flag: &Option<String>, name| flag.clone().or_else(|| env.text(name));
        let broker = set(&choice.broker, tenant_shared::BROKER_ENV);
        // As everywhere, a variable does not bend what a flag says.
        let profile = match (&choice.profile, &choice.broker) {
            (None, Some(_)) => None,
            (flag, _) => set(flag, crate::cli::PROFILE_ENV),
        };
        Ok(match (profile, broker) {
            (Some(_), _) => Some(Chosen::Account(self.choose(choice, env)?)),
            (None, Some(broker)) => Some(Chosen::Broker(BrokerUrl::parse(&broker)?)),
            (None, None) => None,
        })
    }

    /// All accounts.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Identity> {
        self.known.keys()
    }

    /// What is known of an account, nothing by default.
    pub(crate) fn of(&self, identity: &Identity) -> Profile {
        self.known.get(identity).cloned().unwrap_or_default()
    }

    /// Remembers an account.
    pub(crate) fn set(&mut self, identity: &Identity, profile: Profile) {
        self.known.insert(identity.clone(), profile);
    }

    /// The CA file to trust for a broker: `TENANT_BROKER_CA`, then the remembered one.
    pub(crate) fn ca_file(&self, identity: &Identity, env: &Env) -> Option<PathBuf> {
        env.get(crate::cli::CA_ENV).map(PathBuf::from).or_else(|| self.of(identity).ca_file)
    }
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// One account.
    Account(Identity),
    /// All accounts at a broker.
    Broker(BrokerUrl),
}

impl Chosen {
    pub(crate) fn covers(&self, identity: &Identity) -> bool {
        match self {
            Self::Account(account) => account == identity,
            Self::Broker(broker) => *broker == identity.broker,
        }
    }
}

impl Profile {
    /// The name of the kubeconfig entries: the chosen one, else that of the account, else the
    /// broker's own names.
    pub(crate) fn entry_name(&self, identity: &Identity) -> Option<String> {
        let own = || identity.profile.as_ref().map(|name| name.as_str().to_owned());
        self.context.clone().or_else(own)
    }
}

#[cfg(test)]
mod tests;
