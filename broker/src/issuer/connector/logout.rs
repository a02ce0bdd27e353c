//! `POST /login/backchannel/{name}`: a provider says that somebody signed out there (OpenID Connect
//! Back-Channel Logout 1.0).

use poem::{
    Request, Response,
    http::{StatusCode, header},
};
use serde_json::json;

use super::{Connector, NoAnswer, check, grant, start};
use crate::{
    issuer::{
        Issuer, pages,
        parameters::{MOST_BYTES, Parameters},
        trust::{Claims, Kind, SKEW},
    },
    problem::note,
};

/// Sessions that one logout token ends at most; a provider sends it again for the rest.
const MOST_SESSIONS: u32 = 1000;

/// Ends the sessions that a logout token names.
pub(in crate::issuer) async fn sign_out(issuer: Issuer, mut request: Request) -> Response {
    let Some(connector) = start::named(&issuer, &request).cloned() else {
        return refused(StatusCode::NOT_FOUND, "there is no such provider");
    };
    let sent = match Parameters::of_body(&mut request).await {
        Ok(sent) => sent,
        Err(fault) => return refused(fault.status(), &fault.to_string()),
    };
    let Ok(token) = sent.required("logout_token", MOST_BYTES) else {
        return refused(StatusCode::BAD_REQUEST, "the parameter logout_token is missing");
    };
    let claims = match connector.provider.verify(token, Kind::Logout).await {
        Ok(claims) => claims,
        Err(NoAnswer::Outage(cause)) => {
            note("cause", cause);
            let answer = refused(StatusCode::SERVICE_UNAVAILABLE, "the keys cannot be fetched");
            return pages::later(answer, 5);
        }
        Err(error) => return refused(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let Some(whom) = Whom::of(&claims) else {
        return refused(StatusCode::BAD_REQUEST, "it does not say who signed out");
    };
    match end(&issuer, &connector, &whom).await {
        Ok(()) => Response::builder()
            .status(StatusCode::OK)
            .header(header::CACHE_CONTROL, "no-store")
            .finish(),
        Err(error) => pages::storage(&error),
    }
}

/// Who signed out of what, and when.
struct Whom<'a> {
    subject: Option<&'a str>,
    sid: Option<&'a str>,
    at_ms: i64,
}

impl<'a> Whom<'a> {
    /// Section 2.4: a subject, a session or both, and never a nonce, so that an ID token is none. An
    /// empty one names nobody and is refused, because the statements take it for "any".
    fn of(claims: &'a Claims) -> Option<Self> {
        let (subject, sid) = (claims.subject(), claims.text("sid"));
        let named = (subject.is_some() || sid.is_some())
            && [subject, sid].into_iter().flatten().all(|name| !name.is_empty());
        let at_ms = claims.seconds("iat")?.checked_add(SKEW)?.checked_mul(1000)?;
        let sound = named && !claims.all().contains_key("nonce") && claims.text("jti").is_some();
        sound.then_some(Self { subject, sid, at_ms })
    }
}

/// Only what began before the token was made: one that is sent again later ends nothing new, so
/// nobody has to remember which were seen.
async fn end(issuer: &Issuer, connector: &Connector, whom: &Whom<'_>) -> sqlx::Result<()> {
    let named = grant::Named {
        connector: &connector.name,
        subject: whom.subject,
        sid: whom.sid,
        before: whom.at_ms,
    };
    let mut tx = issuer.db().begin().await?;
    grant::forget_named(&mut tx, &named).await?;
    for kept in grant::named(&mut tx, &named, MOST_SESSIONS).await? {
        check::end(issuer, &mut tx, &kept, "the person signed out at the provider").await?;
    }
    tx.commit().await
}

fn refused(status: StatusCode, why: &str) -> Response {
    note("cause", why);
    let body = json!({ "error": "invalid_request", "error_description": why });
    Response::builder()
        .status(status)
        .content_type("application/json")
        .header(header::CACHE_CONTROL, "no-store")
        .body(body.to_string())
}
