//! The cookie that binds an authorization request to the browser that made it.
//!
//! Without it, somebody could begin a sign-in, hand the page's address to another person, and be
//! answered with that person's code. Every request has a cookie of its own name, so that two
//! sign-ins in two tabs do not disturb each other.

use poem::{Request, http::HeaderValue};
use uuid::Uuid;

use crate::{cookie::HostCookie, secret::PlainSecret};

/// What the secret of the cookie begins with.
pub(super) const PREFIX: &str = "tbb_";

/// The cookie of one authorization request.
pub(super) struct BrowserCookie(HostCookie);

impl BrowserCookie {
    /// The cookie of this request.
    pub(super) fn of(id: Uuid, https: bool) -> Self {
        Self(HostCookie::new(&format!("tenant-login-{}", id.simple()), https, "/login"))
    }

    /// The `Set-Cookie` that hands the secret to the browser for so long.
    pub(super) fn set(&self, secret: &PlainSecret, seconds: u32) -> Option<HeaderValue> {
        self.0.set(secret, seconds)
    }

    /// The `Set-Cookie` that takes it back.
    pub(super) fn clear(&self) -> Option<HeaderValue> {
        self.0.clear()
    }

    /// The secret that the browser holds, if it is the one with this hash; takes as long for a wrong
    /// one as for the right one.
    pub(super) fn proof(&self, request: &Request, kept: &[u8]) -> Option<PlainSecret> {
        self.0.read(request.headers()).filter(|secret| secret.hash().matches(kept))
    }
}

#[cfg(test)]
mod tests {
    use poem::http::header;

    use super::*;

    #[test]
    fn only_the_secret_itself_proves_the_browser() {
        let id = Uuid::nil();
        let (cookie, secret) =
            (BrowserCookie::of(id, false), PlainSecret::generate(PREFIX).unwrap());
        let kept = secret.hash();
        let proves = |text: &str| {
            let request = Request::builder().header(header::COOKIE, text).finish();
            cookie.proof(&request, kept.as_bytes()).is_some()
        };
        let name = format!("tenant-login-{}", id.simple());
        assert!(proves(&format!("{name}={}", secret.expose())));
        assert!(!proves("") && !proves(&format!("{name}=tbb_x")));
    }
}
