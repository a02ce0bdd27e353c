//! Pages of the device authorization grant (RFC 8628 section 3.3): type the code, sign in, allow or
//! deny.
//!
//! An attacker may begin the flow on their own device and send the link to a victim, so the code
//! alone decides nothing: after the sign-in the page shows which device asks, and from where
//! (section 5.4).

use poem::{Request, Response, http::StatusCode};

use super::rows;
use crate::{
    audit::{self, Action, Event},
    base::{
        secret::{PlainSecret, USER_CODE_LETTERS},
        throttle::{self, RateLimit},
    },
    issuer::{
        Issuer,
        authorization::{
            self,
            pending_authorization::{
                self, AuthorizationRequest, PendingAuthorization, expired_page,
            },
        },
        pages::{self, Page},
        parameters::{MAX_SECRET_BYTES, Parameters},
        redirect::ReturnTarget,
    },
};

/// Maximum bytes of a user code, as a person may type it.
const MAX_USER_CODE_BYTES: usize = 64;

/// `GET /device`: the form, with the code filled in if the link carries it.
pub(in crate::issuer) async fn form(_: Issuer, request: Request) -> Response {
    let sent = Parameters::from_query(&request).unwrap_or_default();
    let typed = sent.optional("user_code", MAX_USER_CODE_BYTES).ok().flatten().unwrap_or_default();
    // Only a well-formed code is shown, so that a link cannot put text into the page.
    let code = UserCode::parse(typed).map(|code| code.0).unwrap_or_default();
    show(StatusCode::OK, &code, None)
}

fn show(status: StatusCode, code: &str, fault: Option<&str>) -> Response {
    pages::render(status, &Page::Device { code, fault })
}

/// `POST /device`: leads from a valid code to the sign-in page.
pub(in crate::issuer) async fn submit(issuer: Issuer, mut request: Request) -> Response {
    let sent = match Parameters::from_body(&mut request).await {
        Ok(sent) => sent,
        Err(fault) => return show(fault.status(), "", Some(&fault.to_string())),
    };
    let typed = sent.optional("user_code", MAX_USER_CODE_BYTES).ok().flatten().unwrap_or_default();
    let Some(code) = UserCode::parse(typed) else {
        let text =
            "A code has eight letters, such as BCDF-GHJK. Type it as your terminal shows it.";
        return show(StatusCode::BAD_REQUEST, "", Some(text));
    };
    find(&issuer, &code).await.unwrap_or_else(|error| pages::database_unavailable(&error))
}

async fn find(issuer: &Issuer, code: &UserCode) -> sqlx::Result<Response> {
    let subject = throttle::client_key();
    let (clock, allowance) = (issuer.clock(), issuer.settings().user_code);
    let peeked =
        throttle::peek(issuer.db(), clock, RateLimit::UserCode, &subject, allowance).await?;
    if let Err(limit) = peeked {
        let text = "Too many wrong codes. Wait a few minutes and try again.";
        let page = show(StatusCode::TOO_MANY_REQUESTS, &code.0, Some(text));
        return Ok(pages::with_retry_after(page, limit.retry_after));
    }
    let hash = PlainSecret::presented(code.0.as_str()).hash();
    let Some(device) = rows::by_user_code(issuer.db(), hash, clock.now_ms()).await? else {
        let mut tx = issuer.db().begin().await?;
        let taken = throttle::consume(&mut tx, clock, RateLimit::UserCode, &subject, allowance);
        // The result matters for the next attempt only.
        let _ = taken.await?;
        tx.commit().await?;
        let text = "No device is waiting for this code. It may be mistyped, used, or older than ten \
                    minutes; then begin again in your terminal.";
        return Ok(show(StatusCode::NOT_FOUND, &code.0, Some(text)));
    };
    let request = AuthorizationRequest {
        client_id: &device.client_id,
        target: &ReturnTarget::Device(device.id),
        scope: &device.scope,
        state: None,
        nonce: None,
        code_challenge: "",
    };
    pending_authorization::start(issuer, &request).await
}

/// `GET /login/device?request=…`: shows which device asks, and the buttons to allow or deny it.
pub(in crate::issuer) async fn confirm(issuer: Issuer, request: Request) -> Response {
    let sent = Parameters::from_query(&request).unwrap_or_default();
    let Ok(handle) = sent.required("request", MAX_SECRET_BYTES) else { return expired_page() };
    show_confirmation(&issuer, &request, handle)
        .await
        .unwrap_or_else(|error| pages::database_unavailable(&error))
}

async fn show_confirmation(
    issuer: &Issuer,
    request: &Request,
    handle: &str,
) -> sqlx::Result<Response> {
    let Some((authorization, device)) = find_pending_device(issuer, request, handle).await? else {
        return Ok(no_pending_device());
    };
    let minutes = (issuer.clock().now_ms() - device.created_at) / 60_000;
    let page = Page::ConfirmDevice {
        request: &authorization.handle,
        client: &device.client_id,
        user_agent: device.user_agent.as_deref().unwrap_or("unknown"),
        address: device.ip_address.as_deref().unwrap_or("unknown"),
        minutes,
    };
    Ok(pages::render(StatusCode::OK, &page))
}

