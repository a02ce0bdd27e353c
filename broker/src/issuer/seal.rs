//! Secrets that the database must keep in a form that can be read again, such as the refresh token
//! of an upstream provider: sealed with keys that the database does not have.
//!
//! The keys follow from the issuer's signing keys (HKDF, RFC 5869), so that replicas share them and
//! an operator has nothing more to look after. The first seals, all open: a signing key can be
//! replaced without anybody having to sign in again.

use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, Salt},
};
use secrecy::{ExposeSecret as _, SecretString};

use crate::secret::{self, NoRandomness};

/// Sets these keys apart from whatever else may be derived of a signing key one day.
const LABEL: &[u8] = b"tenant-broker sealed upstream tokens 1";
/// First byte of what is sealed: how it is sealed.
const VERSION: u8 = 1;

/// Keys that seal and open. They do not print.
#[derive(Default)]
pub(super) struct Seals(Vec<LessSafeKey>);

impl Seals {
    /// One more key, which follows from this secret.
    pub(super) fn add(&mut self, secret: &[u8]) {
        let derived = Salt::new(HKDF_SHA256, LABEL).extract(secret);
        let info: [&[u8]; 1] = [b"AES-256-GCM"];
        if let Ok(key) = derived.expand(&info, &AES_256_GCM).map(UnboundKey::from) {
            self.0.push(LessSafeKey::new(key));
        }
    }

    /// Seals a text. It opens with the same `bound_to` only, so that a row of the database cannot
    /// be given what belongs to another.
    pub(super) fn seal(&self, text: &SecretString, bound_to: &[u8]) -> Result<Vec<u8>, Unsealed> {
        let nonce: [u8; NONCE_LEN] = secret::random()?;
        let key = self.0.first().ok_or(Unsealed::Cryptography)?;
        let mut inner = text.expose_secret().as_bytes().to_vec();
        key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(bound_to),
            &mut inner,
        )
        .map_err(|_| Unsealed::Cryptography)?;
        Ok([&[VERSION], nonce.as_slice(), &inner].concat())
    }

    /// What was sealed. `None` if no key opens it.
    pub(super) fn open(&self, sealed: &[u8], bound_to: &[u8]) -> Option<SecretString> {
        let (nonce, inner) = sealed.strip_prefix(&[VERSION])?.split_first_chunk::<NONCE_LEN>()?;
        self.0.iter().find_map(|key| {
            let mut inner = inner.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let text = key.open_in_place(nonce, Aad::from(bound_to), &mut inner).ok()?;
            Some(std::str::from_utf8(text).ok()?.to_owned().into())
        })
    }
}

/// A secret could not be sealed, so it must not be kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unsealed {
    /// No randomness.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    /// The cipher.
    #[error("a secret could not be sealed")]
    Cryptography,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seals(secrets: &[&[u8]]) -> Seals {
        let mut seals = Seals::default();
        for secret in secrets {
            seals.add(secret);
        }
        seals
    }

    #[test]
    fn a_key_that_is_replaced_still_opens() {
        let (old, both, new) = (seals(&[b"old"]), seals(&[b"new", b"old"]), seals(&[b"new"]));
        let text = SecretString::from("a token");
        let opened = |seals: &Seals, sealed: &[u8]| {
            seals.open(sealed, b"row").map(|text| text.expose_secret().to_owned())
        };
        let sealed = old.seal(&text, b"row").unwrap();
        assert_eq!(opened(&both, &sealed).as_deref(), Some("a token"));
        assert_eq!(opened(&new, &sealed), None);
        let sealed = both.seal(&text, b"row").unwrap();
        assert_eq!(opened(&new, &sealed).as_deref(), Some("a token"));
    }

    #[test]
    fn what_is_sealed_tells_nothing_and_belongs_to_one_row() {
        let seals = seals(&[b"key"]);
        let text = SecretString::from("a token");
        let (one, two) = (seals.seal(&text, b"1").unwrap(), seals.seal(&text, b"1").unwrap());
        assert_ne!(one, two);
        assert!(!one.windows(5).any(|bytes| bytes == b"token"));
        assert!(seals.open(&one, b"2").is_none());
        let mut spoilt = one.clone();
        *spoilt.last_mut().unwrap() ^= 1;
        assert!(seals.open(&spoilt, b"1").is_none());
    }

    proptest! {
        #[test]
        fn what_comes_from_a_database_breaks_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(seals(&[b"key"]).open(&bytes, b"row").is_none());
        }
    }
}
