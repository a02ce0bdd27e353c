//! The token endpoint, `POST /oauth2/token`: tokens for a code, a refresh token (RFC 6749 sections
//! 4.1.3 and 6), a device code (RFC 8628 section 3.4) or another token (RFC 8693).

mod code;
mod refresh;

use poem::{Request, Response, http::StatusCode};
use serde_json::json;

use super::{
    Issuer, device,
    parameters::{ParameterError, Parameters},
    token_exchange::{self, ExchangedToken},
    tokens::{
        public_client::public_client,
        token_error::{self, TokenError, no_store_json},
    },
};

/// Handles a token request.
pub(super) async fn token(issuer: Issuer, mut request: Request) -> Response {
    let admitted = match issuer.identity().limits().admit() {
        Ok(admitted) => admitted,
        Err(limit) => return token_error::too_many(limit),
    };
    match redeem_grant(&issuer, &mut request).await {
        Ok(response) => {
            admitted.authenticated();
            response
        }
        Err(error) => error.response(),
    }
}

async fn redeem_grant(issuer: &Issuer, request: &mut Request) -> Result<Response, TokenError> {
    let params = Parameters::from_body(request).await?;
    params.refuse_repeated()?;
    let grant_type = params.required("grant_type", 64)?;
    let client_id = public_client(request, &params)?;
    if grant_type == token_exchange::GRANT_TYPE {
        return Ok(exchange_response(&token_exchange::exchange(issuer, &params).await?));
    }
    let client_id = client_id.ok_or(ParameterError::Missing("client_id"))?;
    let tokens = match grant_type {
        "authorization_code" => code::redeem(issuer, &params, client_id).await,
        "refresh_token" => refresh::redeem(issuer, &params, client_id).await,
        device::GRANT_TYPE => device::redeem(issuer, &params, client_id).await,
        _ => Err(TokenError::GrantType),
    };
    tokens.map(|tokens| tokens.response())
}

/// The response of a token exchange (RFC 8693 section 2.2.1).
fn exchange_response(exchanged: &ExchangedToken) -> Response {
    let mut body = json!({
        "access_token": exchanged.access_token.expose(),
        "issued_token_type": token_exchange::ACCESS_TOKEN,
        "token_type": "Bearer",
        "expires_in": exchanged.expires_in,
    });
    if let Some(scope) = exchanged.scope {
        body["scope"] = scope.into();
    }
    no_store_json(StatusCode::OK, &body)
}
