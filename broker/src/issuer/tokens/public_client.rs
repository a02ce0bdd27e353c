//! The clients of the issuer.

use poem::{Request, http::header};
use tenant_shared::PLUGIN_CLIENT_ID;

use super::token_error::TokenError;
use crate::issuer::parameters::Parameters;

/// The client of a request. All clients are public: they have no secret, and a client that sends
/// one is misconfigured (RFC 6749 section 2.3).
pub(in crate::issuer) fn public_client<'a>(
    request: &Request,
    params: &'a Parameters,
) -> Result<Option<&'a str>, TokenError> {
    let authenticates = request.headers().contains_key(header::AUTHORIZATION)
        || params.has("client_secret")
        || params.has("client_assertion");
    if authenticates {
        return Err(TokenError::Client("this client is public: send client_id and no secret"));
    }
    match params.optional("client_id", 64)? {
        Some(PLUGIN_CLIENT_ID) | None => Ok(params.optional("client_id", 64)?),
        Some(_) => Err(TokenError::Client("client_id names no client known here")),
    }
}
