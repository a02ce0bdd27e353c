//! `profiles.json`: the accounts on this machine, and which one is current.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tenant_shared::ExecApiVersion;

use super::Storage;
use crate::{
    account_key::{AccountKey, ProfileName},
    broker_url::BrokerUrl,
    environment::{CA_ENV, Env, PROFILE_ENV},
    error::Error,
    private_file::{self, PrivateFile},
    world::Messages,
};

/// Version of the file's schema. Version 1 had one account for each broker.
const SCHEMA_VERSION: u32 = 2;

/// The accounts on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Profiles {
    /// Account of commands that select none.
    pub(crate) current: Option<AccountKey>,
    known: BTreeMap<AccountKey, Profile>,
}

/// Settings of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Profile {
    /// Name of the kubeconfig entries, if the person chose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<String>,
    /// PEM file of the broker's CA. It is stored, because a kubectl that is started from elsewhere
    /// does not have the environment of the sign-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Where the person wants the session to be stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) storage: Option<Storage>,
    /// Version of the exec credential protocol in the kubeconfig entries, if the person chose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exec_api_version: Option<ExecApiVersion>,
    /// Whether the person was told that the session is in a file because there is no keyring.
    #[serde(default, rename = "told_of_file", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) file_storage_notice_shown: bool,
}

/// The file. Accounts are listed by profile name, those without one by their broker's address.
#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    #[serde(default)]
    profiles: BTreeMap<String, ProfileEntry>,
}

#[derive(Serialize, Deserialize)]
struct ProfileEntry {
    broker: BrokerUrl,
    #[serde(flatten)]
    profile: Profile,
}

/// Version 1 of the file.
#[derive(Deserialize)]
struct FirstFile {
    default: Option<BrokerUrl>,
    #[serde(default)]
    brokers: BTreeMap<BrokerUrl, Profile>,
}

/// Error of reading a file of profiles.
enum Unusable {
    Newer,
    Damaged,
}

/// Global flags that select the account.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct AccountFlags {
    /// Address of the broker (`https://…`)
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) broker: Option<String>,
    /// Account, if you use several: see `kubectl tenant profiles`
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) profile: Option<String>,
}

impl AccountFlags {
    /// A command of this program for the same account: it repeats these flags. An account that is
    /// selected without flags stays selected.
    pub(crate) fn command(&self, command: &str) -> String {
        let mut text = format!("kubectl tenant {command}");
        for (flag, value) in [("--broker", &self.broker), ("--profile", &self.profile)] {
            if let Some(value) = value {
                text.extend([" ", flag, " ", value.as_str()]);
            }
        }
        text
    }
}

impl Profiles {
    fn path(config: &Path) -> PathBuf {
        config.join("profiles.json")
    }

