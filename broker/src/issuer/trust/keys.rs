//! The public keys of another issuer (RFC 7517), fetched when they are needed.
//!
//! A token with a key that nobody knows has them fetched again, for the issuer may have changed its
//! keys; but not again for some seconds, so that a flood of such tokens is no flood of fetches.
//! Tokens with known keys do not wait for a fetch.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse},
};
use serde::Deserialize;
use url::Url;

use super::{Distrust, Http};
use crate::clock::Clock;

/// How long fetched keys are believed: so long a key that was taken back still counts.
const BELIEVED_MS: i64 = 3600 * 1000;
/// How long after a fetch, good or bad, the next one may begin.
const PAUSE_MS: i64 = 5 * 1000;
/// Keys of one issuer at most; more are ignored.
const MOST_KEYS: usize = 64;
/// Bits of an RSA key at least (RFC 7518 section 3.3).
const LEAST_RSA_BITS: usize = 2048;
/// Bytes of the name of a key at most.
const MOST_KID_BYTES: usize = 256;

/// The keys of one issuer. Clones share everything.
#[derive(Clone)]
pub(in crate::issuer) struct Keys(Arc<Inner>);

struct Inner {
    http: Http,
    clock: Clock,
    known: Mutex<Known>,
    /// Held by whoever fetches.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    set: Arc<Vec<PublicKey>>,
    /// When the set was fetched from where.
    fetched: Option<(i64, Url)>,
    tried_at: Option<i64>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

/// A key that can check signatures.
struct PublicKey {
    kid: Option<String>,
    fits: Vec<Algorithm>,
    key: DecodingKey,
}

impl Keys {
    /// Keys that are not fetched yet.
    pub(in crate::issuer) fn new(http: Http, clock: Clock) -> Self {
        Self(Arc::new(Inner {
            http,
            clock,
            known: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
        }))
    }

    /// The key of this name for this algorithm. A token that names no key is checked with the only
    /// one that fits, if there is only one (OpenID Connect Core 1.0 section 10.1).
    pub(super) async fn find(
        &self,
        address: &Url,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<DecodingKey, Distrust> {
        const UNKNOWN: Distrust = Distrust::Refused("it is signed with a key that nobody knows");
        if let Some(known) = self.believed(address)
            && let Some(key) = pick(&known, kid, algorithm)
        {
            return Ok(key);
        }
        let _fetching = self.0.fetching.lock().await;
        // Somebody may have fetched meanwhile.
        let believed = self.believed(address);
        if let Some(key) = believed.as_ref().and_then(|known| pick(known, kid, algorithm)) {
            return Ok(key);
        }
        if !self.may_try() {
            return Err(match believed {
                Some(_) => UNKNOWN,
                None => Distrust::Outage(format!("the keys at {address} could not be fetched")),
            });
        }
        let set = parse(&self.0.http.get(address).await?)?;
        let key = pick(&set, kid, algorithm);
        let mut known = self.known();
        known.set = Arc::new(set);
        known.fetched = Some((self.0.clock.now_ms(), address.clone()));
        key.ok_or(UNKNOWN)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys that were fetched from there, unless that is too long ago.
    fn believed(&self, address: &Url) -> Option<Arc<Vec<PublicKey>>> {
        let known = self.known();
        let (at, from) = known.fetched.as_ref()?;
        let young = self.0.clock.now_ms() - at < BELIEVED_MS && from == address;
        young.then(|| Arc::clone(&known.set))
    }

    /// Whether a fetch may begin now; if so, it counts as begun.
    fn may_try(&self) -> bool {
        let (mut known, now) = (self.known(), self.0.clock.now_ms());
        let may = known.tried_at.is_none_or(|at| now - at >= PAUSE_MS);
        if may {
            known.tried_at = Some(now);
        }
        may
    }
}

fn pick(set: &[PublicKey], kid: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
    let mut fitting = set.iter().filter(|key| {
        key.fits.contains(&algorithm) && kid.is_none_or(|kid| key.kid.as_deref() == Some(kid))
    });
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => Some(only.key.clone()),
        _ => None,
    }
}

/// The usable keys of a set; others are ignored (RFC 7517 section 5).
fn parse(document: &[u8]) -> Result<Vec<PublicKey>, Distrust> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<serde_json::Value>,
    }
    let set: Set = serde_json::from_slice(document)
        .map_err(|error| Distrust::Outage(format!("the keys cannot be read: {error}")))?;
    Ok(set.keys.into_iter().take(MOST_KEYS).filter_map(usable).collect())
}

