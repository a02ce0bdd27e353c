//! `GET /oauth2/authorize`: a client asks that somebody sign in (RFC 6749 section 4.1.1, OpenID
//! Connect Core 1.0 section 3.1.2.1, PKCE RFC 7636 section 4.3).
//!
//! Client and redirect URI are judged first. Until both are known to be good nobody is sent
//! anywhere: a wrong one gives a page. Afterwards every refusal goes to the client.

use poem::{Request, Response, http::StatusCode};
use tenant_shared::PLUGIN_CLIENT_ID;

use super::{
    Issuer,
    pages::{self, Page},
    parameters::{ParameterFault, Parameters},
    redirect::{self, RedirectUri},
    target::Target,
    waiting::{self, Ask},
};
use crate::identity::session::contains_scope;

/// Scopes that the issuer knows; others are ignored (OpenID Connect Core 1.0 section 3.1.2.1).
pub(super) const SCOPES: [&str; 3] = ["openid", "email", "offline_access"];
/// Bytes of `state` and `nonce` at most.
const MOST_OPAQUE_BYTES: usize = 512;
/// Bytes of `scope` at most.
const MOST_SCOPE_BYTES: usize = 256;
/// Characters of a SHA-256 in base64url.
const CHALLENGE_BYTES: usize = 43;

/// A request that may be answered.
struct Asked<'a> {
    scope: String,
    nonce: Option<&'a str>,
    code_challenge: &'a str,
}

/// A refusal that the client is told (RFC 6749 section 4.1.2.1).
struct Refusal {
    error: &'static str,
    description: String,
}

impl Refusal {
    fn new(error: &'static str, description: impl Into<String>) -> Self {
        Self { error, description: description.into() }
    }
}

impl From<ParameterFault> for Refusal {
    fn from(fault: ParameterFault) -> Self {
        Self::new("invalid_request", fault.to_string())
    }
}

/// Answers with a redirect to the sign-in page, a redirect to the client, or a page.
pub(super) async fn authorize(issuer: Issuer, request: Request) -> Response {
    let sent = match Parameters::of_query(&request) {
        Ok(sent) => sent,
        Err(fault) => return refused_here(&fault.to_string()),
    };
    match sent.required("client_id", 64) {
        Ok(PLUGIN_CLIENT_ID) => {}
        Ok(_) => return refused_here("the parameter client_id names no application known here"),
        Err(fault) => return refused_here(&fault.to_string()),
    }
    let redirect = match sent.required("redirect_uri", redirect::MOST_BYTES) {
        Ok(text) => RedirectUri::allowed(text, issuer.name()),
        Err(fault) => return refused_here(&fault.to_string()),
    };
    let Some(redirect) = redirect else {
        return refused_here("the parameter redirect_uri is not an address of this application");
    };

    // A state that cannot be sent back whole is not sent back at all.
    let state = sent.optional("state", MOST_OPAQUE_BYTES);
    let echo = state.as_ref().copied().unwrap_or_default();
    let outcome = match state.map_err(Refusal::from).and_then(|_| asked(&sent)) {
        Ok(asked) => keep(&issuer, redirect, echo, &asked).await,
        Err(refusal) => return refuse(&issuer, &redirect, echo, &refusal),
    };
    outcome.unwrap_or_else(|error| pages::storage(&error))
}

/// What the client asks for, if that can be given.
fn asked(sent: &Parameters) -> Result<Asked<'_>, Refusal> {
    sent.refuse_repeated()?;
    match sent.required("response_type", 64)? {
        "code" => {}
        _ => return Err(Refusal::new("unsupported_response_type", "response_type must be code")),
    }
    if !matches!(sent.optional("response_mode", 64)?, None | Some("query")) {
        return Err(Refusal::new("invalid_request", "response_mode must be query"));
    }
    // A request object would have to be obeyed instead of the parameters; it must not be ignored.
    for (name, error) in
        [("request", "request_not_supported"), ("request_uri", "request_uri_not_supported")]
    {
        if sent.has(name) {
            return Err(Refusal::new(error, format!("the parameter {name} is not supported")));
        }
    }
    let code_challenge = sent.required("code_challenge", CHALLENGE_BYTES)?;
    if sent.optional("code_challenge_method", 16)? != Some("S256") {
        return Err(Refusal::new("invalid_request", "code_challenge_method must be S256"));
    }
    if code_challenge.len() != CHALLENGE_BYTES || !is_base64url(code_challenge) {
        return Err(Refusal::new("invalid_request", "code_challenge is not an S256 challenge"));
    }
    let scope = granted(sent.optional("scope", MOST_SCOPE_BYTES)?.unwrap_or_default());
    if !contains_scope(&scope, "openid") {
        return Err(Refusal::new("invalid_scope", "scope must have openid"));
    }
    // There is no session in the browser: everybody signs in anew, whatever the other values of
    // `prompt` and `max_age` ask, and nobody can be signed in without being asked.
    let prompt = sent.optional("prompt", 64)?.unwrap_or_default();
    if prompt.split(' ').any(|one| one == "none") {
        return Err(Refusal::new("login_required", "nobody can be signed in without a page"));
    }
    Ok(Asked { scope, nonce: sent.optional("nonce", MOST_OPAQUE_BYTES)?, code_challenge })
}

/// The known scopes of those asked for, each once, in a fixed order.
pub(super) fn granted(asked: &str) -> String {
    let known = SCOPES.into_iter().filter(|name| asked.split(' ').any(|one| one == *name));
    known.collect::<Vec<_>>().join(" ")
}

fn is_base64url(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// Keeps the request and sends the browser to the sign-in page.
async fn keep(
    issuer: &Issuer,
    redirect: RedirectUri,
    state: Option<&str>,
    asked: &Asked<'_>,
) -> sqlx::Result<Response> {
    let ask = Ask {
        client_id: PLUGIN_CLIENT_ID,
        target: &Target::Client(redirect),
        scope: &asked.scope,
        state,
        nonce: asked.nonce,
        code_challenge: asked.code_challenge,
    };
    waiting::begin(issuer, &ask).await
}

fn refused_here(why: &str) -> Response {
    pages::show(
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

fn refuse(
    issuer: &Issuer,
    redirect: &RedirectUri,
    state: Option<&str>,
    refusal: &Refusal,
) -> Response {
    let mut answer =
        vec![("error", refusal.error), ("error_description", refusal.description.as_str())];
    answer.extend(state.map(|state| ("state", state)));
    answer.push(("iss", issuer.name()));
    redirect.answer(&answer)
}
