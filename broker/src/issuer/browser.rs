//! The cookie that binds an authorization request to the browser that made it.
//!
//! Without it, somebody could begin a sign-in, hand the page's address to another person, and be
//! answered with that person's code. Every request has a cookie of its own name, so that two
//! sign-ins in two tabs do not disturb each other.

use std::time::Duration;

use poem::{
    Request,
    http::{HeaderValue, header},
    web::cookie::{Cookie, SameSite},
};
use uuid::Uuid;

use crate::secret::PlainSecret;

/// What the secret of the cookie begins with.
pub(super) const PREFIX: &str = "tbb_";

/// The cookie of one authorization request.
pub(super) struct BrowserCookie {
    name: String,
    path: &'static str,
    secure: bool,
}

impl BrowserCookie {
    /// The cookie of this request. Over https its name has the prefix `__Host-`, with which a browser
    /// takes it from this host only and only over https (RFC 6265bis section 4.1.3.2); the prefix
    /// wants the path `/`. Over http, where ports share cookies, it goes to the sign-in page only.
    pub(super) fn of(id: Uuid, https: bool) -> Self {
        let name = format!("tenant-login-{}", id.simple());
        if https {
            Self { name: format!("__Host-{name}"), path: "/", secure: true }
        } else {
            Self { name, path: "/login", secure: false }
        }
    }

    /// The `Set-Cookie` that hands the secret to the browser for so long.
    pub(super) fn set(&self, secret: &PlainSecret, seconds: u32) -> Option<HeaderValue> {
        self.header(secret.expose(), seconds)
    }

    /// The `Set-Cookie` that takes it back.
    pub(super) fn clear(&self) -> Option<HeaderValue> {
        self.header("", 0)
    }

    fn header(&self, value: &str, seconds: u32) -> Option<HeaderValue> {
        let mut cookie = Cookie::new_with_str(&self.name, value);
        cookie.set_path(self.path);
        cookie.set_http_only(true);
        cookie.set_secure(self.secure);
        // Lax, not Strict: the person comes from another site's link, or from a terminal.
        cookie.set_same_site(SameSite::Lax);
        cookie.set_max_age(Duration::from_secs(seconds.into()));
        let mut value = HeaderValue::from_str(&cookie.to_string()).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Whether the request carries the secret with this hash; takes as long for a wrong one as for
    /// the right one. A cookie that is sent twice is as good as none.
    pub(super) fn proves(&self, request: &Request, kept: &[u8]) -> bool {
        let values: Vec<&str> = request
            .headers()
            .get_all(header::COOKIE)
            .iter()
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter_map(|(name, value)| (name == self.name).then_some(value))
            .collect();
        match values.as_slice() {
            [value] => PlainSecret::presented(*value).hash().matches(kept),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_cookie(text: &str) -> Request {
        Request::builder().header(header::COOKIE, text).finish()
    }

    #[test]
    fn only_the_secret_itself_proves_the_browser() {
        let id = Uuid::nil();
        let (cookie, secret) =
            (BrowserCookie::of(id, false), PlainSecret::generate(PREFIX).unwrap());
        let kept = secret.hash();
        let name = format!("tenant-login-{}", id.simple());
        let good = format!("{name}={}", secret.expose());
        let proves = |text: &str| cookie.proves(&with_cookie(text), kept.as_bytes());
        assert!(proves(&good) && proves(&format!("a=b; {good}; c=d")));
        assert!(!proves("") && !proves(&format!("{name}=tbb_x")) && !proves(&format!("x{good}")));
        assert!(!proves(&format!("{good}; {good}")), "sent twice");
    }

    #[test]
    fn over_https_the_cookie_belongs_to_the_host() {
        let secret = PlainSecret::presented("tbb_x");
        let text = |https| {
            let header = BrowserCookie::of(Uuid::nil(), https).set(&secret, 600).unwrap();
            header.to_str().unwrap().to_owned()
        };
        let zeros = Uuid::nil().simple();
        assert_eq!(
            text(true),
            format!(
                "__Host-tenant-login-{zeros}=tbb_x; HttpOnly; SameSite=Lax; Secure; Path=/; Max-Age=600"
            )
        );
        assert_eq!(
            text(false),
            format!("tenant-login-{zeros}=tbb_x; HttpOnly; SameSite=Lax; Path=/login; Max-Age=600")
        );
    }
}
