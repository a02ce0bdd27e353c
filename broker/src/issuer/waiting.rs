//! An authorization request that waits for somebody to sign in, as the browser that began it sees
//! it.

use poem::{Request, Response, http::StatusCode};

use super::{
    Issuer,
    authorization::{self, Pending},
    browser::BrowserCookie,
    pages::{self, Page},
    redirect::RedirectUri,
};
use crate::secret::PlainSecret;

/// A request that waits, and where its answer goes.
pub(super) struct Waiting {
    handle: String,
    pub(super) pending: Pending,
    pub(super) redirect: RedirectUri,
    pub(super) cookie: BrowserCookie,
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
            let redirect = RedirectUri::allowed(&pending.redirect_uri, issuer.name())?;
            let proven = cookie.proves(request, &pending.browser_hash);
            proven.then_some(Self { handle: handle.to_owned(), pending, redirect, cookie })
        }))
    }

    /// The form, with what was typed before and what is wrong with it.
    pub(super) fn form(&self, status: StatusCode, email: &str, fault: Option<&str>) -> Response {
        let (request, redirect) = (self.handle.as_str(), &self.redirect);
        pages::show(status, &Page::SignIn { request, redirect, email, fault })
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
