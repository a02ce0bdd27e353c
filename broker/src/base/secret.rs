//! Secrets that the broker issues: random, sent once, stored only as a hash.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret, SecretString, zeroize::Zeroizing};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Random bytes of a secret: 256 bits, which cannot be guessed.
const SECRET_BYTES: usize = 32;

/// Alphabet of user codes (RFC 8628 section 6.1).
pub const USER_CODE_LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

/// The operating system's random number generator failed.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gave no randomness: {0}")]
pub struct NoRandomness(#[from] getrandom::Error);

/// Returns cryptographically secure random bytes.
///
/// # Errors
/// The operating system's random number generator failed.
#[expect(clippy::disallowed_methods, reason = "the one place that asks for randomness")]
pub fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// A secret in plain text. `Debug` does not print it.
#[derive(Clone)]
pub struct PlainSecret(SecretString);

impl PlainSecret {
    /// Generates a secret: `prefix` and 43 characters of base64url. The prefix tells what kind of
    /// secret it is, for secret scanners too.
    ///
    /// # Errors
    /// The operating system's random number generator failed.
    pub fn generate(prefix: &str) -> Result<Self, NoRandomness> {
        let bytes: [u8; SECRET_BYTES] = random()?;
        Ok(Self(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes)).into()))
    }

    /// Generates a code for a person to type: eight of twenty letters, `XXXX-XXXX` (RFC 8628
    /// section 6.1: no vowels, so that no words appear, and no digits that look like letters). It
    /// has about 34 bits, so attempts must be rate limited and its lifetime must be short.
    ///
    /// # Errors
    /// The operating system's random number generator failed.
    #[expect(clippy::disallowed_methods, reason = "the one place that asks for randomness")]
    pub fn generate_user_code() -> Result<Self, NoRandomness> {
        let mut code = String::with_capacity(9);
        let mut bytes = [0; 32];
        while code.len() < 9 {
            getrandom::fill(&mut bytes)?;
            for byte in bytes {
                if code.len() == 4 {
                    code.push('-');
                }
                // Rejection sampling: 240 is the largest multiple of 20, so no letter is favoured.
                if byte < 240 && code.len() < 9 {
                    code.push(char::from(USER_CODE_LETTERS[usize::from(byte % 20)]));
                }
            }
        }
        Ok(Self(code.into()))
    }

    /// Wraps a secret that a client presents.
    pub fn presented(text: impl Into<String>) -> Self {
        Self(text.into().into())
    }

    /// The secret in plain text, for the response that carries it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// The hash that the database stores.
    pub fn hash(&self) -> SecretHash {
        SecretHash(Sha256::digest(self.expose().as_bytes()).into())
    }
}

impl fmt::Debug for PlainSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlainSecret([hidden])")
    }
}

/// Bytes that are zeroed when the last value that refers to them is dropped, for example a header
/// value.
pub struct WipedBytes(pub Zeroizing<Vec<u8>>);

impl AsRef<[u8]> for WipedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// SHA-256 of a [`PlainSecret`]. A fast hash is sufficient, because 256 random bits cannot be
/// guessed.
#[derive(Clone, Copy)]
pub struct SecretHash([u8; 32]);

impl SecretHash {
    /// The bytes, as the database stores them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, as a cache key.
    pub fn into_bytes(self) -> [u8; 32] {
        self.0
    }

    /// Whether this is the stored hash; compares in constant time.
    pub fn matches(&self, stored: &[u8]) -> bool {
        self.0.as_slice().ct_eq(stored).into()
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash([hidden])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_codes_have_their_format_and_differ() {
        let codes: Vec<_> = (0..100).map(|_| PlainSecret::generate_user_code().unwrap()).collect();
        for code in &codes {
            let bytes = code.expose().as_bytes();
            assert_eq!((bytes.len(), bytes[4]), (9, b'-'), "{}", code.expose());
            let letters = bytes.iter().filter(|byte| USER_CODE_LETTERS.contains(byte));
            assert_eq!(letters.count(), 8, "{}", code.expose());
        }
        let mut texts: Vec<_> = codes.iter().map(PlainSecret::expose).collect();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), 100);
    }

    #[test]
    fn secrets_differ_match_their_hash_and_do_not_print() {
        let (one, two) =
            (PlainSecret::generate("tb_").unwrap(), PlainSecret::generate("tb_").unwrap());
        assert_ne!(one.expose(), two.expose());
        assert_eq!(one.expose().len(), "tb_".len() + 43);
        assert!(PlainSecret::presented(one.expose()).hash().matches(one.hash().as_bytes()));
        assert!(!one.hash().matches(two.hash().as_bytes()));
        assert!(!format!("{one:?} {:?}", one.hash()).contains(&one.expose()[3..]));
    }
}
