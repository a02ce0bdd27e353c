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
    clock::Clock,
    db::Db,
    identity::session::contains_scope,
    problem,
    secret::{NoRandomness, PlainSecret},
    throttle::{self, Allowance, Limited},
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
    fn generate() -> Result<Self, NoRandomness> {
        Ok(Self {
            device_code: PlainSecret::generate(CODE_PREFIX)?,
            user_code: PlainSecret::generate_user_code()?,
        })
    }

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
    let asked = Asked { client_id, scope: &scope, allowance: issuer.settings().device_start };
    keep(issuer.db(), issuer.clock(), &asked, Started::generate).await
}

/// What a device asks for.
struct Asked<'a> {
    client_id: &'a str,
    scope: &'a str,
    allowance: Allowance,
}

/// Keeps a request under codes that no other device has. However many tries that takes, it is one
/// use of the allowance.
async fn keep(
    db: &Db,
    clock: &Clock,
    asked: &Asked<'_>,
    mut codes: impl FnMut() -> Result<Started, NoRandomness>,
) -> Result<Started, TokenError> {
    let now = clock.now_ms();
    let address = problem::request_address();
    let subject = throttle::requester();
    // A refusal only reads.
    let looked = throttle::look(db, clock, Limited::DeviceStart, &subject, asked.allowance).await?;
    looked.map_err(|limit| TokenError::TooMany(limit.retry_after))?;
    let mut tx = db.begin().await?;
    let taken = throttle::take(&mut tx, clock, Limited::DeviceStart, &subject, asked.allowance);
    if let Err(limit) = taken.await? {
        tx.commit().await?;
        return Err(TokenError::TooMany(limit.retry_after));
    }
    for _ in 0..TRIES {
        let started = codes()?;
        let new = rows::New {
            id: clock.random_id(),
            device_code: started.device_code.hash(),
            user_code: started.user_code.hash(),
            client_id: asked.client_id,
            scope: asked.scope,
            ip_address: address.map(|address| address.to_string()),
            user_agent: problem::request_user_agent(),
            created_at: now,
            expires_at: now + i64::from(LIFETIME_SECONDS) * 1000,
            interval_seconds: INTERVAL_SECONDS.into(),
        };
        if rows::insert(&mut tx, &new).await? {
            tx.commit().await?;
            return Ok(started);
        }
    }
    tx.commit().await?;
    Err(TokenError::TooMany(u64::from(INTERVAL_SECONDS)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{On, Storage, on_both_engines};

    on_both_engines!(a_user_code_that_is_taken_costs_no_second_use_of_the_allowance);

    async fn a_user_code_that_is_taken_costs_no_second_use_of_the_allowance(on: On) {
        let storage = Storage::new(on).await;
        let allowance = Allowance { count: 2, window_seconds: 300 };
        let asked = Asked { client_id: "kubectl-tenant", scope: "openid", allowance };
        let with = |user_codes: &'static [&'static str]| {
            let mut left = user_codes.iter();
            move || {
                let user_code = PlainSecret::presented(*left.next().unwrap());
                Ok(Started { user_code, ..Started::generate()? })
            }
        };
        let Storage { db, clock, .. } = &storage;
        keep(db, clock, &asked, with(&["BBBB-BBBB"])).await.unwrap_or_else(|_| panic!("the first"));
        // The second one needs three tries, and is the second use all the same.
        let second = with(&["BBBB-BBBB", "BBBB-BBBB", "CCCC-CCCC"]);
        let second = keep(db, clock, &asked, second).await.unwrap_or_else(|_| panic!("the second"));
        assert_eq!(second.user_code.expose(), "CCCC-CCCC");
        assert_eq!(storage.number("SELECT used FROM throttles").await, 2);
        assert_eq!(storage.number("SELECT COUNT(*) FROM device_authorizations").await, 2);
        let third = keep(db, clock, &asked, with(&["DDDD-DDDD"])).await;
        assert!(matches!(third, Err(TokenError::TooMany(_))));
    }
}
