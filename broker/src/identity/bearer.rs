//! Who sends a request to the HTTP API: the bearer of an access token, or a browser with a cookie.

use poem::{Request, RequestBody};
use poem_openapi::{
    ApiExtractor, ApiExtractorType, ExtractParamOptions,
    registry::{MetaSecurityScheme, Registry},
};

use super::{Caller, Identity};
use crate::problem::Failure;

/// Name of the bearer token in the OpenAPI document.
const BEARER: &str = "Bearer";
/// Name of the cookie there.
const COOKIE: &str = "Cookie";

/// Somebody signed in. As the first parameter of an operation it has a stranger refused before
/// anything else of the request is read.
///
/// Written out instead of derived: a cookie is worth nothing without a look at where the request
/// came from, and its name depends on whether the broker is reached over https.
#[derive(Debug)]
pub struct Bearer(pub Caller);

impl<'a> ApiExtractor<'a> for Bearer {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::SecurityScheme];

    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        let scheme = MetaSecurityScheme {
            ty: "http",
            description: Some(
                "An access token of the issuer that `/.well-known/openid-configuration` describes \
                 (RFC 6750).",
            ),
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
            description: Some(
                "The session of a browser, from `POST /auth/login` or the page `/login`. Taken only \
                 from the broker's own pages and from the origins in `frontends.origins`. On \
                 loopback without TLS its name lacks the prefix `__Host-`.",
            ),
            name: Some("__Host-tenant-session"),
            key_in: Some("cookie"),
            scheme: None,
            bearer_format: None,
            flows: None,
            openid_connect_url: None,
        };
        registry.create_security_scheme(COOKIE, scheme);
    }

    fn security_schemes() -> Vec<&'static str> {
        vec![BEARER, COOKIE]
    }

    async fn from_request(
        request: &'a Request,
        _: &mut RequestBody,
        _: ExtractParamOptions<()>,
    ) -> poem::Result<Self> {
        Ok(Self(identity(request)?.signed_in(request).await?))
    }
}

/// Somebody signed in, or a machine whose session is for one workspace. Only for operations on a
/// workspace, which ask [`crate::access`]; everything else takes [`Bearer`] and refuses machines.
#[derive(Debug)]
pub struct WorkspaceBearer(pub Caller);

impl<'a> ApiExtractor<'a> for WorkspaceBearer {
    const TYPES: &'static [ApiExtractorType] = Bearer::TYPES;

    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        Bearer::register(registry);
    }

    fn security_schemes() -> Vec<&'static str> {
        Bearer::security_schemes()
    }

    async fn from_request(
        request: &'a Request,
        _: &mut RequestBody,
        _: ExtractParamOptions<()>,
    ) -> poem::Result<Self> {
        Ok(Self(identity(request)?.signed_in_for_workspace(request).await?))
    }
}

/// [`Identity`] travels as the request's data; the composition root puts it there.
fn identity(request: &Request) -> Result<&Identity, Failure> {
    request.data::<Identity>().ok_or_else(|| Failure::internal(&NoIdentity))
}

#[derive(Debug, thiserror::Error)]
#[error("the composition root gave the API no Identity")]
struct NoIdentity;
