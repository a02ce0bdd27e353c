//! Account keys: a broker's URL and, optionally, a profile name.

use std::fmt;

use serde::{Deserialize, Serialize};
use tenant_cached_token::hash;

use crate::{broker_url::BrokerUrl, entry_name, error::Error};

/// Longest name of a profile, in characters.
const MAX_NAME_CHARS: usize = 63;

/// Name that a person gives to an account when the broker's address is not enough to tell two
/// accounts apart: a letter, then letters, digits, `-` and `_`. It can also be the name of
/// kubeconfig entries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct ProfileName(String);

impl ProfileName {
    /// Parses a name from the command line or from a file.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if !plain || text.len() > MAX_NAME_CHARS || entry_name::check(text).is_err() {
            return Err(Error::usage(format!("{text:?} cannot be the name of a profile")).hint(
                "a name begins with a letter and holds at most 63 letters, digits, - and _",
            ));
        }
        Ok(Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ProfileName {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        Self::parse(&text)
    }
}

impl From<ProfileName> for String {
    fn from(name: ProfileName) -> Self {
        name.0
    }
}

/// Key of an account at a broker. Sessions and tokens are filed under this key and nothing else, so
/// that accounts never get each other's. Every broker has one account without a name, which is the
/// only one for most people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AccountKey {
    pub(crate) broker: BrokerUrl,
    pub(crate) profile: Option<ProfileName>,
}

impl AccountKey {
    /// Key of the account without a name.
    pub(crate) fn unnamed(broker: BrokerUrl) -> Self {
        Self { broker, profile: None }
    }

    /// Key of the account with this name.
    pub(crate) fn named(broker: BrokerUrl, profile: ProfileName) -> Self {
        Self { broker, profile: Some(profile) }
    }

    /// Name in the list of `profiles`: the profile name, or the broker's address for the account
    /// without a name.
    pub(crate) fn name(&self) -> &str {
        self.profile.as_ref().map_or(self.broker.as_str(), ProfileName::as_str)
    }

    /// SHA-256 of `["BROKER"]` or `["BROKER","PROFILE"]` in hex: the name of the account's files.
    pub(crate) fn digest(&self) -> String {
        match &self.profile {
            None => hash(&[self.broker.as_str()]),
            Some(profile) => hash(&[self.broker.as_str(), profile.as_str()]),
        }
    }

    /// Command-line flags that select this account.
    pub(crate) fn flags(&self) -> String {
        match &self.profile {
            None => format!("--broker {}", self.broker),
            Some(profile) => format!("--broker {} --profile {profile}", self.broker),
        }
    }

    /// A command of this program for this account, whichever account is the current one.
    pub(crate) fn command(&self, command: &str) -> String {
        format!("kubectl tenant {command} {}", self.flags())
    }

    /// The error that tells a person to sign in. The message is complete without its hint, because
    /// programs that show only one line of a plugin's stderr show this line.
    pub(crate) fn sign_in_error(&self, why: impl Into<String>) -> Error {
        Error::sign_in(format!("not signed in at {self}; run: {}", self.command("login"))).hint(why)
    }
}

impl fmt::Display for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.profile {
            None => self.broker.fmt(f),
            Some(profile) => write!(f, "{} (profile {profile})", self.broker),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_names_are_validated() {
        for good in ["a", "work", "Work-2_b", &"x".repeat(63)] {
            assert_eq!(ProfileName::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "2", "-a", "a b", "a/b", "a.b", "a:b", "no", "é", &"x".repeat(64)] {
            assert!(ProfileName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn accounts_have_distinct_digests() {
        let broker = BrokerUrl::parse("https://b.example").unwrap();
        let unnamed = AccountKey::unnamed(broker.clone());
        let named = AccountKey::named(broker, ProfileName::parse("work").unwrap());
        // The same digest as before profiles existed.
        assert_eq!(unnamed.digest(), hash(&["https://b.example"]));
        assert_ne!(unnamed.digest(), named.digest());
        assert_eq!(named.to_string(), "https://b.example (profile work)");
        assert_eq!(named.flags(), "--broker https://b.example --profile work");
        let command = "kubectl tenant login --device --broker https://b.example --profile work";
        assert_eq!(named.command("login --device"), command);
    }
}
