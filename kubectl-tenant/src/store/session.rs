//! The session with a broker: one file each, with the refresh token and the last access token.

use std::path::{Path, PathBuf};

use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use tenant_cached_token::BACKWARD_TOLERANCE;
use tenant_shared::WireTime;

use super::secret;
use crate::{
    broker_url::BrokerUrl,
    error::Error,
    identity::{Identity, ProfileName},
    lock::{self, Outcome},
    paths::Paths,
    private_file::{self, Found, Replacement},
    world::Messages,
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
    /// Used once and replaced by its successor.
    #[serde(with = "secret")]
    pub(crate) refresh_token: SecretString,
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
        refresh_token: SecretString,
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
            refresh_token,
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
    messages: Messages,
}

impl Sessions {
    pub(crate) fn new(paths: &Paths, identity: &Identity, messages: &Messages) -> Self {
        let name = identity.key();
        Self {
            path: paths.sessions().join(format!("{name}.json")),
            lock: paths.locks().join(format!("session-{name}.lock")),
            messages: messages.clone(),
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

    /// Makes sure that a session can be stored, before one is fetched that would otherwise be lost.
    pub(crate) fn prepare(&self) -> Result<Pending, Error> {
        Ok(Pending(Replacement::begin(&self.path)?))
    }

    /// Stores a session.
    pub(crate) fn write(&self, session: &Session) -> Result<(), Error> {
        self.prepare()?.save(session)
    }

    /// Adds to the stored session what the broker says about it. Only that: its tokens may have been
    /// renewed meanwhile.
    pub(crate) async fn describe(&self, email: &str, expires_at: WireTime) -> Result<(), Error> {
        let lock = lock::acquire(&self.lock, lock::LONGEST_WAIT, || None::<()>).await?;
        if let (Outcome::Held(_), Some(mut session)) = (&lock, self.read()?) {
            email.clone_into(&mut session.email);
            session.expires_at = Some(expires_at);
            self.write(&session)?;
        }
        Ok(())
    }

    /// Forgets the session.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        private_file::remove(&self.path)?;
        private_file::remove(&self.path.with_extension("corrupt"))
    }
}

/// A session file that is ready to be written.
pub(crate) struct Pending(Replacement);

impl Pending {
    pub(crate) fn save(self, session: &Session) -> Result<(), Error> {
        let bytes = serde_json::to_vec(session)
            .map_err(|error| Error::other(format!("cannot write the session: {error}")))?;
        self.0.finish(&bytes)
    }
}
