//! Sessions with a broker: one file for each account, with the refresh token and the last access
//! token.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use tenant_cached_token::CLOCK_SETBACK_TOLERANCE_SECONDS;
use tenant_shared::WireTime;

use super::{Storage, StoragePreference, secret};
use crate::{
    account_key::{AccountKey, ProfileName},
    broker_url::BrokerUrl,
    error::Error,
    keyring::{KEYRING_TIMEOUT, Keyring},
    lock::{self, LockOutcome},
    paths::Paths,
    private_file::{self, PrivateFile, Replacement},
    world::{Messages, World},
};

/// Version of the file's schema.
const SCHEMA_VERSION: u32 = 1;
/// Version of the schema of the file with the user of a session that ended.
const USER_SCHEMA_VERSION: u32 = 1;
/// Seconds before its expiry at which an access token is no longer used.
const ACCESS_TOKEN_MARGIN_SECONDS: i64 = 30;

/// A stored session. Times are Unix seconds of this machine's clock, unless stated otherwise.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Session {
    version: u32,
    /// Broker of the account.
    pub(crate) broker: BrokerUrl,
    /// Profile name of the account, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    profile: Option<ProfileName>,
    /// Subject of the ID token: the user's identifier.
    pub(crate) subject: String,
    /// E-mail address of the user.
    pub(crate) email: String,
    /// Token endpoint (RFC 6749 section 3.2).
    pub(crate) token_endpoint: String,
    /// Revocation endpoint (RFC 7009), if the issuer has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revocation_endpoint: Option<String>,
    /// Where the refresh token is stored.
    #[serde(default)]
    pub(crate) storage: Storage,
    /// Refresh token, if it is stored in this file. It works once and is then replaced.
    #[serde(default, with = "optional_secret", skip_serializing_if = "Option::is_none")]
    refresh_token: Option<SecretString>,
    /// Access token for the broker's API.
    #[serde(flatten)]
    pub(crate) access: AccessToken,
    /// When the person signed in.
    pub(crate) signed_in_at: i64,
    /// When the session ends at the latest, by the broker's clock.
    #[serde(default, rename = "session_expires_at", skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<WireTime>,
}

/// User of a session. It is stored when the session ends at the broker, and contains no token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionUser {
    version: u32,
    /// Subject of the ID token: the user's identifier.
    pub(crate) subject: String,
    /// E-mail address of the user; empty if it was not known.
    pub(crate) email: String,
}

impl From<&Session> for SessionUser {
    fn from(session: &Session) -> Self {
        Self {
            version: USER_SCHEMA_VERSION,
            subject: session.subject.clone(),
            email: session.email.clone(),
        }
    }
}

/// An access token and its lifetime.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AccessToken {
    /// Opaque bearer token.
    #[serde(rename = "access_token", with = "secret")]
    pub(crate) token: SecretString,
    /// When the token was requested.
    #[serde(rename = "access_received_at")]
    pub(crate) received_at: i64,
    /// When the token expires.
    #[serde(rename = "access_expires_at")]
    pub(crate) expires_at: i64,
}

impl AccessToken {
    /// Whether the token can still be used for a request.
    pub(crate) fn is_usable(&self, now: i64) -> bool {
        now >= self.received_at - CLOCK_SETBACK_TOLERANCE_SECONDS
            && now < self.expires_at - ACCESS_TOKEN_MARGIN_SECONDS
    }
}

impl Session {
    /// Creates the session of a completed sign-in.
    pub(crate) fn new(
        account: AccountKey,
        subject: String,
        endpoints: (String, Option<String>),
        storage: Storage,
        access: AccessToken,
    ) -> Self {
        let (token_endpoint, revocation_endpoint) = endpoints;
        Self {
            version: SCHEMA_VERSION,
            broker: account.broker,
            profile: account.profile,
            subject,
            email: String::new(),
            token_endpoint,
            revocation_endpoint,
            storage,
            refresh_token: None,
            signed_in_at: access.received_at,
            access,
            expires_at: None,
        }
    }

