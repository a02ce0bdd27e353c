//! The keys that ID tokens are signed with (ES256, RFC 7518 section 3.4).
//!
//! Several may be loaded: the first signs, all are published, so that a key can be introduced before
//! it signs and stay known until what it signed has expired.

use std::{
    fmt,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use p256::{
    SecretKey,
    elliptic_curve::{Generate as _, sec1::ToSec1Point as _},
    pkcs8::{DecodePrivateKey as _, EncodePrivateKey as _, LineEnding},
};
use rustls_pki_types::{PrivateKeyDer, pem::PemObject as _};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::seal::Seals;

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

/// A public key as it is published (RFC 7517, RFC 7518 section 6.2.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Jwk {
    kty: &'static str,
    crv: &'static str,
    x: String,
    y: String,
    alg: &'static str,
    #[serde(rename = "use")]
    purpose: &'static str,
    kid: String,
}

/// The keys of the issuer. They do not print.
pub(super) struct SigningKeys {
    signing: EncodingKey,
    published: Vec<Jwk>,
    seals: Seals,
}

impl fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKeys").field("published", &self.published).finish_non_exhaustive()
    }
}

impl SigningKeys {
    /// Loads keys from PEM files; the first one signs.
    pub(super) fn load(files: &[PathBuf]) -> Result<Self, KeyError> {
        let mut signing = None;
        let mut published: Vec<Jwk> = Vec::new();
        let mut seals = Seals::default();
        for path in files {
            let pem = std::fs::read(path)
                .map_err(|cause| KeyError::Unreadable { path: path.clone(), cause })?;
            let (key, jwk, secret) =
                parse(&pem).ok_or_else(|| KeyError::NotAKey { path: path.clone() })?;
            if published.contains(&jwk) {
                return Err(KeyError::Twice { path: path.clone() });
            }
            signing.get_or_insert(key);
            published.push(jwk);
            seals.add(&secret.to_bytes());
        }
        Ok(Self { signing: signing.ok_or(KeyError::None)?, published, seals })
    }

    /// The public keys, the signing one first.
    pub(super) fn published(&self) -> &[Jwk] {
        &self.published
    }

    /// What seals secrets that the database must keep.
    pub(super) fn seals(&self) -> &Seals {
        &self.seals
    }

    /// Signs claims as a JWT (RFC 7519) that names its key.
    pub(super) fn sign(&self, claims: &impl Serialize) -> jsonwebtoken::errors::Result<String> {
        let mut header = Header::new(Algorithm::ES256);
        header.kid = self.published.first().map(|jwk| jwk.kid.clone());
        jsonwebtoken::encode(&header, claims, &self.signing)
    }
}

/// The first private key of a PEM file; sections of other kinds, such as EC parameters, are passed.
fn parse(pem: &[u8]) -> Option<(EncodingKey, Jwk, SecretKey)> {
    let secret = match PrivateKeyDer::from_pem_slice(pem).ok()? {
        PrivateKeyDer::Pkcs8(der) => SecretKey::from_pkcs8_der(der.secret_pkcs8_der()).ok()?,
        PrivateKeyDer::Sec1(der) => SecretKey::from_sec1_der(der.secret_sec1_der()).ok()?,
        _ => return None,
    };
    let point = secret.public_key().to_sec1_point(false);
    let (x, y) = (URL_SAFE_NO_PAD.encode(point.x()?), URL_SAFE_NO_PAD.encode(point.y()?));
    let kid = thumbprint(&x, &y);
    let der = secret.to_pkcs8_der().ok()?;
    let jwk = Jwk { kty: "EC", crv: "P-256", x, y, alg: "ES256", purpose: "sig", kid };
    Some((EncodingKey::from_ec_der(der.as_bytes()), jwk, secret))
}

/// Name of a key that follows from the key itself (RFC 7638 section 3).
fn thumbprint(x: &str, y: &str) -> String {
    // Coordinates are base64url, so nothing in them needs escaping.
    let canonical = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
    URL_SAFE_NO_PAD.encode(Sha256::digest(canonical.as_bytes()))
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
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// The P-256 example key of RFC 7515 appendix A.3 as SEC1, behind its parameters as openssl
    /// writes them.
    const SEC1: &str = include_str!("testdata/rfc7515-a3.pem");

    fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn the_example_key_of_the_rfc_has_its_published_coordinates() {
        let folder = tempfile::tempdir().unwrap();
        let keys = SigningKeys::load(&[written(folder.path(), "key.pem", SEC1)]).unwrap();
        let [jwk] = keys.published() else { panic!("one key") };
        assert_eq!(jwk.x, "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU");
        assert_eq!(jwk.y, "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0");
        assert_eq!(jwk.kid, thumbprint(&jwk.x, &jwk.y));
        assert!(!format!("{keys:?}").contains("jpsQnnGQmL"), "the private part prints");
    }

    #[test]
    fn a_generated_key_is_private_loads_and_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("issuer-key.pem");
        let racing: Vec<_> = (0..8)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || {
                    generate_if_missing(&path).unwrap();
                    std::fs::read(&path).unwrap()
                })
            })
            .collect();
        let seen: std::collections::HashSet<_> =
            racing.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(seen.len(), 1, "everybody sees the same key");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left over");
        assert_eq!(SigningKeys::load(&[path]).unwrap().published().len(), 1);
    }

    #[test]
    fn the_first_key_signs_and_all_are_published() {
        let folder = tempfile::tempdir().unwrap();
        let first = folder.path().join("first.pem");
        generate_if_missing(&first).unwrap();
        let second = written(folder.path(), "second.pem", SEC1);
        let keys = SigningKeys::load(&[first.clone(), second.clone()]).unwrap();
        let kids: Vec<_> = keys.published().iter().map(|jwk| jwk.kid.clone()).collect();
        let token = keys.sign(&serde_json::json!({})).unwrap();
        assert_eq!(jsonwebtoken::decode_header(&token).unwrap().kid.as_ref(), Some(&kids[0]));
        assert_eq!(kids.len(), 2);
        let twice = SigningKeys::load(&[first, second.clone(), second]);
        assert!(matches!(twice, Err(KeyError::Twice { .. })));
    }

    #[test]
    fn what_is_no_key_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let empty = written(folder.path(), "empty.pem", "");
        assert!(matches!(SigningKeys::load(&[]), Err(KeyError::None)));
        let error = SigningKeys::load(&[empty]).unwrap_err();
        assert!(
            matches!(error, KeyError::NotAKey { .. }) && error.to_string().contains("empty.pem")
        );
        let missing = SigningKeys::load(&[folder.path().join("missing.pem")]).unwrap_err();
        assert!(matches!(missing, KeyError::Unreadable { .. }));
    }
}
