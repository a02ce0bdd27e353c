//! The keyring of the system, for one small secret of each account: its refresh token.
//!
//! Secret Service on Linux (that of GNOME, of KDE and others), Keychain on macOS. A keyring may be
//! absent, locked, or ask the person for a password, so every call runs on a thread of its own and is
//! given up after a time: kubectl must not hang. Nothing here is touched by a cache hit.

use std::{sync::mpsc, time::Duration};

use keyring_core::{Entry, Error as KeyringError};
use secrecy::{ExposeSecret, SecretString};

use crate::world::Env;

/// Larger secrets are not for keyrings: the smallest limit of those that are in use is far above,
/// but not by far enough for tokens that carry claims. In bytes.
pub(crate) const LARGEST: usize = 512;
/// How long a keyring may take when nobody asked for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// How long it may take if the person wants it and may have to type a password.
pub(crate) const PATIENCE_WITH_A_PERSON: Duration = Duration::from_mins(1);
/// Under what the keyring's own program shows the entries.
const SERVICE: &str = "kubectl-tenant";

/// Whether there may be a keyring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyring {
    /// That of the person who runs this process.
    System,
    /// None.
    None,
}

/// Why a keyring did not do what was asked, as a part of a sentence.
pub(crate) type Why = String;

impl Keyring {
    /// Whether it is worth asking: Secret Service is reached over the session bus.
    pub(crate) fn may_exist(self, env: &Env) -> bool {
        let has_bus = || {
            let socket =
                env.get("XDG_RUNTIME_DIR").map(|it| std::path::PathBuf::from(it).join("bus"));
            env.get("DBUS_SESSION_BUS_ADDRESS").is_some() || socket.is_some_and(|it| it.exists())
        };
        match self {
            Self::None => false,
            Self::System if cfg!(target_os = "linux") => has_bus(),
            Self::System => cfg!(target_os = "macos"),
        }
    }

    /// Keeps a secret under a name.
    pub(crate) fn set(self, name: &str, secret: &SecretString, wait: Duration) -> Result<(), Why> {
        if secret.expose_secret().len() > LARGEST {
            return Err(format!("the secret is larger than {LARGEST} bytes"));
        }
        let secret = secret.clone();
        self.with(name, wait, move |entry| entry.set_secret(secret.expose_secret().as_bytes()))
    }

    /// The secret of a name, [`None`] if there is none.
    pub(crate) fn get(self, name: &str, wait: Duration) -> Result<Option<SecretString>, Why> {
        let found = self.with(name, wait, |entry| match entry.get_secret() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(KeyringError::NoEntry) => Ok(None),
            Err(error) => Err(error),
        })?;
        // What is no text was not put there by this program.
        Ok(found.and_then(|bytes| String::from_utf8(bytes).ok()).map(SecretString::from))
    }

    /// Forgets the secret of a name.
    pub(crate) fn delete(self, name: &str, wait: Duration) -> Result<(), Why> {
        self.with(name, wait, |entry| match entry.delete_credential() {
            Err(KeyringError::NoEntry) => Ok(()),
            other => other,
        })
    }

    /// Does something with an entry, for a bounded time. The thread ends with the program.
    fn with<T: Send + 'static>(
        self,
        name: &str,
        wait: Duration,
        work: impl FnOnce(&Entry) -> keyring_core::Result<T> + Send + 'static,
    ) -> Result<T, Why> {
        if self == Self::None {
            return Err("there is none".to_owned());
        }
        let (sender, receiver) = mpsc::channel();
        let name = name.to_owned();
        std::thread::spawn(move || {
            let done = entry(&name).and_then(|entry| work(&entry));
            let _ = sender.send(done.map_err(|error| text(&error)));
        });
        receiver.recv_timeout(wait).unwrap_or_else(|_| {
            Err(format!("it did not answer within {} s; it may be locked", wait.as_secs()))
        })
    }
}

/// What failed, in one line and without what was to be stored.
fn text(error: &KeyringError) -> Why {
    let text = match error {
        KeyringError::PlatformFailure(why) | KeyringError::NoStorageAccess(why) => why.to_string(),
        KeyringError::NoEntry => "it has no such entry".to_owned(),
        KeyringError::NoDefaultStore => "there is none".to_owned(),
        // Their texts may quote the secret.
        _ => "it refused the entry".to_owned(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(target_os = "linux")]
fn entry(name: &str) -> keyring_core::Result<Entry> {
    use keyring_core::api::CredentialStoreApi;
    zbus_secret_service_keyring_store::Store::new()?.build(SERVICE, name, None)
}

#[cfg(target_os = "macos")]
fn entry(name: &str) -> keyring_core::Result<Entry> {
    use keyring_core::api::CredentialStoreApi;
    apple_native_keyring_store::keychain::Store::new()?.build(SERVICE, name, None)
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn entry(_: &str) -> keyring_core::Result<Entry> {
    Err(KeyringError::NoDefaultStore)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::HashMap, ffi::OsString};

    #[test]
    fn without_a_bus_nobody_is_asked() {
        let env = |name: &str, value: &str| {
            Env::Fixed(HashMap::from([(OsString::from(name), OsString::from(value))]))
        };
        if cfg!(target_os = "linux") {
            assert!(!Keyring::System.may_exist(&env("HOME", "/h")));
            assert!(!Keyring::System.may_exist(&env("XDG_RUNTIME_DIR", "/nonexistent")));
            assert!(Keyring::System.may_exist(&env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/b")));
        }
        assert!(!Keyring::None.may_exist(&env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/b")));
    }

    #[test]
    fn only_small_secrets_go_in() {
        let secret = SecretString::from("x".repeat(LARGEST + 1));
        let why = Keyring::System.set("n", &secret, PATIENCE).unwrap_err();
        assert!(why.contains("512 bytes"), "{why}");
        assert!(Keyring::None.get("n", PATIENCE).is_err());
    }

    #[test]
    fn a_keyring_that_does_not_answer_is_given_up() {
        let wait = Duration::from_millis(10);
        let why = Keyring::System.with("n", wait, |_| -> keyring_core::Result<()> {
            loop {
                std::thread::park();
            }
        });
        // Here there is none at all, or it is the one that parks.
        assert!(why.is_err());
    }

    #[test]
    fn an_error_is_one_line_without_the_secret() {
        let error = KeyringError::BadEncoding(b"s3cret".to_vec());
        assert_eq!(text(&error), "it refused the entry");
        let error = KeyringError::PlatformFailure("a\n  b".into());
        assert_eq!(text(&error), "a b");
    }
}
