//! Discovery: the issuer's metadata and its public keys.

use poem::{
    Response,
    http::{StatusCode, header},
};
use serde_json::json;

use super::Issuer;

/// `Cache-Control` of these documents: clients and proxies may cache them for five minutes. A new
/// signing key is published for longer than that before it signs.
const CACHE_CONTROL: &str = "public, max-age=300";

/// `GET /.well-known/openid-configuration` (OpenID Connect Discovery 1.0 section 3, RFC 8414).
pub(super) fn configuration(issuer: &Issuer) -> Response {
    let name = issuer.name();
    let grant_types = [
        "authorization_code",
        "refresh_token",
        super::device::GRANT_TYPE,
        super::token_exchange::GRANT_TYPE,
    ];
    let at = |path: &str| format!("{name}{path}");
    cacheable(&json!({
        "issuer": name,
        "authorization_endpoint": at("/oauth2/authorize"),
        "token_endpoint": at("/oauth2/token"),
        "device_authorization_endpoint": at("/oauth2/device_authorization"),
        "userinfo_endpoint": at("/oauth2/userinfo"),
        "revocation_endpoint": at("/oauth2/revoke"),
        "jwks_uri": at("/oauth2/jwks"),
        "scopes_supported": super::authorization::authorize::SCOPES,
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": grant_types,
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
        "token_endpoint_auth_methods_supported": ["none"],
        "revocation_endpoint_auth_methods_supported": ["none"],
        "code_challenge_methods_supported": ["S256"],
        "claims_supported":
            ["iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "email", "sid"],
        "authorization_response_iss_parameter_supported": true,
        "claims_parameter_supported": false,
        "request_parameter_supported": false,
        "request_uri_parameter_supported": false,
    }))
}

/// `GET /oauth2/jwks` (RFC 7517 section 5).
pub(super) fn jwks(issuer: &Issuer) -> Response {
    cacheable(&json!({ "keys": issuer.keys().published() }))
}

fn cacheable(document: &serde_json::Value) -> Response {
    Response::builder()
        .status(StatusCode::OK)
        .content_type("application/json")
        .header(header::CACHE_CONTROL, CACHE_CONTROL)
        .body(document.to_string())
}