fn usable(key: serde_json::Value) -> Option<PublicKey> {
    let names: HashMap<String, serde_json::Value> = serde_json::from_value(key.clone()).ok()?;
    let jwk: Jwk = serde_json::from_value(key).ok()?;
    let common = &jwk.common;
    let signs = matches!(common.public_key_use, None | Some(PublicKeyUse::Signature))
        && common
            .key_operations
            .as_ref()
            .is_none_or(|operations| operations.contains(&KeyOperations::Verify));
    let kid = common.key_id.clone();
    if !signs || kid.as_ref().is_some_and(|kid| kid.len() > MOST_KID_BYTES) {
        return None;
    }
    let mut fits = algorithms(&jwk.algorithm)?;
    if let Some(only) = names.get("alg") {
        fits.retain(|algorithm| serde_json::to_value(algorithm).is_ok_and(|name| name == *only));
    }
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    (!fits.is_empty()).then_some(PublicKey { kid, fits, key })
}

/// The algorithms that a key is for: never one with a shared secret.
fn algorithms(parameters: &AlgorithmParameters) -> Option<Vec<Algorithm>> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    match parameters {
        AlgorithmParameters::RSA(rsa) => {
            let large = rsa.n.trim_end_matches('=').len() * 6 >= LEAST_RSA_BITS;
            large.then(|| vec![RS256, RS384, RS512, PS256, PS384, PS512])
        }
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => Some(vec![ES256]),
            EllipticCurve::P384 => Some(vec![ES384]),
            _ => None,
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            Some(vec![EdDSA])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
    const Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";

    fn ec(more: &serde_json::Value) -> serde_json::Value {
        let mut key = json!({ "kty": "EC", "crv": "P-256", "x": X, "y": Y });
        key.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        key
    }

    #[test]
    fn keys_that_sign_with_something_public_count_and_no_others() {
        let rsa = |bytes: usize| json!({ "kty": "RSA", "n": "A".repeat(bytes), "e": "AQAB" });
        for (key, counts) in [
            (ec(&json!({})), true),
            (ec(&json!({ "use": "sig", "alg": "ES256", "kid": "a" })), true),
            (ec(&json!({ "key_ops": ["verify"] })), true),
            (ec(&json!({ "use": "enc" })), false),
            (ec(&json!({ "key_ops": ["sign"] })), false),
            (ec(&json!({ "alg": "ES384" })), false),
            (ec(&json!({ "alg": "HS256" })), false),
            (ec(&json!({ "kid": "k".repeat(300) })), false),
            (rsa(342), true),
            (rsa(171), false),
            (json!({ "kty": "oct", "k": "c2VjcmV0" }), false),
            (json!({ "kty": "OKP", "crv": "X25519", "x": X }), false),
            (json!({ "kty": "new", "x": X }), false),
            (json!({}), false),
            (json!("text"), false),
        ] {
            assert_eq!(usable(key.clone()).is_some(), counts, "{key}");
        }
    }

    #[test]
    fn one_bad_key_does_not_spoil_the_set_and_there_are_only_so_many() {
        let keys = json!({ "keys": [{ "kty": "new" }, 7, ec(&json!({ "kid": "good" }))] });
        let set = parse(keys.to_string().as_bytes()).unwrap();
        assert_eq!(set.len(), 1);
        let many: Vec<_> = (0..200).map(|n| ec(&json!({ "kid": n.to_string() }))).collect();
        assert_eq!(parse(json!({ "keys": many }).to_string().as_bytes()).unwrap().len(), MOST_KEYS);
    }

    #[test]
    fn a_token_without_a_name_of_a_key_is_not_guessed_at() {
        let set = |kids: &[&str]| -> Vec<PublicKey> {
            kids.iter().map(|kid| usable(ec(&json!({ "kid": kid }))).unwrap()).collect()
        };
        assert!(pick(&set(&["a"]), None, Algorithm::ES256).is_some());
        assert!(pick(&set(&["a", "b"]), None, Algorithm::ES256).is_none());
        assert!(pick(&set(&["a", "b"]), Some("b"), Algorithm::ES256).is_some());
        assert!(pick(&set(&["a", "a"]), Some("a"), Algorithm::ES256).is_none());
        assert!(pick(&set(&["a"]), Some("a"), Algorithm::RS256).is_none());
        assert!(pick(&set(&["a"]), Some("a"), Algorithm::HS256).is_none());
    }

    proptest! {
        #[test]
        fn no_document_breaks_the_parser(text in ".{0,200}|\\{\"keys\":\\[\\{\"kty\":\"(RSA|EC|oct|OKP)\",\"[nxyek]\":\"[A-Za-z0-9_=-]{0,30}\"\\}\\]\\}") {
            let _ = parse(text.as_bytes());
        }
    }
}
