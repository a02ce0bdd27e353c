//! The session with a broker: one file each, with the refresh token and the last access token.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use tenant_cached_token::BACKWARD_TOLERANCE;
use tenant_shared::WireTime;

use super::{Keyring, Storage, Wish, keyring::PATIENCE, secret};
use crate::{
    broker_url::BrokerUrl,
    error::Error,
    identity::{Identity, ProfileName},
    lock::{self, Outcome},
    paths::Paths,
    private_file::{self, Found, Replacement},
    world::{Messages, World},
};

/// Version of the file's schema.
const VERSION: u32 = 1;
/// An access token that has less than this many seconds left is not used any more.
const ACCESS_MARGIN: i64 = 30;

/// A session as it is stored. Times are Unix seconds of this machine's clock, except where said.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Session {
    version: u32,
    /// Whose session it is.
    pub(crate) broker: BrokerUrl,
    /// And which of the person's accounts there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    profile: Option<ProfileName>,
    /// Subject of the ID token: the user's identifier.
    pub(crate) subject: String,
    /// The address they signed in with.
    pub(crate) email: String,
    /// Where tokens are renewed (RFC 6749 section 3.2).
    pub(crate) token_endpoint: String,
    /// Where tokens are revoked (RFC 7009), if the issuer can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revocation_endpoint: Option<String>,
    /// Where the refresh token is.
    #[serde(default)]
    pub(crate) storage: Storage,
    /// Used once and replaced by its successor. Only here if it is stored here.
    #[serde(default, with = "optional_secret", skip_serializing_if = "Option::is_none")]
    refresh_token: Option<SecretString>,
    /// The bearer of the broker's API.
    #[serde(flatten)]
    pub(crate) access: AccessToken,
    /// When the person signed in.
    pub(crate) signed_in_at: i64,
    /// When the session ends at the latest, by the broker's clock.
    #[serde(default, rename = "session_expires_at", skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<WireTime>,
}

/// An access token and how long it may be used.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AccessToken {
    /// Opaque to us.
    #[serde(rename = "access_token", with = "secret")]
    pub(crate) token: SecretString,
    /// When it was asked for.
    #[serde(rename = "access_received_at")]
    pub(crate) received_at: i64,
    /// When it ends.
    #[serde(rename = "access_expires_at")]
    pub(crate) expires_at: i64,
}

impl AccessToken {
    /// Whether it can still be used for a request.
    pub(crate) fn is_good(&self, now: i64) -> bool {
        now >= self.received_at - BACKWARD_TOLERANCE && now < self.expires_at - ACCESS_MARGIN
    }
}

