//! Which pages may have a browser act for the person who is signed in there.
//!
//! A browser sends its cookies along with what any page makes it ask, so a cookie alone proves
//! nobody's wish. What counts is where the request came from, and that a page cannot forge: the
//! headers `Origin` (RFC 6454 section 7) and `Sec-Fetch-Site` (W3C Fetch Metadata Request Headers).

use std::sync::Arc;

use poem::{
    Request,
    http::{HeaderMap, Method, header},
};
use tenant_shared::Code;
use url::Url;

use crate::problem::Failure;

/// The broker's own origin and those of the frontends that it trusts.
#[derive(Clone, Debug)]
pub struct Origins(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    own: String,
    frontends: Vec<String>,
}

impl Origins {
    /// The origin of this URL, and these frontends, each as a browser writes it
    /// (`https://app.example.com`).
    pub fn new(public_url: &Url, frontends: Vec<String>) -> Self {
        Self(Arc::new(Inner { own: public_url.origin().ascii_serialization(), frontends }))
    }

    /// Whether this is one of them, letter for letter.
    pub fn contains(&self, origin: &str) -> bool {
        origin == self.0.own || self.0.frontends.iter().any(|one| one == origin)
    }

    /// The frontend that this URL belongs to.
    pub fn frontend_of(&self, url: &str) -> Option<&str> {
        let is_below = |origin: &str| {
            url.strip_prefix(origin)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
        };
        self.0.frontends.iter().map(String::as_str).find(|origin| is_below(origin))
    }

    /// As [`Origins::check`], for requests that need no cookie: one that says nothing of where it
    /// came from was sent by no browser.
    ///
    /// # Errors
    /// [`Code::ForeignOrigin`].
    pub fn check_sender(&self, request: &Request) -> Result<(), Failure> {
        let says = |name: &str| request.headers().contains_key(name);
        if says("origin") || says("sec-fetch-site") {
            self.check(request.method(), request.headers())
        } else {
            Ok(())
        }
    }

    /// Refuses a request that a foreign page made the browser send.
    ///
    /// # Errors
    /// [`Code::ForeignOrigin`].
    pub fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), Failure> {
        let foreign = |text: &str| Err(Failure::new(Code::ForeignOrigin, text));
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

    fn passes(method: Method, headers: &[(&str, &str)]) -> bool {
        let request = headers
            .iter()
            .fold(Request::builder().method(method), |request, (name, value)| {
                request.header(*name, *value)
            })
            .finish();
        origins().check(request.method(), request.headers()).is_ok()
    }

    #[test]
    fn our_own_pages_and_listed_frontends_pass() {
        for origin in ["https://broker.example.com", "https://app.example.com"] {
            assert!(passes(Method::POST, &[("origin", origin), ("sec-fetch-site", "same-site")]));
        }
        assert!(passes(Method::POST, &[("sec-fetch-site", "same-origin")]));
        assert!(passes(Method::GET, &[("sec-fetch-site", "none")]), "typed by the person");
        assert!(passes(Method::GET, &[]), "a program that is no browser");
    }

    #[test]
    fn everything_else_does_not() {
        for origin in [
            "null",
            "https://evil.example.com",
            "http://broker.example.com",
            "https://broker.example.com:8443",
            "https://broker.example.com.evil.com",
            "https://app.example.com/",
            "",
        ] {
            assert!(!passes(Method::POST, &[("origin", origin)]), "{origin}");
            assert!(!passes(Method::GET, &[("origin", origin)]), "{origin}");
            let both = [("origin", origin), ("sec-fetch-site", "same-origin")];
            assert!(!passes(Method::POST, &both), "{origin}");
        }
        let two = [("origin", "https://app.example.com"), ("origin", "https://evil.example.com")];
        assert!(!passes(Method::POST, &two));
        for site in ["cross-site", "same-site", "", "something new"] {
            assert!(!passes(Method::GET, &[("sec-fetch-site", site)]), "{site}");
        }
        assert!(!passes(Method::POST, &[]) && !passes(Method::DELETE, &[]));
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
