//! The authorization endpoint, `GET /oauth2/authorize` (RFC 6749 section 4.1.1, OpenID Connect Core
//! 1.0 section 3.1.2.1, PKCE RFC 7636 section 4.3).
//!
//! Client and redirect URI are checked first. If one is wrong, the browser is not redirected and
//! gets an error page. Every later refusal is a redirect to the client.

use poem::{Request, Response, http::StatusCode};
use tenant_shared::PLUGIN_CLIENT_ID;

use super::pending_authorization::{self, AuthorizationRequest};
use crate::{
    identity::sessions::contains_scope,
    issuer::{
        Issuer,
        pages::{self, Page},
        parameters::{ParameterError, Parameters},
        redirect::{self, RedirectUri, ReturnTarget},
    },
};

/// Scopes that the issuer supports; others are ignored (OpenID Connect Core 1.0 section 3.1.2.1).
pub(in crate::issuer) const SCOPES: [&str; 3] = ["openid", "email", "offline_access"];
/// Bytes of `state` and `nonce` at most.
const MAX_OPAQUE_BYTES: usize = 512;
/// Bytes of `scope` at most.
const MAX_SCOPE_BYTES: usize = 256;
/// Characters of a SHA-256 in base64url.
const CHALLENGE_BYTES: usize = 43;

/// The validated parameters of an authorization request.
struct AuthorizationParameters<'a> {
    scope: String,
    nonce: Option<&'a str>,
    code_challenge: &'a str,
}

/// An error response to the client (RFC 6749 section 4.1.2.1).
struct AuthorizationErrorResponse {
    error: &'static str,
    description: String,
}

impl AuthorizationErrorResponse {
    fn new(error: &'static str, description: impl Into<String>) -> Self {
        Self { error, description: description.into() }
    }
}

impl From<ParameterError> for AuthorizationErrorResponse {
    fn from(fault: ParameterError) -> Self {
        Self::new("invalid_request", fault.to_string())
    }
}

/// Responds with a redirect to the sign-in page, a redirect to the client, or an error page.
pub(in crate::issuer) async fn authorize(issuer: Issuer, request: Request) -> Response {
    let params = match Parameters::from_query(&request) {
        Ok(params) => params,
        Err(fault) => return error_page(&fault.to_string()),
    };
    match params.required("client_id", 64) {
        Ok(PLUGIN_CLIENT_ID) => {}
        Ok(_) => return error_page("the parameter client_id names no application known here"),
        Err(fault) => return error_page(&fault.to_string()),
    }
    let redirect = match params.required("redirect_uri", redirect::MAX_BYTES) {
        Ok(text) => RedirectUri::allowed(text, issuer.name()),
        Err(fault) => return error_page(&fault.to_string()),
    };
    let Some(redirect) = redirect else {
        return error_page("the parameter redirect_uri is not an address of this application");
    };

    // A state that is too long or malformed is not sent back.
    let state = params.optional("state", MAX_OPAQUE_BYTES);
    let echo = state.as_ref().copied().unwrap_or_default();
    let response =
        match state.map_err(AuthorizationErrorResponse::from).and_then(|_| validate(&params)) {
            Ok(requested) => store_and_redirect(&issuer, redirect, echo, &requested).await,
            Err(refusal) => return redirect_error(&issuer, &redirect, echo, &refusal),
        };
    response.unwrap_or_else(|error| pages::database_unavailable(&error))
}

/// Validates all parameters but the client, the redirect URI and the state.
fn validate(
    params: &Parameters,
) -> Result<AuthorizationParameters<'_>, AuthorizationErrorResponse> {
    params.refuse_repeated()?;
    match params.required("response_type", 64)? {
        "code" => {}
        _ => {
            return Err(AuthorizationErrorResponse::new(
                "unsupported_response_type",
                "response_type must be code",
            ));
        }
    }
    if !matches!(params.optional("response_mode", 64)?, None | Some("query")) {
        return Err(AuthorizationErrorResponse::new(
            "invalid_request",
            "response_mode must be query",
        ));
    }
    // A request object would replace the parameters, so it must be refused and not ignored.
    for (name, error) in
        [("request", "request_not_supported"), ("request_uri", "request_uri_not_supported")]
    {
        if params.has(name) {
            return Err(AuthorizationErrorResponse::new(
                error,
                format!("the parameter {name} is not supported"),
            ));
        }
    }
    let code_challenge = params.required("code_challenge", CHALLENGE_BYTES)?;
    if params.optional("code_challenge_method", 16)? != Some("S256") {
        return Err(AuthorizationErrorResponse::new(
            "invalid_request",
            "code_challenge_method must be S256",
        ));
    }
    if code_challenge.len() != CHALLENGE_BYTES || !is_base64url(code_challenge) {
        return Err(AuthorizationErrorResponse::new(
            "invalid_request",
            "code_challenge is not an S256 challenge",
        ));
    }
    let scope = known_scopes(params.optional("scope", MAX_SCOPE_BYTES)?.unwrap_or_default());
    if !contains_scope(&scope, "openid") {
        return Err(AuthorizationErrorResponse::new("invalid_scope", "scope must have openid"));
    }
    // A browser session is not used here: everybody signs in again, whatever `max_age` and the
    // other values of `prompt` request, so nobody can be signed in without interaction.
    let prompt = params.optional("prompt", 64)?.unwrap_or_default();
    if prompt.split(' ').any(|one| one == "none") {
        return Err(AuthorizationErrorResponse::new(
            "login_required",
            "nobody can be signed in without a page",
        ));
    }
    Ok(AuthorizationParameters {
        scope,
        nonce: params.optional("nonce", MAX_OPAQUE_BYTES)?,
        code_challenge,
    })
}

/// The supported scopes among the requested ones, each once, in a fixed order.
pub(in crate::issuer) fn known_scopes(requested: &str) -> String {
    let known = SCOPES.into_iter().filter(|name| requested.split(' ').any(|one| one == *name));
    known.collect::<Vec<_>>().join(" ")
}

fn is_base64url(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// Stores the request and redirects the browser to the sign-in page.
async fn store_and_redirect(
    issuer: &Issuer,
    redirect: RedirectUri,
    state: Option<&str>,
    requested: &AuthorizationParameters<'_>,
) -> sqlx::Result<Response> {
    let request = AuthorizationRequest {
        client_id: PLUGIN_CLIENT_ID,
        target: &ReturnTarget::Client(redirect),
        scope: &requested.scope,
        state,
        nonce: requested.nonce,
        code_challenge: requested.code_challenge,
    };
    pending_authorization::start(issuer, &request).await
}

fn error_page(why: &str) -> Response {
    pages::render(
        StatusCode::BAD_REQUEST,
        &Page::Problem {
            title: "This sign-in request is not valid",
            text: &format!(
                "Nobody was signed in: {why}. Begin again with kubectl tenant login; if a link \
                 brought you here, do not trust it."
            ),
        },
    )
}

fn redirect_error(
    issuer: &Issuer,
    redirect: &RedirectUri,
    state: Option<&str>,
    refusal: &AuthorizationErrorResponse,
) -> Response {
    let mut parameters =
        vec![("error", refusal.error), ("error_description", refusal.description.as_str())];
    parameters.extend(state.map(|state| ("state", state)));
    parameters.push(("iss", issuer.name()));
    redirect.redirect_with(&parameters)
}
