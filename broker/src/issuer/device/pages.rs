//! The pages of the device flow (RFC 8628 section 3.3): type the code, sign in, say yes or no.
//!
//! Somebody may have begun the flow on a device of their own and sent the link to another person, so
//! the code alone decides nothing: after the sign-in the page says which device asks, and from where
//! (section 5.4).

use poem::{Request, Response, http::StatusCode};

use super::rows;
use crate::{
    audit::{self, Action, Event},
    issuer::{
        Issuer, authorization, pages,
        pages::Page,
        parameters::Parameters,
        target::Target,
        waiting::{self, Ask, Waiting, over},
    },
    secret::{PlainSecret, USER_CODE_LETTERS},
    throttle::{self, Limited},
};

/// Bytes of a user code at most, as a person may type it.
const MOST_TYPED: usize = 64;
/// Bytes of a handle at most.
const MOST_HANDLE: usize = 128;

/// `GET /device`: the form, with the code filled in if the link carries it.
pub(in crate::issuer) async fn form(_: Issuer, request: Request) -> Response {
    let sent = Parameters::of_query(&request).unwrap_or_default();
    let typed = sent.optional("user_code", MOST_TYPED).ok().flatten().unwrap_or_default();
    // Only what looks like a code is shown, so that a link cannot write texts into the page.
    let code = UserCode::parse(typed).map(|code| code.0).unwrap_or_default();
    show(StatusCode::OK, &code, None)
}

fn show(status: StatusCode, code: &str, fault: Option<&str>) -> Response {
    pages::show(status, &Page::Device { code, fault })
}

/// `POST /device`: the code leads to the sign-in page.
pub(in crate::issuer) async fn submit(issuer: Issuer, mut request: Request) -> Response {
    let sent = match Parameters::of_body(&mut request).await {
        Ok(sent) => sent,
        Err(fault) => return show(fault.status(), "", Some(&fault.to_string())),
    };
    let typed = sent.optional("user_code", MOST_TYPED).ok().flatten().unwrap_or_default();
    let Some(code) = UserCode::parse(typed) else {
        let text =
            "A code has eight letters, such as BCDF-GHJK. Type it as your terminal shows it.";
        return show(StatusCode::BAD_REQUEST, "", Some(text));
    };
    find(&issuer, &code).await.unwrap_or_else(|error| pages::storage(&error))
}

async fn find(issuer: &Issuer, code: &UserCode) -> sqlx::Result<Response> {
    let subject = throttle::requester();
    let (clock, allowance) = (issuer.clock(), issuer.settings().user_code);
    let looked = throttle::look(issuer.db(), clock, Limited::UserCode, &subject, allowance).await?;
    if let Err(limit) = looked {
        let text = "Too many wrong codes. Wait a few minutes and try again.";
        let page = show(StatusCode::TOO_MANY_REQUESTS, &code.0, Some(text));
        return Ok(pages::later(page, limit.retry_after));
    }
    let hash = PlainSecret::presented(code.0.as_str()).hash();
    let Some(device) = rows::by_user_code(issuer.db(), hash, clock.now_ms()).await? else {
        let mut tx = issuer.db().begin().await?;
        let taken = throttle::take(&mut tx, clock, Limited::UserCode, &subject, allowance);
        // Whether this one was the last allowed concerns the next try.
        let _ = taken.await?;
        tx.commit().await?;
        let text = "Nobody waits with this code. It may be mistyped, used, or older than ten \
                    minutes; then begin again in your terminal.";
        return Ok(show(StatusCode::NOT_FOUND, &code.0, Some(text)));
    };
    let ask = Ask {
        client_id: &device.client_id,
        target: &Target::Device(device.id),
        scope: &device.scope,
        state: None,
        nonce: None,
        code_challenge: "",
    };
    waiting::begin(issuer, &ask).await
}

/// `GET /login/device?request=…`: which device asks, and whether it may.
pub(in crate::issuer) async fn confirm(issuer: Issuer, request: Request) -> Response {
    let sent = Parameters::of_query(&request).unwrap_or_default();
    let Ok(handle) = sent.required("request", MOST_HANDLE) else { return over() };
    ask(&issuer, &request, handle).await.unwrap_or_else(|error| pages::storage(&error))
}

