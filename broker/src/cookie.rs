//! Cookies of the broker's pages.

use std::time::Duration;

use poem::{
    http::{HeaderMap, HeaderValue, header},
    web::cookie::{Cookie, SameSite},
};

use crate::secret::PlainSecret;

/// A cookie that belongs to this host alone and that no script can read.
///
/// Over https its name has the prefix `__Host-`, with which a browser takes it from this host only
/// and only over https (RFC 6265bis section 4.1.3.2); the prefix wants the path `/`. Over http,
/// which is for loopback, browsers refuse the prefix.
#[derive(Clone, Debug)]
pub struct HostCookie {
    name: String,
    path: &'static str,
    secure: bool,
}

impl HostCookie {
    /// A cookie of this name; over http it goes to this path only, for ports share cookies there.
    pub fn new(name: &str, https: bool, http_path: &'static str) -> Self {
        if https {
            Self { name: format!("__Host-{name}"), path: "/", secure: true }
        } else {
            Self { name: name.to_owned(), path: http_path, secure: false }
        }
    }

    /// The `Set-Cookie` that hands the secret to the browser for so long.
    pub fn set(&self, secret: &PlainSecret, seconds: u32) -> Option<HeaderValue> {
        self.header(secret.expose(), seconds)
    }

    /// The `Set-Cookie` that takes it back.
    pub fn clear(&self) -> Option<HeaderValue> {
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

    /// What the browser sends back. A cookie that is sent twice is as good as none: one of the two
    /// is somebody else's.
    pub fn read(&self, headers: &HeaderMap) -> Option<PlainSecret> {
        let mut values = headers
            .get_all(header::COOKIE)
            .iter()
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter_map(|(name, value)| (name == self.name).then_some(value));
        match (values.next(), values.next()) {
            (Some(value), None) => Some(PlainSecret::presented(value)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_cookie(text: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::COOKIE, text.parse().unwrap())])
    }

    #[test]
    fn only_the_one_that_is_sent_once_is_read() {
        let cookie = HostCookie::new("tenant-x", false, "/");
        let read =
            |text: &str| cookie.read(&with_cookie(text)).map(|secret| secret.expose().to_owned());
        assert_eq!(read("tenant-x=1").as_deref(), Some("1"));
        assert_eq!(read("a=b; tenant-x=1; c=d").as_deref(), Some("1"));
        assert_eq!(read(""), None);
        assert_eq!(read("xtenant-x=1"), None);
        assert_eq!(read("tenant-x=1; tenant-x=1"), None, "sent twice");
    }

    #[test]
    fn over_https_the_cookie_belongs_to_the_host() {
        let secret = PlainSecret::presented("s");
        let text = |https| {
            let header = HostCookie::new("tenant-x", https, "/login").set(&secret, 600).unwrap();
            header.to_str().unwrap().to_owned()
        };
        assert_eq!(
            text(true),
            "__Host-tenant-x=s; HttpOnly; SameSite=Lax; Secure; Path=/; Max-Age=600"
        );
        assert_eq!(text(false), "tenant-x=s; HttpOnly; SameSite=Lax; Path=/login; Max-Age=600");
    }
}
