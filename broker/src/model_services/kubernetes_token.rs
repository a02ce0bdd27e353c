//! Kubernetes tokens of callers, as they are sent to the API server.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::HeaderValue;
use secrecy::zeroize::Zeroizing;
use sha2::{Digest as _, Sha256};

use super::failure::Failure;
use crate::base::secret::WipedBytes;

/// A Kubernetes token. Its `Debug` output is redacted.
#[derive(Clone, Debug)]
pub(super) struct KubernetesToken {
    /// The value of `Authorization`.
    authorization: HeaderValue,
    hash: [u8; 32],
}

impl KubernetesToken {
    /// A token of visible characters.
    ///
    /// # Errors
    /// It cannot be sent in a header; it is another spelling of a JWT.
    pub(super) fn new(text: &str) -> Result<Self, Failure> {
        if !is_canonical(text) {
            return Err(Failure::unauthenticated());
        }
        let mut value = Zeroizing::new(Vec::with_capacity(text.len() + 7));
        value.extend_from_slice(b"Bearer ");
        value.extend_from_slice(text.as_bytes());
        let bytes = Bytes::from_owner(WipedBytes(value));
        let mut authorization =
            HeaderValue::from_maybe_shared(bytes).map_err(|_| Failure::unauthenticated())?;
        authorization.set_sensitive(true);
        Ok(Self { authorization, hash: Sha256::digest(text.as_bytes()).into() })
    }

    /// The value of the `Authorization` header.
    pub(super) fn authorization(&self) -> HeaderValue {
        self.authorization.clone()
    }

    /// SHA-256 of the token.
    pub(super) fn hash(&self) -> [u8; 32] {
        self.hash
    }
}

/// Whether a text of three parts, as a JWT has them (RFC 7515 section 7.1), is base64url with bits of
/// zero at the end of each. The API server ignores these bits, so each JWT would have hundreds of
/// spellings, each with limits of its own.
fn is_canonical(text: &str) -> bool {
    let parts: Vec<&str> = text.splitn(4, '.').collect();
    if parts.len() != 3 {
        return true;
    }
    let mut decoded = Zeroizing::new(vec![0; text.len()]);
    parts.into_iter().all(|part| URL_SAFE_NO_PAD.decode_slice(part, &mut decoded).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubernetes_token_does_not_print() {
        let token = KubernetesToken::new("secret-token").unwrap();
        assert_eq!(token.authorization().to_str().unwrap(), "Bearer secret-token");
        assert!(!format!("{token:?}").contains("secret-token"));
    }

    #[test]
    fn a_jwt_has_one_spelling() {
        // Four bits, two bits and no bit at the end are not used.
        for token in
            ["YQ.YWI.YWJj", "YWJj.YWJj.YQ", "YWJj.YWJj.", "sha256~a-_b", "a.b", "a.b.c.d", "YR"]
        {
            assert!(KubernetesToken::new(token).is_ok(), "{token}");
        }
        for token in [
            "YR.YWI.YWJj",
            "YQ.YWJ.YWJj",
            "YWJj.YWJj.YR",
            "YWJj.YWJj.Yf",
            "YWJj.YWJj.YQ==",
            "YWJj.YW+j.YQ",
            "YWJj.YW/j.YQ",
            "YWJj.YWJjY.YQ",
        ] {
            let failure = KubernetesToken::new(token).unwrap_err();
            assert_eq!(failure.status().as_u16(), 401, "{token}");
        }
    }
}
