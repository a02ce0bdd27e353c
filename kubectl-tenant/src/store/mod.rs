//! What is remembered between calls: brokers (no secret) and sessions (secret).
//!
//! Both are files of this one person. Sessions are apart from Kubernetes tokens, so that a damaged
//! token costs a request and not a sign-in.

mod profiles;
mod session;

pub(crate) use profiles::Profiles;
pub(crate) use session::{AccessToken, BACKWARD_TOLERANCE, Session, Sessions};

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serializer};

/// Serde for a secret that has to go into a file. The only way by which one leaves its type.
pub(crate) mod secret {
    use super::{Deserialize, Deserializer, ExposeSecret, SecretString, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        secret: &SecretString,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(secret.expose_secret())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<SecretString, D::Error> {
        String::deserialize(deserializer).map(SecretString::from)
    }
}
