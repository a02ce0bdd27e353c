//! `POST /login/backchannel/{name}`: a provider notifies the broker that a user signed out (OpenID
//! Connect Back-Channel Logout 1.0).

use poem::{
    Request, Response,
    http::{StatusCode, header},
};
use serde_json::json;

use super::{Connector, ProviderError, check, grant, start};
use crate::{
    base::request_context::{Field, record_field},
    issuer::{
        Issuer,
        jwt::{CLOCK_SKEW_SECONDS, Claims, TokenKind},
        pages,
        parameters::{MAX_BYTES, Parameters},
    },
};

/// Maximum sessions that one logout token ends; the provider sends it again for the rest.
const MAX_SESSIONS: u32 = 1000;

/// Ends the sessions that a logout token names.
pub(in crate::issuer) async fn handle_logout(issuer: Issuer, mut request: Request) -> Response {
    let Some(connector) = start::find_connector(&issuer, &request).cloned() else {
        return error_response(StatusCode::NOT_FOUND, "there is no such provider");
    };
    let sent = match Parameters::from_body(&mut request).await {
        Ok(sent) => sent,
        Err(fault) => return error_response(fault.status(), &fault.to_string()),
    };
    let Ok(token) = sent.required("logout_token", MAX_BYTES) else {
        return error_response(StatusCode::BAD_REQUEST, "the parameter logout_token is missing");
    };
    let claims = match connector.provider.verify(token, TokenKind::Logout).await {
        Ok(claims) => claims,
        Err(ProviderError::Unavailable(cause)) => {
            record_field(Field::Cause, cause);
            let answer =
                error_response(StatusCode::SERVICE_UNAVAILABLE, "the keys cannot be fetched");
            return pages::with_retry_after(answer, 5);
        }
        Err(error) => return error_response(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let Some(logout) = LogoutSubject::from_claims(&claims) else {
        return error_response(
            StatusCode::BAD_REQUEST,
            "it is not a logout token: it needs sub or sid, iat and jti, and no nonce",
        );
    };
    match end_sessions(&issuer, &connector, &logout).await {
        Ok(()) => Response::builder()
            .status(StatusCode::OK)
            .header(header::CACHE_CONTROL, "no-store")
            .finish(),
        Err(error) => pages::database_unavailable(&error),
    }
}

/// Subject and session of a logout token, and its time.
struct LogoutSubject<'a> {
    subject: Option<&'a str>,
    sid: Option<&'a str>,
    at_ms: i64,
}

impl<'a> LogoutSubject<'a> {
    /// Section 2.4: a logout token has a subject, a session or both, and never a nonce, so that an
    /// ID token is refused. An empty value is refused too, because the statements treat it as
    /// "any".
    fn from_claims(claims: &'a Claims) -> Option<Self> {
        let (subject, sid) = (claims.subject(), claims.text("sid"));
        let is_named = (subject.is_some() || sid.is_some())
            && [subject, sid].into_iter().flatten().all(|name| !name.is_empty());
        let at_ms = claims.seconds("iat")?.checked_add(CLOCK_SKEW_SECONDS)?.checked_mul(1000)?;
        let is_valid =
            is_named && !claims.all().contains_key("nonce") && claims.text("jti").is_some();
        is_valid.then_some(Self { subject, sid, at_ms })
    }
}

/// Ends only sessions that began before the token was issued: a replayed token ends nothing new, so
/// the broker need not remember tokens.
async fn end_sessions(
    issuer: &Issuer,
    connector: &Connector,
    logout: &LogoutSubject<'_>,
) -> sqlx::Result<()> {
    let selector = grant::GrantSelector {
        connector: &connector.name,
        subject: logout.subject,
        sid: logout.sid,
        before: logout.at_ms,
    };
    let mut tx = issuer.db().begin().await?;
    grant::delete_unattached(&mut tx, &selector).await?;
    for grant in grant::select(&mut tx, &selector, MAX_SESSIONS).await? {
        check::end_session(issuer, &mut tx, &grant, "the person signed out at the provider")
            .await?;
    }
    tx.commit().await
}

fn error_response(status: StatusCode, why: &str) -> Response {
    record_field(Field::Cause, why);
    let body = json!({ "error": "invalid_request", "error_description": why });
    Response::builder()
        .status(status)
        .content_type("application/json")
        .header(header::CACHE_CONTROL, "no-store")
        .body(body.to_string())
}
