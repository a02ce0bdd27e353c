//! What binds a browser that comes back from a provider to the one that was sent there.
//!
//! `state` is a secret of its own and the handle of the waiting request. PKCE verifier and nonce
//! are derived of it and of the secret in the browser's cookie: whoever brings a code and a state
//! with another browser, or swaps one of them, derives other ones, and the provider or the ID
//! token's check refuses.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use openidconnect::{Nonce, PkceCodeVerifier};
use sha2::{Digest as _, Sha256};

use crate::secret::{NoRandomness, PlainSecret};

/// What the secret of a state begins with.
const PREFIX: &str = "tbu_";
/// Bytes of a state at most.
pub(super) const MOST_STATE_BYTES: usize = 256;

/// A state on its way to the provider or back.
pub(super) struct State(PlainSecret);

impl State {
    /// A new one for the waiting request of this handle.
    pub(super) fn generate(handle: &str) -> Result<Self, NoRandomness> {
        let secret = PlainSecret::generate(PREFIX)?;
        Ok(Self(PlainSecret::presented(format!("{}.{handle}", secret.expose()))))
    }

    /// One that a browser presents, and the handle in it.
    pub(super) fn presented(text: &str) -> Option<(Self, &str)> {
        let (secret, handle) = text.split_once('.')?;
        secret.starts_with(PREFIX).then(|| (Self(PlainSecret::presented(text)), handle))
    }

    /// As it goes over the wire and is hashed.
    pub(super) fn secret(&self) -> &PlainSecret {
        &self.0
    }

    /// The PKCE verifier of this browser (RFC 7636 section 4.1: 43 characters).
    pub(super) fn verifier(&self, cookie: &PlainSecret) -> PkceCodeVerifier {
        PkceCodeVerifier::new(self.derive("pkce verifier", cookie))
    }

    /// The nonce of this browser.
    pub(super) fn nonce(&self, cookie: &PlainSecret) -> Nonce {
        Nonce::new(self.derive("nonce", cookie))
    }

    fn derive(&self, label: &str, cookie: &PlainSecret) -> String {
        let mut hash = Sha256::new();
        for part in ["tenant-broker upstream ", label, cookie.expose(), self.0.expose()] {
            // Lengths keep what is one part from being read as two.
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
    fn every_part_matters() {
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
    fn what_is_no_state_is_refused() {
        for text in ["", ".", "tbu_x", "tbq_x.tbu_x", "x.y"] {
            assert!(State::presented(text).is_none(), "{text}");
        }
    }
}