    /// Account of the session.
    pub(crate) fn account(&self) -> AccountKey {
        AccountKey { broker: self.broker.clone(), profile: self.profile.clone() }
    }

    /// Whether the session cannot be used any more, as far as this machine knows.
    pub(crate) fn is_over(&self, now: i64) -> bool {
        let is_past = |end: WireTime| now >= end.0.as_second();
        let has_refresh_token = self.storage != Storage::None;
        self.expires_at.is_some_and(is_past) || (!has_refresh_token && !self.access.is_usable(now))
    }
}

/// Storage of one account's session.
#[derive(Clone)]
pub(crate) struct SessionStore {
    path: PathBuf,
    lock: PathBuf,
    /// Name of the keyring's entry. A person may have several home folders and one keyring.
    entry: String,
    keyring: Keyring,
    messages: Messages,
}

impl SessionStore {
    pub(crate) fn new(paths: &Paths, account: &AccountKey, world: &World) -> Self {
        let name = account.digest();
        Self {
            path: paths.sessions().join(format!("{name}.json")),
            lock: paths.locks().join(format!("session-{name}.lock")),
            entry: format!("{account} in {}", paths.state.display()),
            keyring: world.keyring,
            messages: world.stderr.clone(),
        }
    }

    /// Path of the lock that is held while the refresh token is used and replaced.
    pub(crate) fn lock_path(&self) -> &Path {
        &self.lock
    }

    /// Path of the file with the user of a session that ended at the broker.
    fn ended_path(&self) -> PathBuf {
        self.path.with_extension("ended")
    }

    /// Reads the session. A damaged one is quarantined with a warning, and the person has to sign
    /// in again.
    pub(crate) fn read(&self) -> Result<Option<Session>, Error> {
        let Some(bytes) = self.read_file(&self.path)? else { return Ok(None) };
        match serde_json::from_slice::<Session>(&bytes) {
            Ok(session) if session.version == SCHEMA_VERSION => Ok(Some(session)),
            _ => {
                self.messages.print_message(private_file::quarantine(&self.path));
                Ok(None)
            }
        }
    }

    /// Reads the user of a session that ended at the broker, if nobody has signed in or out since.
    /// A damaged file is an error, because it must not allow another person to sign in unnoticed.
    pub(crate) fn read_ended(&self) -> Result<Option<SessionUser>, Error> {
        let path = self.ended_path();
        let Some(bytes) = self.read_file(&path)? else { return Ok(None) };
        match serde_json::from_slice::<SessionUser>(&bytes) {
            Ok(user) if user.version == USER_SCHEMA_VERSION => Ok(Some(user)),
            _ => Err(Error::other(format!(
                "cannot read whose session ended: {} is damaged",
                path.display()
            ))
            .hint(format!("delete it, then sign in again: rm {}", path.display()))),
        }
    }

    /// Reads a file of the account; [`None`] if there is none.
    fn read_file(&self, path: &Path) -> Result<Option<Vec<u8>>, Error> {
        match private_file::read(path)? {
            PrivateFile::Missing => Ok(None),
            PrivateFile::Untrusted(why) => Err(Error::other(format!(
                "the session cannot be used: {why}"
            ))
            .hint(format!("run as the user who signed in, or delete it: rm {}", path.display()))),
            PrivateFile::Contents { bytes, warning, .. } => {
                if let Some(warning) = warning {
                    self.messages.print_message(warning);
                }
                Ok(Some(bytes))
            }
        }
    }

    /// Whether there is a session file; cheap.
    pub(crate) fn exists(&self) -> bool {
        self.path.symlink_metadata().is_ok()
    }

    /// Tries the keyring before a person signs in. Returns the preferred storage, or a file and why
    /// the keyring cannot be used.
    pub(crate) fn probe_storage(
        &self,
        preference: StoragePreference,
    ) -> Result<(Storage, Option<String>), Error> {
        if preference.storage != Storage::Keyring {
            return Ok((preference.storage, None));
        }
        match self.keyring.get(&self.entry, preference.keyring_timeout()) {
            Ok(_) => Ok((Storage::Keyring, None)),
            Err(why) if preference.explicit => {
                Err(Error::other(format!("the keyring cannot be used: {why}"))
                    .hint("unlock it, or use --storage file"))
            }
            Err(why) => Ok((Storage::File, Some(why))),
        }
    }

