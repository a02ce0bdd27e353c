//! Keys of the issuer: they sign ID tokens and seal secrets that the database stores.

mod aead;

use std::{fmt, path::PathBuf};

use serde::Serialize;

use self::aead::SealingKeys;
pub use crate::base::signing::{KeyError, generate_if_missing};
use crate::base::{
    reload::{FileSource, Files, Loaded},
    signing::{Jwk, PrivateKey},
    telemetry::Metrics,
};

/// Header `typ` of ID tokens (RFC 7519 section 5.1).
const ID_TOKEN: &str = "JWT";

/// The keys of the issuer. `Debug` does not print their private parts.
pub(super) struct SigningKeys {
    /// At least one; the first signs.
    keys: Vec<PrivateKey>,
    sealing_keys: SealingKeys,
}

impl fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKeys").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl SigningKeys {
    fn new(keys: Vec<PrivateKey>) -> Self {
        let mut sealing_keys = SealingKeys::default();
        for key in &keys {
            sealing_keys.add(&key.secret_bytes());
        }
        Self { keys, sealing_keys }
    }

    /// The public keys, the signing one first.
    pub(super) fn published(&self) -> Vec<&Jwk> {
        self.keys.iter().map(PrivateKey::jwk).collect()
    }

    /// The keys that seal secrets for the database.
    pub(super) fn sealing_keys(&self) -> &SealingKeys {
        &self.sealing_keys
    }

    /// Signs claims as a JWT (RFC 7519) that names its key.
    pub(super) fn sign(&self, claims: &impl Serialize) -> jsonwebtoken::errors::Result<String> {
        self.keys[0].sign(ID_TOKEN, claims)
    }
}

/// The files with the keys: the first key of the first file signs.
pub(super) struct SigningKeyFiles {
    pub(super) paths: Vec<PathBuf>,
    pub(super) metrics: Metrics,
}

impl FileSource for SigningKeyFiles {
    type Value = SigningKeys;
    type Error = KeyError;

    const ADVICE: &'static str = "repair the key files (issuer.signing_key_files); they are read \
                                  again by themselves";

    fn load(&self, files: &mut Files) -> Result<Loaded<SigningKeys>, KeyError> {
        PrivateKey::load(&self.paths, files).map(SigningKeys::new).map(Loaded::without_end)
    }

    fn in_use(&self, keys: &SigningKeys, replaced: Option<&SigningKeys>) {
        let published = keys.published();
        self.metrics.signing_keys(published.len());
        let before = replaced.map(SigningKeys::published).unwrap_or_default();
        for removed in before.into_iter().filter(|key| !published.contains(key)) {
            tracing::warn!(
                kid = removed.kid(),
                "a signing key was removed: ID tokens that it signed no longer verify, and sessions \
                 of providers whose refresh tokens it sealed end at their next renewal"
            );
        }
    }
}
