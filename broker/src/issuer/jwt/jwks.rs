//! JSON Web Key Sets (JWKS, RFC 7517) of other issuers: fetched when needed, and cached.
//!
//! A token with an unknown key causes a new fetch, because the issuer may have rotated its keys.
//! The next fetch must wait for some seconds, so that a flood of such tokens causes no flood of
//! fetches. Tokens with known keys do not wait for a fetch.

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

use super::{HttpClient, VerificationError};
use crate::base::clock::Clock;

/// TTL of cached keys, in milliseconds: a revoked key is still accepted for this time.
const CACHE_TTL_MS: i64 = 3600 * 1000;
/// Minimum time between two fetches, successful or not, in milliseconds.
const MIN_FETCH_INTERVAL_MS: i64 = 5 * 1000;
/// Maximum keys of one issuer; more are ignored.
const MAX_KEYS: usize = 64;
/// Minimum bits of an RSA key (RFC 7518 section 3.3).
const MIN_RSA_BITS: usize = 2048;
/// Maximum bytes of a key id (`kid`).
const MAX_KID_BYTES: usize = 256;

/// The cached keys of one issuer. Clones share the cache.
#[derive(Clone)]
pub(in crate::issuer) struct JwksCache(Arc<Inner>);

struct Inner {
    http: HttpClient,
    clock: Clock,
    state: Mutex<CacheState>,
    /// Held during a fetch, so that there is one at a time.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct CacheState {
    set: Arc<Vec<PublicKey>>,
    /// When and from where the set was fetched.
    fetched: Option<(i64, Url)>,
    fetch_started_at: Option<i64>,
}

impl fmt::Debug for JwksCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JwksCache")
    }
}

/// A public key that verifies signatures.
struct PublicKey {
    kid: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

impl JwksCache {
    /// An empty cache.
    pub(in crate::issuer) fn new(http: HttpClient, clock: Clock) -> Self {
        Self(Arc::new(Inner {
            http,
            clock,
            state: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
        }))
    }

    /// Finds the key with this key id for this algorithm. A token without a key id is verified with
    /// the only key that fits, if there is only one (OpenID Connect Core 1.0 section 10.1).
    pub(super) async fn find(
        &self,
        address: &Url,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<DecodingKey, VerificationError> {
        const UNKNOWN_KEY: VerificationError =
            VerificationError::Invalid("it is signed with an unknown key");
        if let Some(keys) = self.cached(address)
            && let Some(key) = find_key(&keys, kid, algorithm)
        {
            return Ok(key);
        }
        let _fetching = self.0.fetching.lock().await;
        // Another task may have fetched meanwhile.
        let cached = self.cached(address);
        if let Some(key) = cached.as_ref().and_then(|keys| find_key(keys, kid, algorithm)) {
            return Ok(key);
        }
        if !self.begin_fetch() {
            return Err(match cached {
                Some(_) => UNKNOWN_KEY,
                None => VerificationError::Unavailable(format!(
                    "the keys at {address} could not be fetched"
                )),
            });
        }
        let set = parse_jwks(&self.0.http.get(address).await?)?;
        let key = find_key(&set, kid, algorithm);
        let mut state = self.state();
        state.set = Arc::new(set);
        state.fetched = Some((self.0.clock.now_ms(), address.clone()));
        key.ok_or(UNKNOWN_KEY)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, CacheState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys fetched from this address, unless they have expired.
    fn cached(&self, address: &Url) -> Option<Arc<Vec<PublicKey>>> {
        let state = self.state();
        let (at, from) = state.fetched.as_ref()?;
        let is_fresh = self.0.clock.now_ms() - at < CACHE_TTL_MS && from == address;
        is_fresh.then(|| Arc::clone(&state.set))
    }

    /// Whether a fetch may begin now; if so, it is recorded as begun.
    fn begin_fetch(&self) -> bool {
        let (mut state, now) = (self.state(), self.0.clock.now_ms());
        let is_due = state.fetch_started_at.is_none_or(|at| now - at >= MIN_FETCH_INTERVAL_MS);
        if is_due {
            state.fetch_started_at = Some(now);
        }
        is_due
    }
}

fn find_key(set: &[PublicKey], kid: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
    let mut fitting = set.iter().filter(|key| {
        key.algorithms.contains(&algorithm) && kid.is_none_or(|kid| key.kid.as_deref() == Some(kid))
    });
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => Some(only.key.clone()),
        _ => None,
    }
}

/// Parses the usable keys of a set; others are ignored (RFC 7517 section 5).
fn parse_jwks(document: &[u8]) -> Result<Vec<PublicKey>, VerificationError> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<serde_json::Value>,
    }
    let set: Set = serde_json::from_slice(document).map_err(|error| {
        VerificationError::Unavailable(format!("the keys cannot be read: {error}"))
    })?;
    Ok(set.keys.into_iter().take(MAX_KEYS).filter_map(parse_key).collect())
}

