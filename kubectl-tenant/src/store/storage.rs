//! Where the one long-lived secret of an account is kept, and who decides that.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Keyring,
    keyring::{PATIENCE, PATIENCE_WITH_A_PERSON},
};
use crate::{cli::STORAGE_ENV, error::Error, world::Env};

/// Where the refresh token is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Storage {
    /// In the system's keyring.
    Keyring,
    /// In a file that only its owner can read.
    #[default]
    File,
    /// Nowhere: the next sign-in is soon.
    None,
}

impl Storage {
    /// As written in options and data.
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

/// What is to be tried at a sign-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) storage: Storage,
    /// Whether a person chose it. Then there is nothing instead of it.
    pub(crate) chosen: bool,
}

impl Wish {
    /// How long a keyring may take.
    pub(crate) fn patience(self) -> Duration {
        if self.chosen { PATIENCE_WITH_A_PERSON } else { PATIENCE }
    }

    /// The flag, then `TENANT_STORAGE`, then what was chosen for this account before, then the
    /// keyring if there may be one.
    pub(crate) fn of(
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
            Some(storage) => Self { storage, chosen: true },
            None if keyring.may_exist(env) => Self { storage: Storage::Keyring, chosen: false },
            None => Self { storage: Storage::File, chosen: false },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn who_chooses_comes_first() {
        let env = |value: &str| Env::Fixed(HashMap::from([(STORAGE_ENV.into(), value.into())]));
        let wish = |flag, remembered, value| Wish::of(flag, remembered, Keyring::None, &env(value));
        let (keyring, file, none) = (Storage::Keyring, Storage::File, Storage::None);
        for (flag, remembered, variable, storage, chosen) in [
            (None, None, "", file, false),
            (Some(keyring), Some(file), "none", keyring, true),
            (None, Some(file), "none", none, true),
            (None, Some(none), "", none, true),
        ] {
            assert_eq!(wish(flag, remembered, variable).unwrap(), Wish { storage, chosen });
        }
        assert!(wish(None, None, "disk").unwrap_err().message.contains("disk"));
    }

    #[test]
    fn the_names_agree() {
        for storage in [Storage::Keyring, Storage::File, Storage::None] {
            assert_eq!(serde_json::to_value(storage).unwrap(), storage.as_str());
            assert_eq!(Storage::parse(storage.as_str()), Some(storage));
        }
    }
}