    /// Makes sure that a session can be stored before one is requested that would otherwise be
    /// lost.
    pub(crate) fn prepare(&self) -> Result<PendingSession, Error> {
        Ok(PendingSession(Replacement::begin(&self.path)?))
    }

    /// Returns the refresh token of a session; [`None`] if it was not stored.
    pub(crate) fn refresh_token(&self, session: &Session) -> Result<Option<SecretString>, Error> {
        match session.storage {
            Storage::None => Ok(None),
            Storage::File => Ok(session.refresh_token.clone()),
            Storage::Keyring => self.keyring.get(&self.entry, KEYRING_TIMEOUT).map_err(|why| {
                Error::other(format!("the session is in the keyring, which cannot be read: {why}"))
                    .hint("unlock the keyring, or sign in again with --storage file")
            }),
        }
    }

    /// Stores a session with a new refresh token in the session's storage. With `may_fall_back` a
    /// file replaces a keyring that fails, because a renewed session must not be lost.
    pub(crate) fn save(
        &self,
        pending: PendingSession,
        session: &mut Session,
        refresh_token: &SecretString,
        (timeout, may_fall_back): (Duration, bool),
    ) -> Result<(), Error> {
        session.refresh_token = None;
        if session.storage == Storage::Keyring
            && let Err(why) = self.keyring.set(&self.entry, refresh_token, timeout)
        {
            if !may_fall_back {
                return Err(Error::other(format!("the keyring cannot be used: {why}"))
                    .hint("unlock it, or use --storage file"));
            }
            self.messages.print_message(format!(
                "The keyring cannot be used ({why}); the session is in a private file instead."
            ));
            session.storage = Storage::File;
        }
        if session.storage == Storage::File {
            session.refresh_token = Some(refresh_token.clone());
        }
        pending.write(session)
    }

    /// Deletes the keyring's entry, if the session is stored there.
    pub(crate) fn clear_keyring(&self, session: &Session) {
        if session.storage == Storage::Keyring
            && let Err(why) = self.keyring.delete(&self.entry, KEYRING_TIMEOUT)
        {
            self.messages.print_message(format!(
                "warning: the entry {:?} is still in the keyring: {why}",
                self.entry
            ));
        }
    }

    /// Adds the user's details to the stored session. Changes nothing else, because the tokens may
    /// have been renewed meanwhile.
    pub(crate) async fn set_details(&self, email: &str, expires_at: WireTime) -> Result<(), Error> {
        let lock = lock::acquire(&self.lock, lock::LOCK_TIMEOUT, || None::<()>).await?;
        if let (LockOutcome::Acquired(_), Some(mut session)) = (&lock, self.read()?) {
            email.clone_into(&mut session.email);
            session.expires_at = Some(expires_at);
            self.prepare()?.write(&session)?;
        }
        Ok(())
    }

    /// Deletes a session that ended at the broker and stores its user, so that a later sign-in of
    /// another person is noticed. The caller holds the lock.
    pub(crate) fn end(&self, session: &Session) -> Result<(), Error> {
        let user = serde_json::to_vec(&SessionUser::from(session))
            .map_err(|error| Error::other(format!("cannot write whose session ended: {error}")))?;
        // Before the session is deleted, because a crash in between must not lose the user.
        private_file::write(&self.ended_path(), &user)?;
        self.remove_session()
    }

    /// Deletes the user of a session that ended. A failure is harmless, because the session that
    /// was just stored is compared first.
    pub(crate) fn forget_ended(&self) {
        let _ = private_file::remove(&self.ended_path());
    }

