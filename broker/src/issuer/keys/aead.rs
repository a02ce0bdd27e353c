//! Authenticated encryption (AEAD, AES-256-GCM) of secrets that the database stores and the broker
//! must read again, such as the refresh token of an upstream provider.
//!
//! The keys are derived from the issuer's signing keys (HKDF, RFC 5869), so replicas share them and
//! an operator has no further key to manage. The first key seals, all keys open, so a signing key
//! can be replaced without anybody having to sign in again.

use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, Salt},
};
use secrecy::{ExposeSecret as _, SecretString};

use crate::base::secret::{self, NoRandomness};

/// HKDF salt: separates these keys from other keys that may be derived from a signing key.
const LABEL: &[u8] = b"tenant-broker sealed upstream tokens 1";
/// Version of the format: the first byte of a sealed secret.
const VERSION: u8 = 1;

/// Keys that seal and open secrets.
#[derive(Default)]
pub(in crate::issuer) struct SealingKeys(Vec<LessSafeKey>);

impl SealingKeys {
    /// Adds a key that is derived from this secret.
    pub(in crate::issuer) fn add(&mut self, secret: &[u8]) {
        let derived = Salt::new(HKDF_SHA256, LABEL).extract(secret);
        let info: [&[u8]; 1] = [b"AES-256-GCM"];
        if let Ok(key) = derived.expand(&info, &AES_256_GCM).map(UnboundKey::from) {
            self.0.push(LessSafeKey::new(key));
        }
    }

    /// Seals a text. It opens only with the same `bound_to` (the associated data), so that a sealed
    /// value cannot be moved to another row of the database.
    pub(in crate::issuer) fn seal(
        &self,
        text: &SecretString,
        bound_to: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        let nonce: [u8; NONCE_LEN] = secret::random()?;
        let key = self.0.first().ok_or(SealError::Cryptography)?;
        let mut inner = text.expose_secret().as_bytes().to_vec();
        key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(bound_to),
            &mut inner,
        )
        .map_err(|_| SealError::Cryptography)?;
        Ok([&[VERSION], nonce.as_slice(), &inner].concat())
    }

    /// Opens a sealed text. `None` if no key opens it.
    pub(in crate::issuer) fn open(&self, sealed: &[u8], bound_to: &[u8]) -> Option<SecretString> {
        let (nonce, inner) = sealed.strip_prefix(&[VERSION])?.split_first_chunk::<NONCE_LEN>()?;
        self.0.iter().find_map(|key| {
            let mut inner = inner.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let text = key.open_in_place(nonce, Aad::from(bound_to), &mut inner).ok()?;
            Some(std::str::from_utf8(text).ok()?.to_owned().into())
        })
    }
}

/// A secret could not be sealed, so it must not be stored.
#[derive(Debug, thiserror::Error)]
pub(in crate::issuer) enum SealError {
    /// The system's random number generator failed.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    /// There is no key, or the cipher failed.
    #[error("a secret could not be sealed")]
    Cryptography,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sealing_keys(secrets: &[&[u8]]) -> SealingKeys {
        let mut keys = SealingKeys::default();
        for secret in secrets {
            keys.add(secret);
        }
        keys
    }

    #[test]
    fn a_replaced_key_still_opens() {
        let (old, both, new) =
            (sealing_keys(&[b"old"]), sealing_keys(&[b"new", b"old"]), sealing_keys(&[b"new"]));
        let text = SecretString::from("a token");
        let opened = |keys: &SealingKeys, sealed: &[u8]| {
            keys.open(sealed, b"row").map(|text| text.expose_secret().to_owned())
        };
        let sealed = old.seal(&text, b"row").unwrap();
        assert_eq!(opened(&both, &sealed).as_deref(), Some("a token"));
        assert_eq!(opened(&new, &sealed), None);
        let sealed = both.seal(&text, b"row").unwrap();
        assert_eq!(opened(&new, &sealed).as_deref(), Some("a token"));
    }

    #[test]
    fn a_sealed_secret_is_unreadable_and_bound_to_one_row() {
        let keys = sealing_keys(&[b"key"]);
        let text = SecretString::from("a token");
        let (one, two) = (keys.seal(&text, b"1").unwrap(), keys.seal(&text, b"1").unwrap());
        assert_ne!(one, two);
        assert!(!one.windows(5).any(|bytes| bytes == b"token"));
        assert!(keys.open(&one, b"2").is_none());
        let mut spoilt = one.clone();
        *spoilt.last_mut().unwrap() ^= 1;
        assert!(keys.open(&spoilt, b"1").is_none());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_from_the_database_do_not_open(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(sealing_keys(&[b"key"]).open(&bytes, b"row").is_none());
        }
    }
}
