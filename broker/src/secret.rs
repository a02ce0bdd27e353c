//! Secrets that the broker hands out: random, shown once, kept only as a hash.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Random bytes of a secret: 256 bits, beyond guessing.
const SECRET_BYTES: usize = 32;

/// Letters of a code that a person types (RFC 8628 section 6.1).
pub const USER_CODE_LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

/// The randomness of the operating system failed.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gave no randomness: {0}")]
pub struct NoRandomness(#[from] getrandom::Error);

/// Bytes that nobody can guess.
///
/// # Errors
/// The operating system has no randomness to give.
#[expect(clippy::disallowed_methods, reason = "the one place that asks for randomness")]
pub fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// A secret in clear, on its way to the one who asked for it. It does not print.
#[derive(Clone)]
pub struct PlainSecret(SecretString);

impl PlainSecret {
    /// A new secret: `prefix` and 43 characters of base64url. The prefix tells a finder what it is.
    ///
    /// # Errors
    /// The operating system has no randomness to give.
    pub fn generate(prefix: &str) -> Result<Self, NoRandomness> {
        let bytes: [u8; SECRET_BYTES] = random()?;
        Ok(Self(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes)).into()))
    }

    /// A code that a person types: eight of twenty letters, `XXXX-XXXX` (RFC 8628 section 6.1: no
    /// vowels, so that no words come out, and no digits to mistake for letters). About 34 bits, so
    /// tries have to be limited and its life short.
    ///
    /// # Errors
    /// The operating system has no randomness to give.
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
                // The remainder of a byte that is not below a multiple of 20 would favour letters.
                if byte < 240 && code.len() < 9 {
                    code.push(char::from(USER_CODE_LETTERS[usize::from(byte % 20)]));
                }
            }
        }
        Ok(Self(code.into()))
    }

    /// A secret that somebody presents.
    pub fn presented(text: impl Into<String>) -> Self {
        Self(text.into().into())
    }

    /// The text itself, for the one answer that carries it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// What the database keeps of it.
    pub fn hash(&self) -> SecretHash {
        SecretHash(Sha256::digest(self.expose().as_bytes()).into())
    }
}

impl fmt::Debug for PlainSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlainSecret([hidden])")
    }
}

/// SHA-256 of a [`PlainSecret`]. A fast hash is right here: 256 random bits cannot be guessed.
#[derive(Clone, Copy)]
pub struct SecretHash([u8; 32]);

impl SecretHash {
    /// For the database.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As a key of what is remembered for a moment.
    pub fn into_bytes(self) -> [u8; 32] {
        self.0
    }

    /// Whether this is the hash that the database kept; takes as long for a wrong one as for the
    /// right one.
    pub fn matches(&self, kept: &[u8]) -> bool {
        self.0.as_slice().ct_eq(kept).into()
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
    fn codes_for_people_have_their_shape_and_differ() {
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
