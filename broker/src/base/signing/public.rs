//! Public keys and the verification of signatures.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};

use super::PrivateKey;

/// Keys that are read of one set at most.
const MAX_KEYS: usize = 1000;

/// A public key as a JSON Web Key (RFC 7517, RFC 7518 section 6.2.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jwk {
    kty: String,
    crv: String,
    x: String,
    y: String,
    alg: String,
    #[serde(rename = "use")]
    purpose: String,
    kid: String,
}

impl Jwk {
    /// The P-256 key with these coordinates in base64url.
    pub(super) fn new(x: String, y: String) -> Self {
        let kid = thumbprint(&x, &y);
        let [kty, crv, alg, purpose] = ["EC", "P-256", "ES256", "sig"].map(str::to_owned);
        Self { kty, crv, x, y, alg, purpose, kid }
    }

    /// Key identifier: the thumbprint of the key (RFC 7638).
    pub fn kid(&self) -> &str {
        &self.kid
    }
}

/// Thumbprint of a key (RFC 7638 section 3).
fn thumbprint(x: &str, y: &str) -> String {
    // Coordinates are base64url, so nothing in them needs escaping.
    let canonical = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
    URL_SAFE_NO_PAD.encode(Sha256::digest(canonical.as_bytes()))
}

/// A text is not a usable JSON Web Key Set.
#[derive(Debug, thiserror::Error)]
pub enum JwksError {
    /// The text is not JSON, or not a key set.
    #[error("not a JSON Web Key Set (RFC 7517): {0}")]
    Malformed(#[from] serde_json::Error),
    /// The set has no EC P-256 key.
    #[error("no EC P-256 key is in the set")]
    None,
}

/// A JWS cannot be verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The text is not a JWS of the expected kind.
    #[error("it is no signature of this kind")]
    Malformed,
    /// The key that the JWS names is not in the set.
    #[error("it names the key {0}, which is not among the known ones")]
    UnknownKey(String),
    /// The signature does not match.
    #[error("the signature is wrong")]
    Forged,
}

/// Public keys by identifier. [`Extend`] merges two sets.
#[derive(Clone, Default)]
pub struct PublicKeys(BTreeMap<String, (Jwk, DecodingKey)>);

impl std::fmt::Debug for PublicKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Extend<Jwk> for PublicKeys {
    fn extend<T: IntoIterator<Item = Jwk>>(&mut self, keys: T) {
        for jwk in keys {
            if let Ok(key) = DecodingKey::from_ec_components(&jwk.x, &jwk.y) {
                self.0.insert(jwk.kid.clone(), (jwk, key));
            }
        }
    }
}

impl PublicKeys {
    /// The public halves of these private keys.
    pub fn from_private(keys: &[PrivateKey]) -> Self {
        let mut public = Self::default();
        public.extend(keys.iter().map(|key| key.jwk().clone()));
        public
    }

    /// Parses the P-256 keys of a JSON Web Key Set; keys of other kinds are skipped. Identifiers
    /// are computed again, because an identifier that anybody can choose proves nothing.
    ///
    /// # Errors
    /// The text is no such set, or the set has no usable key.
    pub fn parse(text: &str) -> Result<Self, JwksError> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Key>,
        }
        #[derive(Deserialize)]
        struct Key {
            crv: Option<String>,
            x: Option<String>,
            y: Option<String>,
        }
        let set: Set = serde_json::from_str(text)?;
        let mut public = Self::default();
        public.extend(set.keys.into_iter().take(MAX_KEYS).filter_map(|key| {
            (key.crv? == "P-256").then_some(())?;
            Some(Jwk::new(key.x?, key.y?))
        }));
        if public.0.is_empty() { Err(JwksError::None) } else { Ok(public) }
    }

    /// The keys as a JSON Web Key Set.
    pub fn to_jwks(&self) -> serde_json::Value {
        serde_json::json!({ "keys": self.0.values().map(|(jwk, _)| jwk).collect::<Vec<_>>() })
    }

    /// Iterates over the keys.
    pub fn jwks(&self) -> impl Iterator<Item = &Jwk> {
        self.0.values().map(|(jwk, _)| jwk)
    }

    /// Verifies a JWS of this kind (the header's `typ`, RFC 8725 section 3.11) and returns its
    /// claims.
    ///
    /// # Errors
    /// The JWS is of another kind, names an unknown key, or its signature does not match.
    pub fn verify<T: DeserializeOwned + Clone>(
        &self,
        typ: &str,
        jws: &str,
    ) -> Result<T, SignatureError> {
        let header = jsonwebtoken::decode_header(jws).map_err(|_| SignatureError::Malformed)?;
        if header.typ.as_deref() != Some(typ) || header.alg != Algorithm::ES256 {
            return Err(SignatureError::Malformed);
        }
        let kid = header.kid.ok_or(SignatureError::Malformed)?;
        let Some((_, key)) = self.0.get(&kid) else {
            return Err(SignatureError::UnknownKey(
                kid.chars().filter(|c| !c.is_control()).take(64).collect(),
            ));
        };
        let mut validation = Validation::new(Algorithm::ES256);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_aud = false;
        match jsonwebtoken::decode(jws, key, &validation) {
            Ok(decoded) => Ok(decoded.claims),
            Err(error) => Err(match error.kind() {
                jsonwebtoken::errors::ErrorKind::InvalidSignature => SignatureError::Forged,
                _ => SignatureError::Malformed,
            }),
        }
    }
}