    /// Deletes the session of a person who signs out. The next sign-in may be of anybody.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        self.remove_session()?;
        private_file::remove(&self.ended_path())
    }

    fn remove_session(&self) -> Result<(), Error> {
        if let Ok(Some(session)) = self.read() {
            self.clear_keyring(&session);
        }
        private_file::remove(&self.path)?;
        private_file::remove(&self.path.with_extension("corrupt"))
    }
}

/// A session file that can be written.
pub(crate) struct PendingSession(Replacement);

impl PendingSession {
    /// Writes the session; its refresh token stays in its storage.
    pub(crate) fn write(self, session: &Session) -> Result<(), Error> {
        let bytes = serde_json::to_vec(session)
            .map_err(|error| Error::other(format!("cannot write the session: {error}")))?;
        self.0.finish(&bytes)
    }
}

/// Serde for a secret that may be stored elsewhere.
mod optional_secret {
    use secrecy::SecretString;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::secret;

    #[expect(clippy::ref_option, reason = "the form that serde calls")]
    pub(super) fn serialize<S: Serializer>(
        value: &Option<SecretString>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => secret::serialize(value, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SecretString>, D::Error> {
        Option::<SecretString>::deserialize(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt};

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn store(folder: &Path) -> SessionStore {
        SessionStore {
            path: folder.join("sessions/key.json"),
            lock: folder.join("locks/session-key.lock"),
            entry: "entry".to_owned(),
            keyring: Keyring::None,
            messages: Messages::to(std::io::sink()),
        }
    }

    /// Stores a session with canaries as its tokens.
    fn sign_in(store: &SessionStore) -> Session {
        let account = AccountKey::unnamed(BrokerUrl::parse("https://broker.example.com").unwrap());
        let endpoints = ("https://broker.example.com/oauth2/token".to_owned(), None);
        let access =
            AccessToken { token: "c4n4ry".into(), received_at: NOW, expires_at: NOW + 900 };
        let subject = "subject".to_owned();
        let mut session = Session::new(account, subject, endpoints, Storage::File, access);
        "alice@example.com".clone_into(&mut session.email);
        let refresh_token = SecretString::from("c4n4ry");
        let pending = store.prepare().unwrap();
        store.save(pending, &mut session, &refresh_token, (Duration::ZERO, true)).unwrap();
        session
    }

    #[test]
    fn the_user_of_an_ended_session_is_kept_without_tokens_until_a_sign_out() {
        let home = tempfile::tempdir().unwrap();
        let store = store(home.path());
        let session = sign_in(&store);
        assert_eq!(store.read_ended().unwrap(), None);
        store.end(&session).unwrap();
        assert!(!store.exists() && store.read().unwrap().is_none());
        let user = store.read_ended().unwrap().unwrap();
        assert_eq!((&*user.subject, &*user.email), ("subject", "alice@example.com"));
        let path = store.ended_path();
        assert!(!fs::read_to_string(&path).unwrap().contains("c4n4ry"));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        store.remove().unwrap();
        assert_eq!(store.read_ended().unwrap(), None);
        // A sign-out during a session leaves nothing, too.
        sign_in(&store);
        store.remove().unwrap();
        assert!(!store.exists() && store.read_ended().unwrap().is_none());
    }

    #[test]
    fn a_new_session_replaces_the_user_of_the_one_that_ended() {
        let home = tempfile::tempdir().unwrap();
        let store = store(home.path());
        store.end(&sign_in(&store)).unwrap();
        sign_in(&store);
        store.forget_ended();
        assert!(store.exists() && store.read_ended().unwrap().is_none());
    }

    #[test]
    fn a_damaged_user_of_an_ended_session_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        let store = store(home.path());
        for text in ["{", r#"{"version":2,"subject":"s","email":""}"#] {
            private_file::write(&store.ended_path(), text.as_bytes()).unwrap();
            let error = store.read_ended().unwrap_err();
            let command = format!("rm {}", store.ended_path().display());
            assert!(error.hint.unwrap().ends_with(&command));
        }
        store.remove().unwrap();
        assert_eq!(store.read_ended().unwrap(), None);
    }
}
