//! Whose session it is: a person's account at a broker.

use std::fmt;

use serde::{Deserialize, Serialize};
use tenant_cached_token::hash;

use crate::{broker_url::BrokerUrl, error::Error, kubeconfig};

/// Longest name of a profile, in characters.
const LONGEST_NAME: usize = 63;

/// Name that a person gives to an account, where a broker's address is not enough to tell two
/// accounts apart: a letter, then letters, digits, `-` and `_`. It can also be the name of kubeconfig
/// entries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct ProfileName(String);

impl ProfileName {
    /// Reads what a person or a file says.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if !plain || text.len() > LONGEST_NAME || kubeconfig::check_name(text).is_err() {
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

/// An account at a broker. Sessions and tokens are filed under it and nothing else, so that two
/// accounts never get each other's. Every broker has one account without a name, which is the only
/// one for most people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Identity {
    pub(crate) broker: BrokerUrl,
    pub(crate) profile: Option<ProfileName>,
}

impl Identity {
    /// The account without a name.
    pub(crate) fn unnamed(broker: BrokerUrl) -> Self {
        Self { broker, profile: None }
    }

    /// The account of this name.
    pub(crate) fn named(broker: BrokerUrl, profile: ProfileName) -> Self {
        Self { broker, profile: Some(profile) }
    }

    /// How it is called in `profiles`: an account without a name by its broker's address.
    pub(crate) fn name(&self) -> &str {
        self.profile.as_ref().map_or(self.broker.as_str(), ProfileName::as_str)
    }

    /// The name of its files: SHA-256 of `["BROKER"]` or `["BROKER","PROFILE"]`.
    pub(crate) fn key(&self) -> String {
        match &self.profile {
            None => hash(&[self.broker.as_str()]),
            Some(profile) => hash(&[self.broker.as_str(), profile.as_str()]),
        }
    }

    /// The flags that name it.
    pub(crate) fn flags(&self) -> String {
        match &self.profile {
            None => format!("--broker {}", self.broker),
            Some(profile) => format!("--broker {} --profile {profile}", self.broker),
        }
    }
}

impl fmt::Display for Identity {
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
    fn a_name_is_plain() {
        for good in ["a", "work", "Work-2_b", &"x".repeat(63)] {
            assert_eq!(ProfileName::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "2", "-a", "a b", "a/b", "a.b", "a:b", "no", "é", &"x".repeat(64)] {
            assert!(ProfileName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn each_account_has_files_of_its_own() {
        let broker = BrokerUrl::parse("https://b.example").unwrap();
        let unnamed = Identity::unnamed(broker.clone());
        let named = Identity::named(broker, ProfileName::parse("work").unwrap());
        // What it was before there were names.
        assert_eq!(unnamed.key(), hash(&["https://b.example"]));
        assert_ne!(unnamed.key(), named.key());
        assert_eq!(named.to_string(), "https://b.example (profile work)");
        assert_eq!(named.flags(), "--broker https://b.example --profile work");
    }
}