async fn ask(issuer: &Issuer, request: &Request, handle: &str) -> sqlx::Result<Response> {
    let Some((waiting, device)) = decidable(issuer, request, handle).await? else {
        return Ok(gone());
    };
    let minutes = (issuer.clock().now_ms() - device.created_at) / 60_000;
    let page = Page::ConfirmDevice {
        request: &waiting.handle,
        client: &device.client_id,
        user_agent: device.user_agent.as_deref().unwrap_or("unknown"),
        address: device.ip_address.as_deref().unwrap_or("unknown"),
        minutes,
    };
    Ok(pages::show(StatusCode::OK, &page))
}

/// `POST /login/device`: yes or no.
pub(in crate::issuer) async fn decide(issuer: Issuer, mut request: Request) -> Response {
    if issuer.identity().origins().check(request.method(), request.headers()).is_err() {
        return over();
    }
    let sent = Parameters::of_body(&mut request).await.unwrap_or_default();
    let Ok(handle) = sent.required("request", MOST_HANDLE) else { return over() };
    let allowed = match sent.required("decision", 8) {
        Ok("allow") => true,
        Ok("deny") => false,
        _ => return over(),
    };
    record(&issuer, &request, handle, allowed).await.unwrap_or_else(|error| pages::storage(&error))
}

async fn record(
    issuer: &Issuer,
    request: &Request,
    handle: &str,
    allowed: bool,
) -> sqlx::Result<Response> {
    let Some((waiting, device)) = decidable(issuer, request, handle).await? else {
        return Ok(gone());
    };
    let (id, now) = (waiting.pending.id, issuer.clock().now_ms());
    let mut tx = issuer.db().begin().await?;
    if !rows::decide(&mut tx, device.id, now, allowed, id).await? {
        return Ok(gone());
    }
    if !allowed {
        authorization::redeem_id(&mut tx, id, now).await?;
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
    let event = Event { user_id: waiting.pending.user_id, ..event };
    audit::record(&mut tx, issuer.clock(), event).await?;
    tx.commit().await?;
    issuer.metrics().action(Action::DeviceDecision, if allowed { "success" } else { "refused" });
    let page = if allowed {
        Page::Done {
            title: "You are signed in",
            text: "Your terminal goes on by itself within a few seconds. You can close this window.",
        }
    } else {
        Page::Done {
            title: "Refused",
            text: "The device was not signed in. If you did not begin this yourself, somebody may \
                   have sent you the link to act in your name: tell your administrator.",
        }
    };
    Ok(waiting.done(pages::show(StatusCode::OK, &page)))
}

/// The sign-in of this handle and the device that it is for, if somebody signed in here and the
/// device waits.
async fn decidable(
    issuer: &Issuer,
    request: &Request,
    handle: &str,
) -> sqlx::Result<Option<(Waiting, rows::Undecided)>> {
    let Some(waiting) = Waiting::find(issuer, request, handle).await? else { return Ok(None) };
    let Target::Device(id) = waiting.target else { return Ok(None) };
    if waiting.pending.user_id.is_none() {
        return Ok(None);
    }
    let device = rows::by_id(issuer.db(), id, issuer.clock().now_ms()).await?;
    Ok(device.map(|device| (waiting, device)))
}

fn gone() -> Response {
    let page = Page::Problem {
        title: "No device waits any more",
        text: "It was decided already, or it took too long. If your terminal does not say that you \
               are signed in, begin again there.",
    };
    pages::show(StatusCode::BAD_REQUEST, &page)
}

/// A user code, however a person typed it.
#[derive(Debug, PartialEq, Eq)]
struct UserCode(String);

impl UserCode {
    /// Small letters, spaces and any punctuation are forgiven (RFC 8628 section 6.1).
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
    fn a_code_is_read_however_it_is_typed() {
        for typed in ["BCDF-GHJK", "bcdfghjk", " bcdf ghjk ", "b.c.d.f/g-h-j-k"] {
            assert_eq!(UserCode::parse(typed), Some(UserCode("BCDF-GHJK".to_owned())), "{typed}");
        }
        for typed in ["", "BCDF-GHJ", "BCDF-GHJKL", "ACDF-GHJK", "BCDF-GHJ1", "ÄCDF-GHJK"] {
            assert_eq!(UserCode::parse(typed), None, "{typed}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_a_code_and_reads_as_itself(typed in ".{0,64}") {
            if let Some(code) = UserCode::parse(&typed) {
                prop_assert_eq!(code.0.len(), 9);
                prop_assert_eq!(UserCode::parse(&code.0), Some(code));
            }
        }
    }
}
