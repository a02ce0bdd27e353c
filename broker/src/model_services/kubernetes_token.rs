//! Kubernetes tokens of callers, as they are sent to the API server.

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
    /// It cannot be sent in a header.
    pub(super) fn new(text: &str) -> Result<Self, Failure> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubernetes_token_does_not_print() {
        let token = KubernetesToken::new("secret-token").unwrap();
        assert_eq!(token.authorization().to_str().unwrap(), "Bearer secret-token");
        assert!(!format!("{token:?}").contains("secret-token"));
    }
}