impl Session {
    /// A session that has just begun.
    pub(crate) fn new(
        identity: Identity,
        subject: String,
        endpoints: (String, Option<String>),
        storage: Storage,
        access: AccessToken,
    ) -> Self {
        let (token_endpoint, revocation_endpoint) = endpoints;
        Self {
            version: VERSION,
            broker: identity.broker,
            profile: identity.profile,
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
}

/// The place of one account's session.
#[derive(Clone)]
pub(crate) struct Sessions {
    path: PathBuf,
    lock: PathBuf,
    /// Name of the keyring's entry. A person may have several homes and one keyring.
    entry: String,
    keyring: Keyring,
    messages: Messages,
}

impl Sessions {
    pub(crate) fn new(paths: &Paths, identity: &Identity, world: &World) -> Self {
        let name = identity.key();
        Self {
            path: paths.sessions().join(format!("{name}.json")),
            lock: paths.locks().join(format!("session-{name}.lock")),
            entry: format!("{identity} in {}", paths.state.display()),
            keyring: world.keyring,
            messages: world.stderr.clone(),
        }
    }

    /// The lock under which the refresh token is used and replaced.
    pub(crate) fn lock_path(&self) -> &Path {
        &self.lock
    }

    /// The session, if there is one. One that cannot be read is set aside: a person has to sign in
    /// again, and is told why.
    pub(crate) fn read(&self) -> Result<Option<Session>, Error> {
        let (bytes, remark) = match private_file::read(&self.path)? {
            Found::Absent => return Ok(None),
            Found::Foreign(why) => {
                return Err(Error::other(format!("the session cannot be used: {why}")).hint(
                    format!(
                        "run as the user who signed in, or delete it: rm {}",
                        self.path.display()
                    ),
                ));
            }
            Found::Bytes { bytes, remark, .. } => (bytes, remark),
        };
        if let Some(remark) = remark {
            self.messages.say(remark);
        }
        match serde_json::from_slice::<Session>(&bytes) {
            Ok(session) if session.version == VERSION => Ok(Some(session)),
            _ => {
                self.messages.say(private_file::quarantine(&self.path));
                Ok(None)
            }
        }
    }

    /// Whether there is a session file at all; cheap.
    pub(crate) fn exists(&self) -> bool {
        self.path.symlink_metadata().is_ok()
    }

    /// Asks the keyring whether it is there, before a person signs in. Gives what is wished for, or
    /// a file and why there is nothing better.
    pub(crate) fn probe(&self, wish: Wish) -> Result<(Storage, Option<String>), Error> {
        if wish.storage != Storage::Keyring {
            return Ok((wish.storage, None));
        }
        match self.keyring.get(&self.entry, wish.patience()) {
            Ok(_) => Ok((Storage::Keyring, None)),
            Err(why) if wish.chosen => {
                Err(Error::other(format!("the keyring cannot be used: {why}"))
                    .hint("unlock it, or use --storage file"))
            }
            Err(why) => Ok((Storage::File, Some(why))),
        }
    }

    /// Makes sure that a session can be stored, before one is fetched that would otherwise be lost.
    pub(crate) fn prepare(&self) -> Result<Pending, Error> {
        Ok(Pending(Replacement::begin(&self.path)?))
    }

    /// The refresh token of a session; [`None`] if nothing long-lived is kept.
    pub(crate) fn refresh_token(&self, session: &Session) -> Result<Option<SecretString>, Error> {
        match session.storage {
            Storage::None => Ok(None),
            Storage::File => Ok(session.refresh_token.clone()),
            Storage::Keyring => self.keyring.get(&self.entry, PATIENCE).map_err(|why| {
                Error::other(format!("the session is in the keyring, which cannot be read: {why}"))
                    .hint("unlock the keyring, or sign in again with --storage file")
            }),
        }
    }

    /// Stores a session with a new refresh token, where the session says. A keyring that fails gets
    /// a file instead if `may_fall_back`: a session that is renewed must not be lost.
    pub(crate) fn save(
        &self,
        place: Pending,
        session: &mut Session,
        refresh_token: &SecretString,
        (wait, may_fall_back): (Duration, bool),
    ) -> Result<(), Error> {
        session.refresh_token = None;
        if session.storage == Storage::Keyring
            && let Err(why) = self.keyring.set(&self.entry, refresh_token, wait)
        {
            if !may_fall_back {
                return Err(Error::other(format!("the keyring cannot be used: {why}"))
                    .hint("unlock it, or use --storage file"));
            }
            self.messages.say(format!(
                "The keyring cannot be used ({why}); the session is in a private file instead."
            ));
            session.storage = Storage::File;
        }
        if session.storage == Storage::File {
            session.refresh_token = Some(refresh_token.clone());
        }
        place.write(session)
    }

    /// Forgets what the keyring has, if a session says that it has something.
    pub(crate) fn clear_keyring(&self, session: &Session) {
        if session.storage == Storage::Keyring
            && let Err(why) = self.keyring.delete(&self.entry, PATIENCE)
        {
            self.messages
                .say(format!("warning: the entry {:?} is still in the keyring: {why}", self.entry));
        }
    }

    /// Adds to the stored session what the broker says about it. Only that: its tokens may have been
    /// renewed meanwhile.
    pub(crate) async fn describe(&self, email: &str, expires_at: WireTime) -> Result<(), Error> {
        let lock = lock::acquire(&self.lock, lock::LONGEST_WAIT, || None::<()>).await?;
        if let (Outcome::Held(_), Some(mut session)) = (&lock, self.read()?) {
            email.clone_into(&mut session.email);
            session.expires_at = Some(expires_at);
            self.prepare()?.write(&session)?;
        }
        Ok(())
    }

    /// Forgets the session.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        if let Ok(Some(session)) = self.read() {
            self.clear_keyring(&session);
        }
        private_file::remove(&self.path)?;
        private_file::remove(&self.path.with_extension("corrupt"))
    }
}

/// A session file that is ready to be written.
pub(crate) struct Pending(Replacement);

impl Pending {
    /// Writes a session as it is: its refresh token is where it was.
    pub(crate) fn write(self, session: &Session) -> Result<(), Error> {
        let bytes = serde_json::to_vec(session)
            .map_err(|error| Error::other(format!("cannot write the session: {error}")))?;
        self.0.finish(&bytes)
    }
}

/// Serde for a secret that may be elsewhere.
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
