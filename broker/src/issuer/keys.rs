//! The keys that ID tokens are signed with, and what seals secrets that the database must keep.

use std::{fmt, path::PathBuf};

use serde::Serialize;

use super::seal::Seals;
use crate::signing::{Jwk, PrivateKey};
pub use crate::signing::{KeyError, generate_if_missing};

/// The kind of ID tokens (RFC 7519 section 5.1).
const ID_TOKEN: &str = "JWT";

/// The keys of the issuer. They do not print.
pub(super) struct SigningKeys {
    /// At least one; the first signs.
    keys: Vec<PrivateKey>,
    seals: Seals,
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
        let mut seals = Seals::default();
        for key in &keys {
            seals.add(&key.secret_bytes());
        }
        Ok(Self { keys, seals })
    }

    /// The public keys, the signing one first.
    pub(super) fn published(&self) -> Vec<&Jwk> {
        self.keys.iter().map(PrivateKey::jwk).collect()
    }

    /// What seals secrets that the database must keep.
    pub(super) fn seals(&self) -> &Seals {
        &self.seals
    }

    /// Signs claims as a JWT (RFC 7519) that names its key.
    pub(super) fn sign(&self, claims: &impl Serialize) -> jsonwebtoken::errors::Result<String> {
        self.keys[0].sign(ID_TOKEN, claims)
    }
}
