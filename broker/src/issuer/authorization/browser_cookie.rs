//! The cookie that binds an authorization request to the browser that made it.
//!
//! Without it, an attacker could start a sign-in, send the URL of the page to another person, and
//! receive that person's code. Every request has a cookie with a name of its own, so that two
//! sign-ins in two tabs do not interfere.

use poem::{Request, http::HeaderValue};
use uuid::Uuid;

use crate::{base::secret::PlainSecret, identity::HostCookie};

/// Prefix of the cookie's secret.
pub(in crate::issuer) const PREFIX: &str = "tbb_";

/// The cookie of one authorization request.
pub(in crate::issuer) struct BrowserCookie(HostCookie);

impl BrowserCookie {
    /// The cookie of the authorization request with this identifier.
    pub(in crate::issuer) fn for_request(id: Uuid, https: bool) -> Self {
        Self(HostCookie::new(&format!("tenant-login-{}", id.simple()), https, "/login"))
    }

    /// The `Set-Cookie` value that stores the secret in the browser for this number of seconds.
    pub(in crate::issuer) fn set(&self, secret: &PlainSecret, seconds: u32) -> Option<HeaderValue> {
        self.0.set(secret, seconds)
    }

    /// The `Set-Cookie` value that removes the cookie.
    pub(in crate::issuer) fn clear(&self) -> Option<HeaderValue> {
        self.0.clear()
    }

    /// Reads the secret that the browser presents, if it has this hash; compares in constant time.
    pub(in crate::issuer) fn proof(
        &self,
        request: &Request,
        stored_hash: &[u8],
    ) -> Option<PlainSecret> {
        self.0.read(request.headers()).filter(|secret| secret.hash().matches(stored_hash))
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
            (BrowserCookie::for_request(id, false), PlainSecret::generate(PREFIX).unwrap());
        let stored_hash = secret.hash();
        let proves = |text: &str| {
            let request = Request::builder().header(header::COOKIE, text).finish();
            cookie.proof(&request, stored_hash.as_bytes()).is_some()
        };
        let name = format!("tenant-login-{}", id.simple());
        assert!(proves(&format!("{name}={}", secret.expose())));
        assert!(!proves("") && !proves(&format!("{name}=tbb_x")));
    }
}
