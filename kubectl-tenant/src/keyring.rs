//! The system's keyring, which stores one small secret of each account: its refresh token.
//!
//! It is the Secret Service on Linux (of GNOME, KDE and others) and Keychain on macOS. A keyring
//! may be absent, locked, or ask the person for a password, so every call runs on its own thread
//! and has a timeout: kubectl must not hang. A cache hit never uses the keyring.

use std::{sync::mpsc, time::Duration};

use keyring_core::{Entry, Error as KeyringError};
use secrecy::{ExposeSecret, SecretString};

use crate::environment::Env;

/// Maximum size of a secret, in bytes. The smallest limit of the keyrings in use is far above this,
/// but not far enough for tokens that carry claims.
pub(crate) const MAX_SECRET_BYTES: usize = 512;
/// Timeout of a keyring that the person did not ask for.
pub(crate) const KEYRING_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of a keyring that the person asked for and may have to unlock with a password.
pub(crate) const INTERACTIVE_KEYRING_TIMEOUT: Duration = Duration::from_mins(1);
/// Service name under which the keyring's own program shows the entries.
const SERVICE: &str = "kubectl-tenant";

/// Keyring that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyring {
    /// Keyring of the user who runs this process.
    System,
    /// No keyring.
    None,
}

/// Cause of a failed keyring operation, as a part of a sentence.
pub(crate) type FailureReason = String;

impl Keyring {
    /// Whether there may be a keyring. The Secret Service is reached over the session bus.
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

    /// Stores a secret under a name.
    pub(crate) fn set(
        self,
        name: &str,
        secret: &SecretString,
        timeout: Duration,
    ) -> Result<(), FailureReason> {
        if secret.expose_secret().len() > MAX_SECRET_BYTES {
            return Err(format!("the secret is larger than {MAX_SECRET_BYTES} bytes"));
        }
        let secret = secret.clone();
        self.with_entry(name, timeout, move |entry| {
            entry.set_secret(secret.expose_secret().as_bytes())
        })
    }

    /// Reads the secret of a name; [`None`] if there is none.
    pub(crate) fn get(
        self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<SecretString>, FailureReason> {
        let found = self.with_entry(name, timeout, |entry| match entry.get_secret() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(KeyringError::NoEntry) => Ok(None),
            Err(error) => Err(error),
        })?;
        // This program stores only text, so other bytes are not its secret.
        Ok(found.and_then(|bytes| String::from_utf8(bytes).ok()).map(SecretString::from))
    }

    /// Deletes the secret of a name.
    pub(crate) fn delete(self, name: &str, timeout: Duration) -> Result<(), FailureReason> {
        self.with_entry(name, timeout, |entry| match entry.delete_credential() {
            Err(KeyringError::NoEntry) => Ok(()),
            other => other,
        })
    }

    /// Runs an operation on an entry, with a timeout. A thread that hangs ends with the program.
    fn with_entry<T: Send + 'static>(
        self,
        name: &str,
        timeout: Duration,
        work: impl FnOnce(&Entry) -> keyring_core::Result<T> + Send + 'static,
    ) -> Result<T, FailureReason> {
        if self == Self::None {
            return Err("there is none".to_owned());
        }
        let (sender, receiver) = mpsc::channel();
        let name = name.to_owned();
        std::thread::spawn(move || {
            let done = open_entry(&name).and_then(|entry| work(&entry));
            let _ = sender.send(done.map_err(|error| describe(&error)));
        });
        receiver.recv_timeout(timeout).unwrap_or_else(|_| {
            Err(format!("it did not answer within {} s; it may be locked", timeout.as_secs()))
        })
    }
}

/// Describes an error in one line, without the secret.
fn describe(error: &KeyringError) -> FailureReason {
    let text = match error {
        KeyringError::PlatformFailure(why) | KeyringError::NoStorageAccess(why) => why.to_string(),
        KeyringError::NoEntry => "it has no such entry".to_owned(),
        KeyringError::NoDefaultStore => "there is none".to_owned(),
        // The texts of other errors may quote the secret.
        _ => "it refused the entry".to_owned(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(target_os = "linux")]
fn open_entry(name: &str) -> keyring_core::Result<Entry> {
    use keyring_core::api::CredentialStoreApi;
    zbus_secret_service_keyring_store::Store::new()?.build(SERVICE, name, None)
}

#[cfg(target_os = "macos")]
fn open_entry(name: &str) -> keyring_core::Result<Entry> {
    use keyring_core::api::CredentialStoreApi;
    apple_native_keyring_store::keychain::Store::new()?.build(SERVICE, name, None)
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn open_entry(_: &str) -> keyring_core::Result<Entry> {
    Err(KeyringError::NoDefaultStore)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::HashMap, ffi::OsString};

    #[test]
    fn without_a_bus_there_is_no_keyring() {
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
    fn large_secrets_are_rejected() {
        let secret = SecretString::from("x".repeat(MAX_SECRET_BYTES + 1));
        let why = Keyring::System.set("n", &secret, KEYRING_TIMEOUT).unwrap_err();
        assert!(why.contains("512 bytes"), "{why}");
        assert!(Keyring::None.get("n", KEYRING_TIMEOUT).is_err());
    }

    #[test]
    fn a_keyring_operation_that_hangs_times_out() {
        let timeout = Duration::from_millis(10);
        let why = Keyring::System.with_entry("n", timeout, |_| -> keyring_core::Result<()> {
            loop {
                std::thread::park();
            }
        });
        // There is no keyring here, or the operation hangs; both are errors.
        assert!(why.is_err());
    }

    #[test]
    fn an_error_is_one_line_without_the_secret() {
        let error = KeyringError::BadEncoding(b"s3cret".to_vec());
        assert_eq!(describe(&error), "it refused the entry");
        let error = KeyringError::PlatformFailure("a\n  b".into());
        assert_eq!(describe(&error), "a b");
    }
}