/// `POST /login/device`: records the decision of the user.
pub(in crate::issuer) async fn decide(issuer: Issuer, mut request: Request) -> Response {
    if issuer.identity().origins().check(request.method(), request.headers()).is_err() {
        return expired_page();
    }
    let sent = Parameters::from_body(&mut request).await.unwrap_or_default();
    let Ok(handle) = sent.required("request", MAX_SECRET_BYTES) else { return expired_page() };
    let allowed = match sent.required("decision", 8) {
        Ok("allow") => true,
        Ok("deny") => false,
        _ => return expired_page(),
    };
    record_decision(&issuer, &request, handle, allowed)
        .await
        .unwrap_or_else(|error| pages::database_unavailable(&error))
}

async fn record_decision(
    issuer: &Issuer,
    request: &Request,
    handle: &str,
    allowed: bool,
) -> sqlx::Result<Response> {
    let Some((authorization, device)) = find_pending_device(issuer, request, handle).await? else {
        return Ok(no_pending_device());
    };
    let (id, now) = (authorization.row.id, issuer.clock().now_ms());
    let mut tx = issuer.db().begin().await?;
    if !rows::decide(&mut tx, device.id, now, allowed, id).await? {
        return Ok(no_pending_device());
    }
    if !allowed {
        authorization::redeem_by_id(&mut tx, id, now).await?;
    }
    let from = device.ip_address.as_deref().unwrap_or("an unknown address");
    let event = if allowed {
        Event {
            reason: Some(format!("{} at {from} may sign in", device.client_id)),
            ..Event::success(Action::DeviceDecision)
        }
    } else {
        let why = format!("the person refused {} at {from}", device.client_id);
        Event::refused(Action::DeviceDecision, why)
    };
    let event = Event { user_id: authorization.row.user_id, ..event };
    audit::record(&mut tx, issuer.clock(), event).await?;
    tx.commit().await?;
    let outcome = if allowed { "success" } else { "refused" };
    issuer.metrics().action(Action::DeviceDecision.as_str(), outcome);
    let page = if allowed {
        Page::Done {
            title: "You are signed in",
            text: "Your terminal continues by itself within a few seconds. You can close this window.",
        }
    } else {
        Page::Done {
            title: "Refused",
            text: "The device was not signed in. If you did not begin this yourself, somebody may \
                   have sent you the link to act in your name: tell your administrator.",
        }
    };
    Ok(authorization.clear_cookie(pages::render(StatusCode::OK, &page)))
}

/// Finds the pending authorization with this handle and its device, if the user has signed in and
/// the device is undecided.
async fn find_pending_device(
    issuer: &Issuer,
    request: &Request,
    handle: &str,
) -> sqlx::Result<Option<(PendingAuthorization, rows::PendingDevice)>> {
    let Some(authorization) = PendingAuthorization::find(issuer, request, handle).await? else {
        return Ok(None);
    };
    let ReturnTarget::Device(id) = authorization.target else { return Ok(None) };
    if authorization.row.user_id.is_none() {
        return Ok(None);
    }
    let device = rows::by_id(issuer.db(), id, issuer.clock().now_ms()).await?;
    Ok(device.map(|device| (authorization, device)))
}

fn no_pending_device() -> Response {
    let page = Page::Problem {
        title: "No device is waiting any more",
        text: "It was decided already, or it took too long. If your terminal does not say that you \
               are signed in, begin again there.",
    };
    pages::render(StatusCode::BAD_REQUEST, &page)
}

/// A user code in its canonical spelling.
#[derive(Debug, PartialEq, Eq)]
struct UserCode(String);

impl UserCode {
    /// Parses a user code. Lower case, spaces and any punctuation are accepted (RFC 8628 section
    /// 6.1).
    fn parse(typed: &str) -> Option<Self> {
        let letters: Vec<u8> = typed
            .bytes()
            .filter(|byte| !byte.is_ascii_whitespace() && !byte.is_ascii_punctuation())
            .map(|byte| byte.to_ascii_uppercase())
            .collect();
        let is_code =
            letters.len() == 8 && letters.iter().all(|letter| USER_CODE_LETTERS.contains(letter));
        if !is_code {
            return None;
        }
        let (first, last) = letters.split_at(4);
        let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        Some(Self(format!("{}-{}", text(first), text(last))))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_user_code_is_parsed_in_every_common_spelling() {
        for typed in ["BCDF-GHJK", "bcdfghjk", " bcdf ghjk ", "b.c.d.f/g-h-j-k"] {
            assert_eq!(UserCode::parse(typed), Some(UserCode("BCDF-GHJK".to_owned())), "{typed}");
        }
        for typed in ["", "BCDF-GHJ", "BCDF-GHJKL", "ACDF-GHJK", "BCDF-GHJ1", "ÄCDF-GHJK"] {
            assert_eq!(UserCode::parse(typed), None, "{typed}");
        }
    }

    proptest! {
        #[test]
        fn a_parsed_code_parses_to_itself(typed in ".{0,64}") {
            if let Some(code) = UserCode::parse(&typed) {
                prop_assert_eq!(code.0.len(), 9);
                prop_assert_eq!(UserCode::parse(&code.0), Some(code));
            }
        }
    }
}
