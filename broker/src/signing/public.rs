//! Public keys, and what they are for: checking what a private one signed.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};

use super::PrivateKey;

/// Keys of one set at most.
const MOST_KEYS: usize = 1000;

/// A public key as it is published (RFC 7517, RFC 7518 section 6.2.1).
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

    /// Its name: what follows from the key itself (RFC 7638).
    pub fn kid(&self) -> &str {
        &self.kid
    }
}

/// Name of a key that follows from the key itself (RFC 7638 section 3).
fn thumbprint(x: &str, y: &str) -> String {
    // Coordinates are base64url, so nothing in them needs escaping.
    let canonical = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
    URL_SAFE_NO_PAD.encode(Sha256::digest(canonical.as_bytes()))
}

/// A text that is no set of keys.
#[derive(Debug, thiserror::Error)]
pub enum NoKeys {
    /// Not JSON, or not a set of keys.
    #[error("not a JSON Web Key Set (RFC 7517): {0}")]
    Malformed(#[from] serde_json::Error),
    /// None that can be used.
    #[error("no EC P-256 key is in the set")]
    None,
}

/// What was signed is not to be believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// It is not what was asked for, or not readable.
    #[error("it is no signature of this kind")]
    Malformed,
    /// None of the keys is the one that it names.
    #[error("it names the key {0}, which is not among the known ones")]
    UnknownKey(String),
    /// The key did not sign this.
    #[error("the signature is wrong")]
    Forged,
}

/// Public keys by name. Two sets become one with [`Extend`].
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
    /// The public halves of these.
    pub fn of(keys: &[PrivateKey]) -> Self {
        let mut public = Self::default();
        public.extend(keys.iter().map(|key| key.jwk().clone()));
        public
    }

    /// The P-256 keys of a JSON Web Key Set; keys of other kinds are passed. Names are worked out
    /// again, for a name that anybody can choose proves nothing.
    ///
    /// # Errors
    /// It is no such set, or no key is in it.
    pub fn parse(text: &str) -> Result<Self, NoKeys> {
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
        public.extend(set.keys.into_iter().take(MOST_KEYS).filter_map(|key| {
            (key.crv? == "P-256").then_some(())?;
            Some(Jwk::new(key.x?, key.y?))
        }));
        if public.0.is_empty() { Err(NoKeys::None) } else { Ok(public) }
    }

    /// The set, to be published.
    pub fn set(&self) -> serde_json::Value {
        serde_json::json!({ "keys": self.0.values().map(|(jwk, _)| jwk).collect::<Vec<_>>() })
    }

    /// The keys.
    pub fn jwks(&self) -> impl Iterator<Item = &Jwk> {
        self.0.values().map(|(jwk, _)| jwk)
    }

    /// What was signed as this kind (the header's `typ`, RFC 8725 section 3.11).
    ///
    /// # Errors
    /// It is of another kind, of an unknown key, or not signed by it.
    pub fn open<T: DeserializeOwned + Clone>(&self, typ: &str, jws: &str) -> Result<T, Unproven> {
        let header = jsonwebtoken::decode_header(jws).map_err(|_| Unproven::Malformed)?;
        if header.typ.as_deref() != Some(typ) || header.alg != Algorithm::ES256 {
            return Err(Unproven::Malformed);
        }
        let kid = header.kid.ok_or(Unproven::Malformed)?;
        let Some((_, key)) = self.0.get(&kid) else {
            return Err(Unproven::UnknownKey(
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
                jsonwebtoken::errors::ErrorKind::InvalidSignature => Unproven::Forged,
                _ => Unproven::Malformed,
            }),
        }
    }
}
