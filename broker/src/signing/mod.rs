//! Keys that sign (ES256, RFC 7518 section 3.4), for ID tokens and for the audit trail's checkpoints.
//!
//! Several may be loaded: the first signs, all are published, so that a key can be introduced before
//! it signs and stay known until what it signed has expired. Whatever is signed says in its header
//! (`typ`) what it is, and whoever checks it asks for that, so that one kind never passes as another.

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
use serde::Serialize;

pub use public::{Jwk, NoKeys, PublicKeys, Unproven};

/// A signing key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// No file is named.
    #[error("no signing key is named")]
    None,
    /// The file cannot be read.
    #[error("cannot read the signing key {path}: {cause}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The file holds something else.
    #[error(
        "{path} holds no EC P-256 private key in PEM (PKCS#8 or SEC1); make one with \
         `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256`", path = path.display()
    )]
    NotAKey {
        /// The file.
        path: PathBuf,
    },
    /// The same key twice.
    #[error("{path} holds the same key as a file before it; name each key once", path = path.display())]
    Twice {
        /// The file.
        path: PathBuf,
    },
}

/// A private key. It does not print.
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
    /// Loads keys from PEM files, at least one.
    ///
    /// # Errors
    /// A file that cannot be used, and why.
    pub fn load(files: &[PathBuf]) -> Result<Vec<Self>, KeyError> {
        let mut keys: Vec<Self> = Vec::new();
        for path in files {
            let pem = std::fs::read(path)
                .map_err(|cause| KeyError::Unreadable { path: path.clone(), cause })?;
            let key = Self::parse(&pem).ok_or_else(|| KeyError::NotAKey { path: path.clone() })?;
            if keys.iter().any(|known| known.jwk == key.jwk) {
                return Err(KeyError::Twice { path: path.clone() });
            }
            keys.push(key);
        }
        if keys.is_empty() { Err(KeyError::None) } else { Ok(keys) }
    }

    /// The first private key of a PEM file; sections of other kinds, such as EC parameters, are
    /// passed.
    fn parse(pem: &[u8]) -> Option<Self> {
        let secret = match PrivateKeyDer::from_pem_slice(pem).ok()? {
            PrivateKeyDer::Pkcs8(der) => SecretKey::from_pkcs8_der(der.secret_pkcs8_der()).ok()?,
            PrivateKeyDer::Sec1(der) => SecretKey::from_sec1_der(der.secret_sec1_der()).ok()?,
            _ => return None,
        };
        Self::of(secret)
    }

    fn of(secret: SecretKey) -> Option<Self> {
        let point = secret.public_key().to_sec1_point(false);
        let jwk = Jwk::new(URL_SAFE_NO_PAD.encode(point.x()?), URL_SAFE_NO_PAD.encode(point.y()?));
        let der = secret.to_pkcs8_der().ok()?;
        Some(Self { encoding: EncodingKey::from_ec_der(der.as_bytes()), jwk, secret })
    }

    /// A key for tests, known to nobody else.
    #[cfg(test)]
    pub(crate) fn generate() -> Self {
        Self::of(SecretKey::try_generate().unwrap()).unwrap()
    }

    /// The public half.
    pub fn jwk(&self) -> &Jwk {
        &self.jwk
    }

    /// The secret itself, for keys that follow from it.
    pub(crate) fn secret_bytes(&self) -> FieldBytes {
        self.secret.to_bytes()
    }

    /// Signs claims as a compact JWS that names its key and what it is (`typ`).
    ///
    /// # Errors
    /// The claims cannot be written as JSON.
    pub fn sign(&self, typ: &str, claims: &impl Serialize) -> jsonwebtoken::errors::Result<String> {
        let mut header = Header::new(Algorithm::ES256);
        header.typ = Some(typ.to_owned());
        header.kid = Some(self.jwk.kid().to_owned());
        jsonwebtoken::encode(&header, claims, &self.encoding)
    }
}

/// Makes a signing key in this file, mode 0600, if the file is not there. The file appears whole or
/// not at all, and is never replaced, so that processes that start at once agree on one key.
///
/// # Errors
/// The folder cannot be written to, or the system has no randomness.
pub fn generate_if_missing(path: &Path) -> io::Result<()> {
    if path.try_exists()? {
        return Ok(());
    }
    let key = SecretKey::try_generate().map_err(io::Error::other)?;
    let pem = key.to_pkcs8_pem(LineEnding::LF).map_err(io::Error::other)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    // Born with mode 0600, so that it is never open to others.
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
