//! Keys of the issuer: they sign ID tokens and seal secrets that the database stores.

use std::{fmt, path::PathBuf};

use serde::Serialize;

use super::aead::SealingKeys;
use crate::base::signing::{Jwk, PrivateKey};
pub use crate::base::signing::{KeyError, generate_if_missing};

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
    /// Loads keys from PEM files; the first one signs.
    pub(super) fn load(files: &[PathBuf]) -> Result<Self, KeyError> {
        let keys = PrivateKey::load(files)?;
        let mut sealing_keys = SealingKeys::default();
        for key in &keys {
            sealing_keys.add(&key.secret_bytes());
        }
        Ok(Self { keys, sealing_keys })
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
