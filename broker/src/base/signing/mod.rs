//! Signing keys (ES256, RFC 7518 section 3.4) for ID tokens and for the audit trail's checkpoints.
//!
//! Several keys may be loaded, from one file or several: the first signs, all are published. So a
//! key can be published before it signs, and stays published until everything that it signed has
//! expired. The header `typ` of a JWS names its kind, and verification requires the expected one, so
//! that one kind never passes as another.

mod public;

use std::{
    fmt,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use p256::{
    FieldBytes, SecretKey,
    elliptic_curve::{Generate as _, sec1::ToSec1Point as _},
    pkcs8::{DecodePrivateKey as _, EncodePrivateKey as _, LineEnding},
};
use rustls_pki_types::{PrivateKeyDer, pem::PemObject as _};
use secrecy::ExposeSecret as _;
use serde::Serialize;

pub use public::{Jwk, JwksError, PublicKeys, SignatureError};

use super::reload::{FileError, Files};

/// A signing key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// No key file is configured.
    #[error("no signing key is named")]
    None,
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file contains no usable private key, an incomplete one, or one of another kind.
    #[error(
        "{path} holds no EC P-256 private key in PEM (PKCS#8 or SEC1), or not only such keys; make \
         one with `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256`",
        path = path.display()
    )]
    NotAKey {
        /// Path of the file.
        path: PathBuf,
    },
    /// A key is there twice.
    #[error("{path} holds a key that was there before; name each key once", path = path.display())]
    Twice {
        /// Path of the file.
        path: PathBuf,
    },
}

/// A private key. `Debug` prints its public half only.
pub struct PrivateKey {
    encoding: EncodingKey,
    jwk: Jwk,
    secret: SecretKey,
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").field("jwk", &self.jwk).finish_non_exhaustive()
    }
}

impl PrivateKey {
    /// Loads keys from PEM files, at least one from each.
    ///
    /// # Errors
    /// A file cannot be read, or contains something else than usable keys.
    pub fn load(paths: &[PathBuf], files: &mut Files) -> Result<Vec<Self>, KeyError> {
        let mut keys: Vec<Self> = Vec::new();
        for path in paths {
            let pem = files.read(path)?;
            let found = Self::parse_all(pem.expose_secret())
                .ok_or_else(|| KeyError::NotAKey { path: path.clone() })?;
            for key in found {
                if keys.iter().any(|known| known.jwk == key.jwk) {
                    return Err(KeyError::Twice { path: path.clone() });
                }
                keys.push(key);
            }
        }
        if keys.is_empty() { Err(KeyError::None) } else { Ok(keys) }
    }

    /// Parses the private keys of a PEM file; sections of other kinds, such as EC parameters, are
    /// skipped. `None` if there is no key, or one that is no P-256 key.
    fn parse_all(pem: &[u8]) -> Option<Vec<Self>> {
        let keys = PrivateKeyDer::pem_slice_iter(pem)
            .map(|key| Self::from_der(&key.ok()?))
            .collect::<Option<Vec<_>>>()?;
        (!keys.is_empty()).then_some(keys)
    }

    fn from_der(key: &PrivateKeyDer<'_>) -> Option<Self> {
        let secret = match key {
            PrivateKeyDer::Pkcs8(der) => SecretKey::from_pkcs8_der(der.secret_pkcs8_der()).ok()?,
            PrivateKeyDer::Sec1(der) => SecretKey::from_sec1_der(der.secret_sec1_der()).ok()?,
            _ => return None,
        };
        Self::from_secret_key(secret)
    }

    fn from_secret_key(secret: SecretKey) -> Option<Self> {
        let point = secret.public_key().to_sec1_point(false);
        let jwk = Jwk::new(URL_SAFE_NO_PAD.encode(point.x()?), URL_SAFE_NO_PAD.encode(point.y()?));
        let der = secret.to_pkcs8_der().ok()?;
        Some(Self { encoding: EncodingKey::from_ec_der(der.as_bytes()), jwk, secret })
    }

    /// Generates a key for tests.
    #[cfg(test)]
    pub(crate) fn generate() -> Self {
        Self::from_secret_key(SecretKey::try_generate().unwrap()).unwrap()
    }

    /// The public key.
    pub fn jwk(&self) -> &Jwk {
        &self.jwk
    }

    /// The private scalar, for the derivation of other keys.
    pub(crate) fn secret_bytes(&self) -> FieldBytes {
        self.secret.to_bytes()
    }

    /// Signs claims as a compact JWS whose header names the key (`kid`) and the kind (`typ`).
    ///
    /// # Errors
    /// The claims cannot be serialized as JSON.
    pub fn sign(&self, typ: &str, claims: &impl Serialize) -> jsonwebtoken::errors::Result<String> {
        let mut header = Header::new(Algorithm::ES256);
        header.typ = Some(typ.to_owned());
        header.kid = Some(self.jwk.kid().to_owned());
        jsonwebtoken::encode(&header, claims, &self.encoding)
    }
}

/// Generates a signing key in this file, mode 0600, if the file does not exist. The file is created
/// atomically and never replaced, so processes that start at the same time agree on one key.
///
/// # Errors
/// The folder cannot be written to, or the system's random number generator failed.
pub fn generate_if_missing(path: &Path) -> io::Result<()> {
    if path.try_exists()? {
        return Ok(());
    }
    let key = SecretKey::try_generate().map_err(io::Error::other)?;
    let pem = key.to_pkcs8_pem(LineEnding::LF).map_err(io::Error::other)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    // The file is created with mode 0600, so others can never read it.
    let mut file = tempfile::Builder::new().prefix(".issuer-key-").tempfile_in(folder)?;
    file.write_all(pem.as_bytes())?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Ok(_) => std::fs::File::open(folder)?.sync_all(),
        Err(lost) if lost.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(failed) => Err(failed.error),
    }
}

#[cfg(test)]
mod tests;
