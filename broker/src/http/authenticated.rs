//! Extractors that authenticate requests to the HTTP API, by access token or by a browser's cookie.

use poem::{Request, RequestBody};
use poem_openapi::{
    ApiExtractor, ApiExtractorType, ExtractParamOptions,
    registry::{MetaSecurityScheme, Registry},
};

use super::ApiError;
use crate::identity::{Caller, Identity};

/// Name of the security scheme for access tokens in the OpenAPI document.
const BEARER: &str = "Bearer";
/// Name of the security scheme for the cookie in the OpenAPI document.
const COOKIE: &str = "Cookie";

/// The security schemes of operations that a caller may use with either credential.
pub const SECURITY_SCHEMES: [&str; 2] = [BEARER, COOKIE];

/// Adds the [`SECURITY_SCHEMES`] to an OpenAPI document, with a description of each.
pub fn register_security_schemes(
    registry: &mut Registry,
    bearer: &'static str,
    cookie: &'static str,
) {
    let scheme = MetaSecurityScheme {
        ty: "http",
        description: Some(bearer),
        name: None,
        key_in: None,
        scheme: Some("bearer"),
        bearer_format: None,
        flows: None,
        openid_connect_url: None,
    };
    registry.create_security_scheme(BEARER, scheme);
    let scheme = MetaSecurityScheme {
        ty: "apiKey",
        description: Some(cookie),
        name: Some("__Host-tenant-session"),
        key_in: Some("cookie"),
        scheme: None,
        bearer_format: None,
        flows: None,
        openid_connect_url: None,
    };
    registry.create_security_scheme(COOKIE, scheme);
}

/// A signed-in user. As the first parameter of an operation it refuses an unauthenticated request
/// before anything else of the request is read.
///
/// The extractor is written by hand instead of derived, because a cookie is accepted only after a
/// check of the request's origin, and because the cookie's name depends on whether the broker is
/// reached over https.
#[derive(Debug)]
pub struct Authenticated(pub Caller);

impl<'a> ApiExtractor<'a> for Authenticated {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::SecurityScheme];

    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        register_security_schemes(
            registry,
            "An access token of the issuer that `/.well-known/openid-configuration` describes \
             (RFC 6750).",
            "The session of a browser, from `POST /auth/login` or the page `/login`. Accepted \
             only from the broker's own pages and from the origins in `frontends.origins`. On \
             loopback without TLS its name lacks the prefix `__Host-`.",
        );
    }

    fn security_schemes() -> Vec<&'static str> {
        SECURITY_SCHEMES.to_vec()
    }

    async fn from_request(
        request: &'a Request,
        _: &mut RequestBody,
        _: ExtractParamOptions<()>,
    ) -> poem::Result<Self> {
        let caller = identity(request)?.authenticate_user(request.method(), request.headers());
        Ok(Self(caller.await.map_err(ApiError::from)?))
    }
}

/// A signed-in user, or a machine whose session is restricted to one workspace. Only operations on
/// a workspace and reads of tenants take it, because their services ask [`crate::access`] or look
/// at the workspace of the session; all others take [`Authenticated`], which refuses machines.
#[derive(Debug)]
pub struct AuthenticatedForWorkspace(pub Caller);

impl<'a> ApiExtractor<'a> for AuthenticatedForWorkspace {
    const TYPES: &'static [ApiExtractorType] = Authenticated::TYPES;

    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        Authenticated::register(registry);
    }

    fn security_schemes() -> Vec<&'static str> {
        Authenticated::security_schemes()
    }

    async fn from_request(
        request: &'a Request,
        _: &mut RequestBody,
        _: ExtractParamOptions<()>,
    ) -> poem::Result<Self> {
        let (method, headers) = (request.method(), request.headers());
        let caller = identity(request)?.authenticate_for_workspace(method, headers);
        Ok(Self(caller.await.map_err(ApiError::from)?))
    }
}

/// The [`Identity`] in the request's data, where the composition root puts it.
fn identity(request: &Request) -> Result<&Identity, ApiError> {
    request.data::<Identity>().ok_or_else(|| ApiError::internal(&NoIdentity))
}

#[derive(Debug, thiserror::Error)]
#[error("the composition root gave the API no Identity")]
struct NoIdentity;
