//! Origin checks against cross-site request forgery (CSRF).
//!
//! A browser sends its cookies with every request that any page causes, so a cookie alone does not
//! prove that the user wanted the request. The check uses two headers that a page cannot forge:
//! `Origin` (RFC 6454 section 7) and `Sec-Fetch-Site` (W3C Fetch Metadata Request Headers).

use std::sync::Arc;

use http::{HeaderMap, Method, header};
use url::Url;

use super::AuthenticationError;

/// The broker's own origin and those of the frontends that it trusts.
#[derive(Clone, Debug)]
pub struct Origins(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    own: String,
    frontends: Vec<String>,
}

impl Origins {
    /// Trusts the origin of this URL and these frontends, each as a browser writes an origin
    /// (`https://app.example.com`).
    pub fn new(public_url: &Url, frontends: Vec<String>) -> Self {
        Self(Arc::new(Inner { own: public_url.origin().ascii_serialization(), frontends }))
    }

    /// Whether this origin is trusted; the comparison is exact.
    pub fn contains(&self, origin: &str) -> bool {
        origin == self.0.own || self.0.frontends.iter().any(|one| one == origin)
    }

    /// The trusted frontend's origin that this URL is below.
    pub fn frontend_of(&self, url: &str) -> Option<&str> {
        let is_below = |origin: &str| {
            url.strip_prefix(origin)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
        };
        self.0.frontends.iter().map(String::as_str).find(|origin| is_below(origin))
    }

    /// Checks a request that needs no cookie, as [`Origins::check`] does. A request with neither
    /// header passes, because no browser sent it.
    ///
    /// # Errors
    /// [`AuthenticationError::ForeignOrigin`]: a foreign page sent the request.
    pub fn check_sender(
        &self,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<(), AuthenticationError> {
        if headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site") {
            self.check(method, headers)
        } else {
            Ok(())
        }
    }

    /// Refuses a request that a foreign page caused.
    ///
    /// # Errors
    /// [`AuthenticationError::ForeignOrigin`]: a foreign page sent the request, or a change has no
    /// origin.
    pub fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), AuthenticationError> {
        let foreign = |text| Err(AuthenticationError::ForeignOrigin(text));
        let mut origins = headers.get_all(header::ORIGIN).iter();
        if let Some(origin) = origins.next() {
            let known = origin.to_str().is_ok_and(|origin| self.contains(origin));
            return if known && origins.next().is_none() {
                Ok(())
            } else {
                foreign(
                    "a page of another origin sent this; an operator lists the origins of \
                     frontends in `frontends.origins`",
                )
            };
        }
        match headers.get("sec-fetch-site").map(|site| site.to_str().unwrap_or_default()) {
            Some("same-origin" | "none") => Ok(()),
            Some(_) => foreign("a page of another site sent this; open the broker's own pages"),
            None if matches!(*method, Method::GET | Method::HEAD) => Ok(()),
            None => foreign("a change with a cookie needs the header Origin; browsers send it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origins() -> Origins {
        Origins::new(
            &"https://broker.example.com".parse().unwrap(),
            vec!["https://app.example.com".to_owned()],
        )
    }

    fn passes(method: &Method, headers: &[(&'static str, &str)]) -> bool {
        let mut sent = HeaderMap::new();
        for (name, value) in headers {
            sent.append(*name, value.parse().unwrap());
        }
        origins().check(method, &sent).is_ok()
    }

    #[test]
    fn own_pages_and_listed_frontends_pass() {
        for origin in ["https://broker.example.com", "https://app.example.com"] {
            assert!(passes(&Method::POST, &[("origin", origin), ("sec-fetch-site", "same-site")]));
        }
        assert!(passes(&Method::POST, &[("sec-fetch-site", "same-origin")]));
        assert!(passes(&Method::GET, &[("sec-fetch-site", "none")]), "typed by the person");
        assert!(passes(&Method::GET, &[]), "a program that is no browser");
    }

    #[test]
    fn all_other_origins_are_refused() {
        for origin in [
            "null",
            "https://evil.example.com",
            "http://broker.example.com",
            "https://broker.example.com:8443",
            "https://broker.example.com.evil.com",
            "https://app.example.com/",
            "",
        ] {
            assert!(!passes(&Method::POST, &[("origin", origin)]), "{origin}");
            assert!(!passes(&Method::GET, &[("origin", origin)]), "{origin}");
            let both = [("origin", origin), ("sec-fetch-site", "same-origin")];
            assert!(!passes(&Method::POST, &both), "{origin}");
        }
        let two = [("origin", "https://app.example.com"), ("origin", "https://evil.example.com")];
        assert!(!passes(&Method::POST, &two));
        for site in ["cross-site", "same-site", "", "something new"] {
            assert!(!passes(&Method::GET, &[("sec-fetch-site", site)]), "{site}");
        }
        assert!(!passes(&Method::POST, &[]) && !passes(&Method::DELETE, &[]));
    }

    #[test]
    fn a_url_belongs_to_the_frontend_that_it_begins_with() {
        let origins = origins();
        for url in ["https://app.example.com", "https://app.example.com/a?b#c"] {
            assert_eq!(origins.frontend_of(url), Some("https://app.example.com"), "{url}");
        }
        for url in [
            "https://app.example.com.evil.com/",
            "https://app.example.com@evil.com/",
            "https://app.example.com:1/",
            "//app.example.com/",
            "javascript:alert(1)",
        ] {
            assert_eq!(origins.frontend_of(url), None, "{url}");
        }
    }
}