    /// Reads the file. A missing file has no accounts; a damaged one is quarantined.
    pub(crate) fn read(config: &Path, messages: &Messages) -> Result<Self, Error> {
        let path = Self::path(config);
        let bytes = match private_file::read(&path)? {
            PrivateFile::Missing => return Ok(Self::default()),
            PrivateFile::Untrusted(why) => return Err(Error::other(why)),
            PrivateFile::Contents { bytes, .. } => bytes,
        };
        match Self::parse(&bytes) {
            Ok(profiles) => Ok(profiles),
            Err(Unusable::Newer) => {
                Err(Error::other(format!("{} was written by a newer version", path.display()))
                    .hint("update kubectl-tenant, or delete the file"))
            }
            Err(Unusable::Damaged) => {
                messages.print_message(private_file::quarantine(&path));
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
                    current: file.default.map(AccountKey::unnamed),
                    known: file
                        .brokers
                        .into_iter()
                        .map(|(broker, profile)| (AccountKey::unnamed(broker), profile))
                        .collect(),
                })
            }
            SCHEMA_VERSION => Self::from_file(serde_json::from_slice(bytes).map_err(damaged)?)
                .ok_or(Unusable::Damaged),
            _ => Err(Unusable::Newer),
        }
    }

    fn from_file(file: File) -> Option<Self> {
        let known: BTreeMap<AccountKey, Profile> = file
            .profiles
            .into_iter()
            .map(|(name, ProfileEntry { broker, profile })| {
                let account = if name == broker.as_str() {
                    AccountKey::unnamed(broker)
                } else {
                    AccountKey::named(broker, ProfileName::parse(&name).ok()?)
                };
                Some((account, profile))
            })
            .collect::<Option<_>>()?;
        let current = match file.current {
            Some(name) => Some(known.keys().find(|it| it.name() == name)?.clone()),
            None => None,
        };
        Some(Self { current, known })
    }

    /// Writes the file.
    pub(crate) fn write(&self, config: &Path) -> Result<(), Error> {
        let file = File {
            version: SCHEMA_VERSION,
            current: self.current.as_ref().map(|it| it.name().to_owned()),
            profiles: self
                .known
                .iter()
                .map(|(account, profile)| {
                    let entry =
                        ProfileEntry { broker: account.broker.clone(), profile: profile.clone() };
                    (account.name().to_owned(), entry)
                })
                .collect(),
        };
        let text = serde_json::to_vec_pretty(&file)
            .map_err(|error| Error::other(format!("cannot write the profiles: {error}")))?;
        private_file::write(&Self::path(config), &text)
    }

    /// Selects the account to act for.
    pub(crate) fn choose(&self, flags: &AccountFlags, env: &Env) -> Result<AccountKey, Error> {
        self.resolve(flags, env, false)
    }

    /// Selects the account to sign in. An unknown name is a new account, at the selected broker or
    /// else at the current one.
    pub(crate) fn choose_for_login(
        &self,
        flags: &AccountFlags,
        env: &Env,
    ) -> Result<AccountKey, Error> {
        self.resolve(flags, env, true)
    }

    /// Selects an account: by the flags, then by the environment variables, then the current one. A
    /// flag with a broker and no profile means the account without a name, whatever the variables
    /// say: that is what a kubeconfig contains, and its meaning must not depend on who runs
    /// kubectl.
    fn resolve(
        &self,
        flags: &AccountFlags,
        env: &Env,
        may_be_new: bool,
    ) -> Result<AccountKey, Error> {
        let flag = flags.broker.as_deref().map(BrokerUrl::parse).transpose()?;
        let variable = || {
            let text = env.text(tenant_shared::BROKER_ENV);
            text.map(|text| BrokerUrl::parse(&text)).transpose()
        };
        if let Some(name) = &flags.profile {
            return self.by_name(name, flag, variable, may_be_new);
        }
        if let Some(broker) = flag {
            return Ok(AccountKey::unnamed(broker));
        }
        if let Some(name) = env.text(PROFILE_ENV) {
            return self.by_name(&name, None, variable, may_be_new);
        }
        match (variable()?, &self.current) {
            (Some(broker), Some(current)) if current.broker == broker => Ok(current.clone()),
            (Some(broker), _) => Ok(AccountKey::unnamed(broker)),
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
    ) -> Result<AccountKey, Error> {
        let found = if name.contains("://") {
            Some(AccountKey::unnamed(BrokerUrl::parse(name)?))
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
            (None, Some(broker)) => Ok(AccountKey::named(broker, ProfileName::parse(name)?)),
            (None, None) if may_be_new => {
                let name = ProfileName::parse(name)?;
                let current = || self.current.as_ref().map(|it| it.broker.clone());
                variable()?.or_else(current).map(|it| AccountKey::named(it, name)).ok_or_else(
                    || {
                        Error::usage("no broker is known")
                            .hint("name it: kubectl tenant login --broker https://… --profile NAME")
                    },
                )
            }
            (None, None) => Err(Error::usage(format!("there is no profile {name:?}")).hint(
                "list them: kubectl tenant profiles; add one: kubectl tenant login --profile NAME",
            )),
        }
    }

    /// Accounts that the flags and variables select, if they select any, for commands that show all
    /// accounts otherwise. A broker alone selects all accounts there.
    pub(crate) fn filter(
        &self,
        flags: &AccountFlags,
        env: &Env,
    ) -> Result<Option<AccountFilter>, Error> {
        let set = |flag: &Option<String>, name| flag.clone().or_else(|| env.text(name));
        let broker = set(&flags.broker, tenant_shared::BROKER_ENV);
        // As everywhere, a variable does not override a flag.
        let profile = match (&flags.profile, &flags.broker) {
            (None, Some(_)) => None,
            (flag, _) => set(flag, PROFILE_ENV),
        };
        Ok(match (profile, broker) {
            (Some(_), _) => Some(AccountFilter::Account(self.choose(flags, env)?)),
            (None, Some(broker)) => Some(AccountFilter::Broker(BrokerUrl::parse(&broker)?)),
            (None, None) => None,
        })
    }

    /// Keys of all accounts.
    pub(crate) fn all(&self) -> impl Iterator<Item = &AccountKey> {
        self.known.keys()
    }

    /// Settings of an account, empty if it is unknown.
    pub(crate) fn get(&self, account: &AccountKey) -> Profile {
        self.known.get(account).cloned().unwrap_or_default()
    }

    /// Adds or replaces an account.
    pub(crate) fn set(&mut self, account: &AccountKey, profile: Profile) {
        self.known.insert(account.clone(), profile);
    }

    /// CA file to trust for a broker: `TENANT_BROKER_CA`, then the stored one.
    pub(crate) fn ca_file(&self, account: &AccountKey, env: &Env) -> Option<PathBuf> {
        env.get(CA_ENV).map(PathBuf::from).or_else(|| self.get(account).ca_file)
    }
}

/// A selection of accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AccountFilter {
    /// One account.
    Account(AccountKey),
    /// All accounts at a broker.
    Broker(BrokerUrl),
}

impl AccountFilter {
    pub(crate) fn matches(&self, account: &AccountKey) -> bool {
        match self {
            Self::Account(chosen) => chosen == account,
            Self::Broker(broker) => *broker == account.broker,
        }
    }
}

impl Profile {
    /// Name of the kubeconfig entries: the chosen one, else the profile name, else [`None`] for the
    /// broker's own names.
    pub(crate) fn entry_name(&self, account: &AccountKey) -> Option<String> {
        let own = || account.profile.as_ref().map(|name| name.as_str().to_owned());
        self.context.clone().or_else(own)
    }
}

#[cfg(test)]
mod tests;
