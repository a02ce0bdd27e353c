//! A request that waits for somebody to sign in, as the browser that began it sees it.

use poem::{
    Request, Response,
    http::{StatusCode, header},
};

use super::{
    Issuer,
    authorization::{self, New, Pending},
    browser::{self, BrowserCookie},
    pages::{self, Offer, Page},
    target::Target,
};
use crate::{
    page::see_other,
    secret::PlainSecret,
    throttle::{self, Limited, TooMany},
};

/// What the handle of a request begins with.
pub(super) const REQUEST_PREFIX: &str = "tbq_";

/// What is asked of the person who signs in.
pub(super) struct Ask<'a> {
    pub(super) client_id: &'a str,
    pub(super) target: &'a Target,
    pub(super) scope: &'a str,
    pub(super) state: Option<&'a str>,
    pub(super) nonce: Option<&'a str>,
    /// PKCE's; empty where no code is given.
    pub(super) code_challenge: &'a str,
}

/// Keeps the request and sends the browser to the sign-in page, bound by a cookie.
pub(super) async fn begin(issuer: &Issuer, ask: &Ask<'_>) -> sqlx::Result<Response> {
    let (Ok(handle), Ok(browser)) =
        (PlainSecret::generate(REQUEST_PREFIX), PlainSecret::generate(browser::PREFIX))
    else {
        return Ok(pages::broken("the operating system gave no randomness"));
    };
    let (id, now) = (issuer.clock().random_id(), issuer.clock().now_ms());
    let seconds = issuer.settings().authorization_seconds;
    let new = New {
        id,
        request: handle.hash(),
        browser: browser.hash(),
        client_id: ask.client_id,
        target: &ask.target.as_text(),
        scope: ask.scope,
        state: ask.state,
        nonce: ask.nonce,
        code_challenge: ask.code_challenge,
        created_at: now,
        expires_at: now + i64::from(seconds) * 1000,
    };
    let (db, clock) = (issuer.db(), issuer.clock());
    let (subject, allowance) = (throttle::requester(), issuer.settings().sign_in_start);
    // A refusal only reads.
    let looked = throttle::look(db, clock, Limited::SignInStart, &subject, allowance).await?;
    if let Err(limit) = looked {
        return Ok(too_many_begun(limit));
    }
    let mut tx = db.begin().await?;
    let taken = throttle::take(&mut tx, clock, Limited::SignInStart, &subject, allowance).await?;
    if let Err(limit) = taken {
        tx.commit().await?;
        return Ok(too_many_begun(limit));
    }
    authorization::insert(&mut tx, &new).await?;
    tx.commit().await?;

    let mut response = see_other(&format!("/login?request={}", handle.expose()));
    if let Some(cookie) = BrowserCookie::of(id, issuer.is_https()).set(&browser, seconds) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

fn too_many_begun(limit: TooMany) -> Response {
    let page = Page::Problem {
        title: "Too many sign-ins were begun",
        text: "From your address, in the last five minutes. Wait a few minutes and try again.",
    };
    pages::later(pages::show(StatusCode::TOO_MANY_REQUESTS, &page), limit.retry_after)
}

/// A request that waits, and where its answer goes.
pub(super) struct Waiting {
    pub(super) handle: String,
    pub(super) pending: Pending,
    pub(super) target: Target,
    pub(super) cookie: BrowserCookie,
    /// The secret of the cookie, which this browser presented.
    pub(super) proof: PlainSecret,
    offer: Offer,
}

impl Waiting {
    /// The request of this handle, if it waits and this browser began it.
    pub(super) async fn find(
        issuer: &Issuer,
        request: &Request,
        handle: &str,
    ) -> sqlx::Result<Option<Self>> {
        let hash = PlainSecret::presented(handle).hash();
        let pending = authorization::pending(issuer.db(), hash, issuer.clock().now_ms()).await?;
        Ok(pending.and_then(|pending| {
            let cookie = BrowserCookie::of(pending.id, issuer.is_https());
            let origins = issuer.identity().origins();
            let target = Target::parse(&pending.redirect_uri, issuer.name(), origins)?;
            let proof = cookie.proof(request, &pending.browser_hash)?;
            let (handle, offer) = (handle.to_owned(), Offer::of(issuer));
            Some(Self { handle, pending, target, cookie, proof, offer })
        }))
    }

    /// The form, with what was typed before and what is wrong with it.
    pub(super) fn form(&self, status: StatusCode, email: &str, fault: Option<&str>) -> Response {
        let (request, target, offer) = (self.handle.as_str(), &self.target, &self.offer);
        pages::show(status, &Page::SignIn { request, target, offer, email, fault })
    }
}

/// One page for a handle that nobody knows, that is used up, and for another browser's.
pub(super) fn over() -> Response {
    let page = Page::Problem {
        title: "This sign-in is over",
        text: "If your terminal says that you are signed in, close this window. If not, the page \
               is too old or was begun in another browser, or this site may not set cookies: \
               begin again with kubectl tenant login.",
    };
    pages::show(StatusCode::BAD_REQUEST, &page)
}