fn parse_key(key: serde_json::Value) -> Option<PublicKey> {
    let names: HashMap<String, serde_json::Value> = serde_json::from_value(key.clone()).ok()?;
    let jwk: Jwk = serde_json::from_value(key).ok()?;
    let common = &jwk.common;
    let signs = matches!(common.public_key_use, None | Some(PublicKeyUse::Signature))
        && common
            .key_operations
            .as_ref()
            .is_none_or(|operations| operations.contains(&KeyOperations::Verify));
    let kid = common.key_id.clone();
    if !signs || kid.as_ref().is_some_and(|kid| kid.len() > MAX_KID_BYTES) {
        return None;
    }
    let mut algorithms = algorithms_of(&jwk.algorithm)?;
    if let Some(only) = names.get("alg") {
        algorithms
            .retain(|algorithm| serde_json::to_value(algorithm).is_ok_and(|name| name == *only));
    }
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    (!algorithms.is_empty()).then_some(PublicKey { kid, algorithms, key })
}

/// The algorithms that a key supports: never one with a shared secret.
fn algorithms_of(parameters: &AlgorithmParameters) -> Option<Vec<Algorithm>> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    match parameters {
        AlgorithmParameters::RSA(rsa) => {
            let large = rsa.n.trim_end_matches('=').len() * 6 >= MIN_RSA_BITS;
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
    fn only_public_signature_keys_are_used() {
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
            assert_eq!(parse_key(key.clone()).is_some(), counts, "{key}");
        }
    }

    #[test]
    fn an_unusable_key_is_skipped_and_the_number_of_keys_is_bounded() {
        let keys = json!({ "keys": [{ "kty": "new" }, 7, ec(&json!({ "kid": "good" }))] });
        let set = parse_jwks(keys.to_string().as_bytes()).unwrap();
        assert_eq!(set.len(), 1);
        let many: Vec<_> = (0..200).map(|n| ec(&json!({ "kid": n.to_string() }))).collect();
        assert_eq!(
            parse_jwks(json!({ "keys": many }).to_string().as_bytes()).unwrap().len(),
            MAX_KEYS
        );
    }

    #[test]
    fn a_token_without_a_kid_needs_a_single_candidate_key() {
        let set = |kids: &[&str]| -> Vec<PublicKey> {
            kids.iter().map(|kid| parse_key(ec(&json!({ "kid": kid }))).unwrap()).collect()
        };
        assert!(find_key(&set(&["a"]), None, Algorithm::ES256).is_some());
        assert!(find_key(&set(&["a", "b"]), None, Algorithm::ES256).is_none());
        assert!(find_key(&set(&["a", "b"]), Some("b"), Algorithm::ES256).is_some());
        assert!(find_key(&set(&["a", "a"]), Some("a"), Algorithm::ES256).is_none());
        assert!(find_key(&set(&["a"]), Some("a"), Algorithm::RS256).is_none());
        assert!(find_key(&set(&["a"]), Some("a"), Algorithm::HS256).is_none());
    }

    proptest! {
        #[test]
        fn no_document_causes_a_panic(text in ".{0,200}|\\{\"keys\":\\[\\{\"kty\":\"(RSA|EC|oct|OKP)\",\"[nxyek]\":\"[A-Za-z0-9_=-]{0,30}\"\\}\\]\\}") {
            let _ = parse_jwks(text.as_bytes());
        }
    }
}
