//! Tokens that the issuer signs or stores, and the errors of the endpoints that issue them.

mod id_token;
pub(super) mod issued_tokens;
pub(super) mod public_client;
pub(super) mod refresh_tokens;
pub(super) mod token_error;
