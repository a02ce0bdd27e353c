//! Cookies that are bound to the broker's host.

use cookie::{Cookie, SameSite, time::Duration};
use http::{HeaderMap, HeaderValue, header};

use crate::base::secret::PlainSecret;

/// A cookie that is bound to this host and that no script can read.
///
/// Over https its name has the prefix `__Host-`, so a browser accepts it from this host only and
/// only over https (RFC 6265bis section 4.1.3.2); the prefix requires the path `/`. Over http,
/// which is for loopback, browsers refuse the prefix.
#[derive(Clone, Debug)]
pub struct HostCookie {
    name: String,
    path: &'static str,
    secure: bool,
}

impl HostCookie {
    /// A cookie of this name. Over http it is sent to this path only, because all ports of a host
    /// share their cookies.
    pub fn new(name: &str, https: bool, http_path: &'static str) -> Self {
        if https {
            Self { name: format!("__Host-{name}"), path: "/", secure: true }
        } else {
            Self { name: name.to_owned(), path: http_path, secure: false }
        }
    }

    /// The `Set-Cookie` value that stores the secret in the browser for this number of seconds.
    pub fn set(&self, secret: &PlainSecret, seconds: u32) -> Option<HeaderValue> {
        self.header(secret.expose(), seconds)
    }

    /// The `Set-Cookie` value that removes the cookie.
    pub fn clear(&self) -> Option<HeaderValue> {
        self.header("", 0)
    }

    fn header(&self, value: &str, seconds: u32) -> Option<HeaderValue> {
        let mut cookie = Cookie::new(self.name.as_str(), value);
        cookie.set_path(self.path);
        cookie.set_http_only(true);
        cookie.set_secure(self.secure);
        // Lax, not Strict, because people follow a link of another site or of a terminal.
        cookie.set_same_site(SameSite::Lax);
        cookie.set_max_age(Duration::seconds(seconds.into()));
        let mut value = HeaderValue::from_str(&cookie.encoded().to_string()).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Reads the cookie of a request. A cookie that is sent twice is ignored, because somebody else
    /// set one of the two.
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
    fn a_cookie_is_read_only_if_it_is_sent_once() {
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
    fn over_https_the_cookie_is_bound_to_the_host() {
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
