//! Binding of a browser that comes back from a provider to the browser that was sent there.
//!
//! `state` contains a secret of its own and the handle of the pending authorization. The PKCE
//! verifier and the nonce are derived from it and from the secret in the cookie of the browser. An
//! attacker who brings a code and a state with another browser, or swaps one of them, derives other
//! values, and the provider or the check of the ID token refuses.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use openidconnect::{Nonce, PkceCodeVerifier};
use sha2::{Digest as _, Sha256};

use crate::base::secret::{NoRandomness, PlainSecret};

/// Prefix of the secret in a state.
const PREFIX: &str = "tbu_";
/// Maximum bytes of a state.
pub(super) const MAX_STATE_BYTES: usize = 256;

/// The `state` parameter of an authorization request (RFC 6749 section 4.1.1).
pub(super) struct State(PlainSecret);

impl State {
    /// A new state for the pending authorization with this handle.
    pub(super) fn generate(handle: &str) -> Result<Self, NoRandomness> {
        let secret = PlainSecret::generate(PREFIX)?;
        Ok(Self(PlainSecret::presented(format!("{}.{handle}", secret.expose()))))
    }

    /// Parses the state that a browser presents; returns it with its handle.
    pub(super) fn presented(text: &str) -> Option<(Self, &str)> {
        let (secret, handle) = text.split_once('.')?;
        secret.starts_with(PREFIX).then(|| (Self(PlainSecret::presented(text)), handle))
    }

    /// The text that is sent and hashed.
    pub(super) fn secret(&self) -> &PlainSecret {
        &self.0
    }

    /// The PKCE verifier for this browser (RFC 7636 section 4.1: 43 characters).
    pub(super) fn verifier(&self, cookie: &PlainSecret) -> PkceCodeVerifier {
        PkceCodeVerifier::new(self.derive("pkce verifier", cookie))
    }

    /// The nonce for this browser.
    pub(super) fn nonce(&self, cookie: &PlainSecret) -> Nonce {
        Nonce::new(self.derive("nonce", cookie))
    }

    fn derive(&self, label: &str, cookie: &PlainSecret) -> String {
        let mut hash = Sha256::new();
        for part in ["tenant-broker upstream ", label, cookie.expose(), self.0.expose()] {
            // The lengths make the concatenation unambiguous.
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        URL_SAFE_NO_PAD.encode(hash.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verifier_and_nonce_depend_on_state_and_cookie() {
        let (state, other) = (State::generate("tbq_a").unwrap(), State::generate("tbq_a").unwrap());
        let (cookie, foreign) =
            (PlainSecret::presented("tbb_mine"), PlainSecret::presented("tbb_theirs"));
        let (back, handle) = State::presented(state.secret().expose()).unwrap();
        assert_eq!(handle, "tbq_a");
        let verifier = |state: &State, cookie| state.verifier(cookie).into_secret();
        let usual = verifier(&state, &cookie);
        assert_eq!(usual.len(), 43);
        assert_eq!(verifier(&back, &cookie), usual);
        assert_ne!(verifier(&state, &foreign), usual);
        assert_ne!(verifier(&other, &cookie), usual);
        assert_ne!(state.nonce(&cookie).secret(), &usual);
    }

    #[test]
    fn an_invalid_state_is_refused() {
        for text in ["", ".", "tbu_x", "tbq_x.tbu_x", "x.y"] {
            assert!(State::presented(text).is_none(), "{text}");
        }
    }
}
