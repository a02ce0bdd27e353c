//! Device authorization grant (RFC 8628): the device shows a code, the user types it on a page of
//! the broker, signs in, and allows the device.

mod pages;
mod poll;
mod rows;

use poem::{
    Request, Response,
    http::{StatusCode, header},
};
use serde_json::json;

use super::{
    Issuer,
    authorization::authorize,
    parameters::{ParameterError, Parameters},
    tokens::{public_client::public_client, token_error::TokenError},
};
use crate::{
    base::{
        clock::Clock,
        db::Db,
        request_context,
        secret::{NoRandomness, PlainSecret},
        throttle::{self, RateLimit, WindowQuota},
    },
    identity::sessions::contains_scope,
};

pub(super) use pages::{confirm, decide, form, submit};
pub(super) use poll::redeem;
pub(super) use rows::delete_expired;

/// The grant type at the token endpoint (RFC 8628 section 3.4).
pub(super) const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Prefix of device codes.
const CODE_PREFIX: &str = "tbd_";
/// Lifetime of a device code, in seconds.
const LIFETIME_SECONDS: u32 = 600;
/// Initial polling interval of a device, in seconds.
const POLL_INTERVAL_SECONDS: u32 = 5;
/// Attempts to generate a user code that no other device has: there are 25 billion, so a few
/// suffice.
const MAX_CODE_ATTEMPTS: usize = 5;

/// `POST /oauth2/device_authorization` (RFC 8628 section 3.1).
pub(super) async fn start(issuer: Issuer, mut request: Request) -> Response {
    match begin(&issuer, &mut request).await {
        Ok(codes) => codes.response(&issuer),
        Err(error) => error.response(),
    }
}

struct DeviceCodes {
    device_code: PlainSecret,
    user_code: PlainSecret,
}

impl DeviceCodes {
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
            "interval": POLL_INTERVAL_SECONDS,
        });
        Response::builder()
            .status(StatusCode::OK)
            .content_type("application/json")
            .header(header::CACHE_CONTROL, "no-store")
            .body(body.to_string())
    }
}

async fn begin(issuer: &Issuer, request: &mut Request) -> Result<DeviceCodes, TokenError> {
    let sent = Parameters::from_body(request).await?;
    sent.refuse_repeated()?;
    let client_id = public_client(request, &sent)?.ok_or(ParameterError::Missing("client_id"))?;
    let scope = authorize::known_scopes(sent.optional("scope", 256)?.unwrap_or_default());
    if !contains_scope(&scope, "openid") {
        return Err(TokenError::Scope);
    }
    let request =
        DeviceRequest { client_id, scope: &scope, allowance: issuer.settings().device_start };
    store_request(issuer.db(), issuer.clock(), &request, DeviceCodes::generate).await
}

/// Parameters of a device authorization request.
struct DeviceRequest<'a> {
    client_id: &'a str,
    scope: &'a str,
    allowance: WindowQuota,
}

/// Stores a request under codes that no other device has. It counts once against the allowance,
/// however many attempts that takes.
async fn store_request(
    db: &Db,
    clock: &Clock,
    request: &DeviceRequest<'_>,
    mut generate: impl FnMut() -> Result<DeviceCodes, NoRandomness>,
) -> Result<DeviceCodes, TokenError> {
    let now = clock.now_ms();
    let address = request_context::request_address();
    let subject = throttle::client_key();
    // A refusal does not write.
    let peeked =
        throttle::peek(db, clock, RateLimit::DeviceStart, &subject, request.allowance).await?;
    peeked.map_err(|limit| TokenError::TooMany(limit.retry_after))?;
    let mut tx = db.begin().await?;
    let taken =
        throttle::consume(&mut tx, clock, RateLimit::DeviceStart, &subject, request.allowance);
    if let Err(limit) = taken.await? {
        tx.commit().await?;
        return Err(TokenError::TooMany(limit.retry_after));
    }
    for _ in 0..MAX_CODE_ATTEMPTS {
        let codes = generate()?;
        let new = rows::NewDeviceAuthorization {
            id: clock.random_id(),
            device_code: codes.device_code.hash(),
            user_code: codes.user_code.hash(),
            client_id: request.client_id,
            scope: request.scope,
            ip_address: address.map(|address| address.to_string()),
            user_agent: request_context::request_user_agent(),
            created_at: now,
            expires_at: now + i64::from(LIFETIME_SECONDS) * 1000,
            interval_seconds: POLL_INTERVAL_SECONDS.into(),
        };
        if rows::insert(&mut tx, &new).await? {
            tx.commit().await?;
            return Ok(codes);
        }
    }
    tx.commit().await?;
    Err(TokenError::TooMany(u64::from(POLL_INTERVAL_SECONDS)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{On, Storage, on_both_engines};

    on_both_engines!(a_user_code_collision_counts_once_against_the_limit);

    async fn a_user_code_collision_counts_once_against_the_limit(on: On) {
        let storage = Storage::new(on).await;
        let allowance = WindowQuota { count: 2, window_seconds: 300 };
        let request = DeviceRequest { client_id: "kubectl-tenant", scope: "openid", allowance };
        let with = |user_codes: &'static [&'static str]| {
            let mut left = user_codes.iter();
            move || {
                let user_code = PlainSecret::presented(*left.next().unwrap());
                Ok(DeviceCodes { user_code, ..DeviceCodes::generate()? })
            }
        };
        let Storage { db, clock, .. } = &storage;
        store_request(db, clock, &request, with(&["BBBB-BBBB"]))
            .await
            .unwrap_or_else(|_| panic!("the first"));
        // The second request needs three attempts, and still counts once.
        let second = with(&["BBBB-BBBB", "BBBB-BBBB", "CCCC-CCCC"]);
        let second = store_request(db, clock, &request, second)
            .await
            .unwrap_or_else(|_| panic!("the second"));
        assert_eq!(second.user_code.expose(), "CCCC-CCCC");
        assert_eq!(storage.number("SELECT used FROM throttles").await, 2);
        assert_eq!(storage.number("SELECT COUNT(*) FROM device_authorizations").await, 2);
        let third = store_request(db, clock, &request, with(&["DDDD-DDDD"])).await;
        assert!(matches!(third, Err(TokenError::TooMany(_))));
    }
}
