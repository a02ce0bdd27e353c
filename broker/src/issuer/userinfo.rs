//! The userinfo endpoint, `GET /oauth2/userinfo` (OpenID Connect Core 1.0 section 5.3).

use poem::{
    IntoResponse as _, Request, Response,
    http::{HeaderValue, StatusCode, header},
};
use serde_json::json;

use super::Issuer;
use crate::{http::ApiError, identity::AuthenticationError};

/// Responds with the claims about the user of an access token.
pub(super) async fn userinfo(issuer: Issuer, request: Request) -> Response {
    let caller = match bearer(&request) {
        Some(token) => issuer.identity().authenticate_access_token(token).await,
        None => Err(AuthenticationError::Unauthenticated),
    };
    match caller {
        Ok(caller) => {
            let mut claims = json!({ "sub": caller.user_id() });
            if caller.has_scope("email") {
                claims["email"] = caller.email().into();
            }
            Response::builder()
                .content_type("application/json")
                .header(header::CACHE_CONTROL, "no-store")
                .body(claims.to_string())
        }
        Err(error) => {
            let mut response = ApiError::from(error).into_response();
            if response.status() == StatusCode::UNAUTHORIZED && bearer(&request).is_some() {
                // RFC 6750 section 3.1: the error code for a token that was sent and is invalid.
                let challenge = "Bearer realm=\"tenant-broker\", error=\"invalid_token\"";
                response
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            }
            response
        }
    }
}

fn bearer(request: &Request) -> Option<&str> {
    let (scheme, token) = request.header(header::AUTHORIZATION)?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
