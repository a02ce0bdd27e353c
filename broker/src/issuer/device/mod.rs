//! Signing in on a device without a browser (RFC 8628): the device shows a code, the person types it
//! on a page here, signs in, and says yes.

mod pages;
mod poll;
mod rows;

use poem::{
    Request, Response,
    http::{StatusCode, header},
};
use serde_json::json;

use super::{
    Issuer, authorize,
    parameters::{ParameterFault, Parameters},
    token::{self, TokenError},
};
use crate::{
    identity::session::contains_scope,
    problem,
    secret::PlainSecret,
    throttle::{self, Limited},
};

pub(super) use pages::{confirm, decide, form, submit};
pub(super) use poll::exchange;
pub(super) use rows::forget;

/// The grant's name at the token endpoint (RFC 8628 section 3.4).
pub(super) const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// What every device code begins with.
const CODE_PREFIX: &str = "tbd_";
/// How long a person may take, in seconds.
const LIFETIME_SECONDS: u32 = 600;
/// How often a device may ask at first, in seconds.
const INTERVAL_SECONDS: u32 = 5;
/// Tries to find a user code that no other device has: one of 25 billion is soon found.
const TRIES: usize = 5;

/// `POST /oauth2/device_authorization` (RFC 8628 section 3.1).
pub(super) async fn start(issuer: Issuer, mut request: Request) -> Response {
    match begin(&issuer, &mut request).await {
        Ok(started) => started.response(&issuer),
        Err(error) => error.response(),
    }
}

struct Started {
    device_code: PlainSecret,
    user_code: PlainSecret,
}

impl Started {
    fn response(&self, issuer: &Issuer) -> Response {
        let (page, code) = (format!("{}/device", issuer.name()), self.user_code.expose());
        let body = json!({
            "device_code": self.device_code.expose(),
            "user_code": code,
            "verification_uri": page,
            "verification_uri_complete": format!("{page}?user_code={code}"),
            "expires_in": LIFETIME_SECONDS,
            "interval": INTERVAL_SECONDS,
        });
        Response::builder()
            .status(StatusCode::OK)
            .content_type("application/json")
            .header(header::CACHE_CONTROL, "no-store")
            .body(body.to_string())
    }
}

async fn begin(issuer: &Issuer, request: &mut Request) -> Result<Started, TokenError> {
    let sent = Parameters::of_body(request).await?;
    sent.refuse_repeated()?;
    let client_id = token::client(request, &sent)?.ok_or(ParameterFault::Missing("client_id"))?;
    let scope = authorize::granted(sent.optional("scope", 256)?.unwrap_or_default());
    if !contains_scope(&scope, "openid") {
        return Err(TokenError::Scope);
    }
    let now = issuer.clock().now_ms();
    for _ in 0..TRIES {
        let mut tx = issuer.db().begin().await?;
        let (subject, allowance) =
            (throttle::subscriber(problem::request_address()), issuer.settings().device_start);
        let taken =
            throttle::take(&mut tx, issuer.clock(), Limited::DeviceStart, &subject, allowance);
        if let Err(limit) = taken.await? {
            tx.commit().await?;
            return Err(TokenError::TooMany(limit.retry_after));
        }
        let started = Started {
            device_code: PlainSecret::generate(CODE_PREFIX)?,
            user_code: PlainSecret::generate_user_code()?,
        };
        let new = rows::New {
            id: issuer.clock().random_id(),
            device_code: started.device_code.hash(),
            user_code: started.user_code.hash(),
            client_id,
            scope: &scope,
            ip_address: problem::request_address().map(|address| address.to_string()),
            user_agent: problem::request_user_agent(),
            created_at: now,
            expires_at: now + i64::from(LIFETIME_SECONDS) * 1000,
            interval_seconds: INTERVAL_SECONDS.into(),
        };
        let inserted = rows::insert(&mut tx, &new).await?;
        tx.commit().await?;
        if inserted {
            return Ok(started);
        }
    }
    Err(TokenError::TooMany(u64::from(INTERVAL_SECONDS)))
}
