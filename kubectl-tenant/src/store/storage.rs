//! Storage of an account's one long-lived secret, and how it is chosen.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    environment::{Env, STORAGE_ENV},
    error::Error,
    keyring::{INTERACTIVE_KEYRING_TIMEOUT, KEYRING_TIMEOUT, Keyring},
};

/// Storage of the refresh token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Storage {
    /// In the system's keyring.
    Keyring,
    /// In a file that only its owner can read.
    #[default]
    File,
    /// Nowhere: you have to sign in again soon.
    None,
}

impl Storage {
    /// Name in flags and data.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Keyring => "keyring",
            Self::File => "file",
            Self::None => "none",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Keyring, Self::File, Self::None].into_iter().find(|it| it.as_str() == text)
    }
}

/// Preferred storage of a sign-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoragePreference {
    pub(crate) storage: Storage,
    /// Whether a person chose it. An explicit choice has no fallback.
    pub(crate) explicit: bool,
}

impl StoragePreference {
    /// Timeout of keyring operations.
    pub(crate) fn keyring_timeout(self) -> Duration {
        if self.explicit { INTERACTIVE_KEYRING_TIMEOUT } else { KEYRING_TIMEOUT }
    }

    /// Resolves the preference: the flag, then `TENANT_STORAGE`, then the account's stored choice,
    /// then the keyring if there may be one.
    pub(crate) fn resolve(
        flag: Option<Storage>,
        remembered: Option<Storage>,
        keyring: Keyring,
        env: &Env,
    ) -> Result<Self, Error> {
        let variable = match env.text(STORAGE_ENV) {
            None => None,
            Some(text) => Some(Storage::parse(&text).ok_or_else(|| {
                Error::usage(format!("{STORAGE_ENV} is {text:?}"))
                    .hint("it can be keyring, file or none")
            })?),
        };
        Ok(match flag.or(variable).or(remembered) {
            Some(storage) => Self { storage, explicit: true },
            None if keyring.may_exist(env) => Self { storage: Storage::Keyring, explicit: false },
            None => Self { storage: Storage::File, explicit: false },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn explicit_choices_take_precedence() {
        let env = |value: &str| Env::Fixed(HashMap::from([(STORAGE_ENV.into(), value.into())]));
        let preference = |flag, remembered, value| {
            StoragePreference::resolve(flag, remembered, Keyring::None, &env(value))
        };
        let (keyring, file, none) = (Storage::Keyring, Storage::File, Storage::None);
        for (flag, remembered, variable, storage, explicit) in [
            (None, None, "", file, false),
            (Some(keyring), Some(file), "none", keyring, true),
            (None, Some(file), "none", none, true),
            (None, Some(none), "", none, true),
        ] {
            assert_eq!(
                preference(flag, remembered, variable).unwrap(),
                StoragePreference { storage, explicit }
            );
        }
        assert!(preference(None, None, "disk").unwrap_err().message.contains("disk"));
    }

    #[test]
    fn names_match_serde() {
        for storage in [Storage::Keyring, Storage::File, Storage::None] {
            assert_eq!(serde_json::to_value(storage).unwrap(), storage.as_str());
            assert_eq!(Storage::parse(storage.as_str()), Some(storage));
        }
    }
}
