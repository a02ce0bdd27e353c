//! Pending authorizations: requests that wait for a sign-in, bound to the browser that started
//! them.

use poem::{
    Request, Response,
    http::{StatusCode, header},
};

use super::{
    NewAuthorization, PendingRow,
    browser_cookie::{self, BrowserCookie},
    find_pending, insert,
};
use crate::{
    base::{
        secret::PlainSecret,
        throttle::{self, RateLimit, RateLimited},
    },
    http::page::see_other,
    issuer::{
        Issuer,
        pages::{self, Page, SignInOptions},
        redirect::ReturnTarget,
    },
};

/// Prefix of the handle of an authorization request.
pub(in crate::issuer) const REQUEST_PREFIX: &str = "tbq_";

/// Parameters of an authorization request.
pub(in crate::issuer) struct AuthorizationRequest<'a> {
    pub(in crate::issuer) client_id: &'a str,
    pub(in crate::issuer) target: &'a ReturnTarget,
    pub(in crate::issuer) scope: &'a str,
    pub(in crate::issuer) state: Option<&'a str>,
    pub(in crate::issuer) nonce: Option<&'a str>,
    /// PKCE code challenge; empty where no code is issued.
    pub(in crate::issuer) code_challenge: &'a str,
}

/// Stores the request and redirects the browser to the sign-in page, with a cookie that binds the
/// two.
pub(in crate::issuer) async fn start(
    issuer: &Issuer,
    request: &AuthorizationRequest<'_>,
) -> sqlx::Result<Response> {
    let (Ok(handle), Ok(browser)) =
        (PlainSecret::generate(REQUEST_PREFIX), PlainSecret::generate(browser_cookie::PREFIX))
    else {
        return Ok(pages::internal_error("the operating system gave no randomness"));
    };
    let (id, now) = (issuer.clock().random_id(), issuer.clock().now_ms());
    let seconds = issuer.settings().authorization_seconds;
    let new = NewAuthorization {
        id,
        request: handle.hash(),
        browser: browser.hash(),
        client_id: request.client_id,
        target: &request.target.as_text(),
        scope: request.scope,
        state: request.state,
        nonce: request.nonce,
        code_challenge: request.code_challenge,
        created_at: now,
        expires_at: now + i64::from(seconds) * 1000,
    };
    let (db, clock) = (issuer.db(), issuer.clock());
    let (subject, allowance) = (throttle::client_key(), issuer.settings().sign_in_start);
    // A refusal reads and does not write.
    let peeked = throttle::peek(db, clock, RateLimit::SignInStart, &subject, allowance).await?;
    if let Err(limit) = peeked {
        return Ok(too_many_started(limit));
    }
    let mut tx = db.begin().await?;
    let taken =
        throttle::consume(&mut tx, clock, RateLimit::SignInStart, &subject, allowance).await?;
    if let Err(limit) = taken {
        tx.commit().await?;
        return Ok(too_many_started(limit));
    }
    insert(&mut tx, &new).await?;
    tx.commit().await?;

    let mut response = see_other(&format!("/login?request={}", handle.expose()));
    if let Some(cookie) = BrowserCookie::for_request(id, issuer.is_https()).set(&browser, seconds) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

fn too_many_started(limit: RateLimited) -> Response {
    let page = Page::Problem {
        title: "Too many sign-ins were begun",
        text: "From your address, in the last five minutes. Wait a few minutes and try again.",
    };
    pages::with_retry_after(pages::render(StatusCode::TOO_MANY_REQUESTS, &page), limit.retry_after)
}

/// A pending authorization that this browser started.
pub(in crate::issuer) struct PendingAuthorization {
    pub(in crate::issuer) handle: String,
    pub(in crate::issuer) row: PendingRow,
    pub(in crate::issuer) target: ReturnTarget,
    pub(in crate::issuer) cookie: BrowserCookie,
    /// The secret of the cookie, which the browser presented.
    pub(in crate::issuer) proof: PlainSecret,
    options: SignInOptions,
}

impl PendingAuthorization {
    /// Finds the pending authorization of this handle, if this browser started it.
    pub(in crate::issuer) async fn find(
        issuer: &Issuer,
        request: &Request,
        handle: &str,
    ) -> sqlx::Result<Option<Self>> {
        let hash = PlainSecret::presented(handle).hash();
        let row = find_pending(issuer.db(), hash, issuer.clock().now_ms()).await?;
        Ok(row.and_then(|row| {
            let cookie = BrowserCookie::for_request(row.id, issuer.is_https());
            let origins = issuer.identity().origins();
            let target = ReturnTarget::parse(&row.redirect_uri, issuer.name(), origins)?;
            let proof = cookie.proof(request, &row.browser_hash)?;
            let (handle, options) = (handle.to_owned(), SignInOptions::from_settings(issuer));
            Some(Self { handle, row, target, cookie, proof, options })
        }))
    }

    /// The sign-in form, with the address that was typed before and an error message.
    pub(in crate::issuer) fn form(
        &self,
        status: StatusCode,
        email: &str,
        fault: Option<&str>,
    ) -> Response {
        let (request, target, options) = (self.handle.as_str(), &self.target, &self.options);
        pages::render(status, &Page::SignIn { request, target, options, email, fault })
    }
}

/// The page for a handle that is unknown, used or another browser's; it does not say which.
pub(in crate::issuer) fn expired_page() -> Response {
    let page = Page::Problem {
        title: "This sign-in is over",
        text: "If your terminal says that you are signed in, close this window. If not, the page \
               is too old or was begun in another browser, or this site may not set cookies: \
               begin again with kubectl tenant login.",
    };
    pages::render(StatusCode::BAD_REQUEST, &page)
}
