//! Kubernetes tokens of callers, as they are sent to the API server.

use base64::{
    Engine as _, alphabet,
    engine::general_purpose::{GeneralPurpose, NO_PAD, URL_SAFE_NO_PAD},
};
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

/// Decodes base64url with any bits at the end, as the API server does.
const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&alphabet::URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// Whether a text is no JWT (RFC 7515 section 7.1), or one whose parts are base64url with bits of zero
/// at the end. The API server ignores these bits, so each JWT would have hundreds of spellings, each
/// with limits of its own. Opaque tokens with two dots are no JWTs, because their first part is no
/// JSON object.
fn is_canonical(text: &str) -> bool {
    let parts: Vec<&str> = text.splitn(4, '.').collect();
    let [header, _, _] = parts.as_slice() else { return true };
    let mut decoded = Zeroizing::new(vec![0; text.len()]);
    let is_jwt = LENIENT.decode_slice(header, &mut decoded).is_ok_and(|length| {
        decoded.get(..length).is_some_and(|json| json.trim_ascii_start().starts_with(b"{"))
    });
    !is_jwt || parts.iter().all(|part| URL_SAFE_NO_PAD.decode_slice(part, &mut decoded).is_ok())
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
        const HEADER: &str = "eyJhIjoxfQ";
        // Four bits, two bits and no bit at the end are not used.
        for rest in [".YQ.YWI", ".YWJj.YQ", ".YWJj.", ".a", ".a.b.c"] {
            let token = format!("{HEADER}{rest}");
            assert!(KubernetesToken::new(&token).is_ok(), "{token}");
        }
        for rest in [
            ".YR.YWI",
            ".YQ.YWJ",
            ".YWJj.YR",
            ".YWJj.Yf",
            ".YWJj.YQ==",
            ".YW+j.YQ",
            ".YW/j.YQ",
            ".YWJjY.YQ",
        ] {
            let failure = KubernetesToken::new(&format!("{HEADER}{rest}")).unwrap_err();
            assert_eq!(failure.status().as_u16(), 401, "{rest}");
        }
        for header in ["eyJhIjoxfR", "IHsiYSI6MX1", "IHsiYSI6MX2"] {
            assert!(KubernetesToken::new(&format!("{header}.YQ.YQ")).is_err(), "{header}");
        }
        // Opaque tokens.
        for token in ["v4.public.YR", "sha256~a-_b", "a.b", "YR", "YR.YR.YR", "a.+.b"] {
            assert!(KubernetesToken::new(token).is_ok(), "{token}");
        }
    }
}
