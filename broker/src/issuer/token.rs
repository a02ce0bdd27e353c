//! `POST /oauth2/token`: tokens for a code, a refresh token (RFC 6749 sections 4.1.3 and 6)
//! or a device code (RFC 8628 section 3.4).

use poem::{
    Request, Response,
    http::{HeaderValue, StatusCode, header},
};
use serde_json::json;
use tenant_shared::PLUGIN_CLIENT_ID;

use super::{
    Issuer, code, device,
    exchange::{self, Exchanged},
    id_token, pages,
    parameters::{ParameterFault, Parameters},
    refresh,
};
use crate::{
    db::Tx,
    identity::session::{self, Session},
    problem::{self, note},
    rate_limit::TooMany,
    secret::{NoRandomness, PlainSecret, SecretHash},
};

/// Bytes of a token or code at most, as clients present them.
pub(super) const MOST_TOKEN_BYTES: usize = 128;

/// A request that gets no tokens (RFC 6749 section 5.2).
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenError {
    /// It cannot be understood.
    #[error(transparent)]
    Parameter(#[from] ParameterFault),
    /// The client is not one that we know, or authenticates in a way that it cannot.
    #[error("{0}")]
    Client(&'static str),
    /// What it presents is worth nothing (any more).
    #[error("{0}")]
    Grant(&'static str),
    /// It presents something that we do not know.
    #[error("grant_type must be authorization_code, refresh_token or the device grant")]
    GrantType,
    /// The person has not decided yet (RFC 8628 section 3.5).
    #[error("the person has not decided yet; ask again after the interval")]
    AuthorizationPending,
    /// The device asks too often (RFC 8628 section 3.5).
    #[error("asked too often; wait 5 seconds longer between polls from now on")]
    SlowDown,
    /// The person said no (RFC 8628 section 3.5).
    #[error("the person refused")]
    AccessDenied,
    /// The person took too long (RFC 8628 section 3.5).
    #[error("the code has expired; begin again")]
    ExpiredToken,
    /// Too often, from this address.
    #[error("too many requests; try again later")]
    TooMany(u64),
    /// The token that is presented for exchange gives nothing (RFC 8693 section 2.2.2).
    #[error("{0}")]
    Subject(&'static str),
    /// It asks for more than it was given.
    #[error("scope asks for more than the person agreed to")]
    Scope,
    /// The database does not answer.
    #[error("the broker cannot reach its database; try again")]
    Storage(#[from] sqlx::Error),
    /// The same, and the cause was noted already.
    #[error("the broker cannot reach its database; try again")]
    Unavailable,
    /// The provider of a session does not answer.
    #[error("the issuer that this depends on does not answer; nothing has ended, so try again")]
    Provider,
    /// No randomness.
    #[error("the broker failed; an operator finds the cause in its log by the request id")]
    Randomness(#[from] NoRandomness),
    /// No signature.
    #[error("the broker failed; an operator finds the cause in its log by the request id")]
    Signature(#[from] jsonwebtoken::errors::Error),
}

impl TokenError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Parameter(fault) => fault.status(),
            Self::Client(_) => StatusCode::UNAUTHORIZED,
            Self::Grant(_)
            | Self::Subject(_)
            | Self::GrantType
            | Self::Scope
            | Self::AuthorizationPending
            | Self::SlowDown
            | Self::AccessDenied
            | Self::ExpiredToken => StatusCode::BAD_REQUEST,
            Self::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Storage(_) | Self::Unavailable | Self::Provider => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Randomness(_) | Self::Signature(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Parameter(_) | Self::Subject(_) => "invalid_request",
            Self::Client(_) => "invalid_client",
            Self::Grant(_) => "invalid_grant",
            Self::GrantType => "unsupported_grant_type",
            Self::Scope => "invalid_scope",
            Self::AuthorizationPending => "authorization_pending",
            Self::SlowDown => "slow_down",
            Self::AccessDenied => "access_denied",
            Self::ExpiredToken => "expired_token",
            Self::TooMany(_) | Self::Storage(_) | Self::Unavailable | Self::Provider => {
                "temporarily_unavailable"
            }
            Self::Randomness(_) | Self::Signature(_) => "server_error",
        }
    }

    /// The refusal on the wire.
    pub(super) fn response(&self) -> Response {
        note("code", self.code());
        match self {
            Self::Storage(error) => note("cause", problem::chain(error)),
            Self::Randomness(error) => note("cause", error.to_string()),
            Self::Signature(error) => note("cause", error.to_string()),
            _ => {}
        }
        let body = json!({ "error": self.code(), "error_description": self.to_string() });
        let mut response = unkept(self.status(), &body);
        match self {
            Self::Storage(_) | Self::Unavailable | Self::Provider => {
                response = pages::later(response, 5);
            }
            Self::TooMany(seconds) => response = pages::later(response, *seconds),
            _ => {}
        }
        if let Self::Client(_) = self {
            let scheme = HeaderValue::from_static("Basic realm=\"tenant-broker\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// JSON that nobody keeps (RFC 6749 section 5.1).
fn unkept(status: StatusCode, body: &serde_json::Value) -> Response {
    Response::builder()
        .status(status)
        .content_type("application/json")
        .header(header::CACHE_CONTROL, "no-store")
        .header(header::PRAGMA, "no-cache")
        .body(body.to_string())
}

/// Tokens that may leave, once their transaction is durable.
pub(super) struct Granted {
    access_token: PlainSecret,
    expires_in: i64,
    refresh_token: Option<PlainSecret>,
    id_token: String,
    scope: String,
}

impl Granted {
    /// The tokens on the wire (RFC 6749 section 5.1).
    fn response(&self) -> Response {
        let mut body = json!({
            "access_token": self.access_token.expose(),
            "token_type": "Bearer",
            "expires_in": self.expires_in,
            "id_token": self.id_token,
            "scope": self.scope,
        });
        if let Some(token) = &self.refresh_token {
            body["refresh_token"] = token.expose().into();
        }
        unkept(StatusCode::OK, &body)
    }
}

/// An exchanged token on the wire (RFC 8693 section 2.2.1).
fn exchanged(exchanged: &Exchanged) -> Response {
    let mut body = json!({
        "access_token": exchanged.access_token.expose(),
        "issued_token_type": exchange::ACCESS_TOKEN,
        "token_type": "Bearer",
        "expires_in": exchanged.expires_in,
    });
    if let Some(scope) = exchanged.scope {
        body["scope"] = scope.into();
    }
    unkept(StatusCode::OK, &body)
}

/// Answers a token request.
pub(super) async fn token(issuer: Issuer, mut request: Request) -> Response {
    let admitted = match issuer.identity().limits().admit() {
        Ok(admitted) => admitted,
        Err(limit) => return too_many(limit),
    };
    match exchange(&issuer, &mut request).await {
        Ok(response) => {
            admitted.authenticated();
            response
        }
        Err(error) => error.response(),
    }
}

async fn exchange(issuer: &Issuer, request: &mut Request) -> Result<Response, TokenError> {
    let sent = Parameters::of_body(request).await?;
    sent.refuse_repeated()?;
    let grant_type = sent.required("grant_type", 64)?;
    let client_id = client(request, &sent)?;
    if grant_type == exchange::GRANT_TYPE {
        return Ok(exchanged(&exchange::exchange(issuer, &sent).await?));
    }
    let client_id = client_id.ok_or(ParameterFault::Missing("client_id"))?;
    let granted = match grant_type {
        "authorization_code" => code::exchange(issuer, &sent, client_id).await,
        "refresh_token" => refresh::exchange(issuer, &sent, client_id).await,
        device::GRANT_TYPE => device::exchange(issuer, &sent, client_id).await,
        _ => Err(TokenError::GrantType),
    };
    granted.map(|granted| granted.response())
}

/// The answer to an unauthenticated request beyond the limits.
pub(super) fn too_many(limit: TooMany) -> Response {
    TokenError::TooMany(limit.retry_after).response()
}

/// The client that asks. All are public clients: they have no secret, and one that sends one is
/// mistaken about where it is (RFC 6749 section 2.3).
pub(super) fn client<'a>(
    request: &Request,
    sent: &'a Parameters,
) -> Result<Option<&'a str>, TokenError> {
    let authenticates = request.headers().contains_key(header::AUTHORIZATION)
        || sent.has("client_secret")
        || sent.has("client_assertion");
    if authenticates {
        return Err(TokenError::Client("this client is public: send client_id and no secret"));
    }
    match sent.optional("client_id", 64)? {
        Some(PLUGIN_CLIENT_ID) | None => Ok(sent.optional("client_id", 64)?),
        Some(_) => Err(TokenError::Client("client_id names no client known here")),
    }
}

/// Adds tokens to a session that is alive; `parent` is the refresh token that they are given for.
pub(super) async fn grant(
    issuer: &Issuer,
    tx: &mut Tx,
    session: &Session,
    nonce: Option<&str>,
    parent: Option<SecretHash>,
    now: i64,
) -> Result<Granted, TokenError> {
    let access_token = PlainSecret::generate(session::ACCESS_PREFIX)?;
    let lifetime = i64::from(issuer.settings().access_token_seconds) * 1000;
    let expires_at = (now + lifetime).min(session.expires_at);
    session::add_access_token(tx, access_token.hash(), session.id, expires_at, None).await?;
    let refresh_token = if session.has_scope("offline_access") {
        let token = PlainSecret::generate(refresh::PREFIX)?;
        refresh::add(tx, token.hash(), session.id, parent, now).await?;
        Some(token)
    } else {
        None
    };
    note("user_id", session.user_id);
    note("session_id", session.id);
    Ok(Granted {
        access_token,
        expires_in: (expires_at - now) / 1000,
        refresh_token,
        // Signed before the commit: a fault leaves nothing behind.
        id_token: id_token::issue(issuer, session, nonce, now)?,
        scope: session.scope.clone(),
    })
}
