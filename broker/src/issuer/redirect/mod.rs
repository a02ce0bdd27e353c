//! Redirect URIs: where an authorization response may be sent.

mod return_target;

use std::fmt;

use poem::Response;
use url::form_urlencoded;

pub(super) use self::return_target::{MAX_RETURN_BYTES, ReturnTarget, ReturnTo};
use crate::http::page::see_other;

/// Path of the page that shows a code to paste.
pub(super) const CODE_PAGE_PATH: &str = "/login/code";
/// Bytes of a redirect URI at most; the longest allowed one is far below.
pub(super) const MAX_BYTES: usize = 512;

/// The loopback addresses as written, up to the port (RFC 8252 section 7.3). Not `localhost`, which
/// may resolve to something else (section 8.3).
const LOOPBACK: [&str; 2] = ["http://127.0.0.1:", "http://[::1]:"];
const LOOPBACK_PATH: &str = "/callback";

/// A redirect URI of the plugin, exactly as the request named it.
///
/// It is compared as text and not as a parsed URL, so that it does not depend on parsers that
/// disagree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RedirectUri {
    /// The plugin listens on this machine, on any port; everything else must match exactly.
    Loopback(String),
    /// The issuer's own page shows the code to paste.
    CodePage(String),
}

impl RedirectUri {
    /// The redirect URI that a request names, if the plugin may use it.
    pub(super) fn allowed(text: &str, issuer: &str) -> Option<Self> {
        if text.strip_prefix(issuer) == Some(CODE_PAGE_PATH) {
            return Some(Self::CodePage(text.to_owned()));
        }
        let rest = LOOPBACK.iter().find_map(|start| text.strip_prefix(start))?;
        let port = rest.strip_suffix(LOOPBACK_PATH)?;
        let is_port = port.bytes().all(|byte| byte.is_ascii_digit())
            && !port.starts_with('0')
            && port.parse::<u16>().is_ok();
        is_port.then(|| Self::Loopback(text.to_owned()))
    }

    /// The URI as the request named it.
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Loopback(text) | Self::CodePage(text) => text,
        }
    }

    /// Whether it is the page that shows a code to paste.
    pub(super) fn is_code_page(&self) -> bool {
        matches!(self, Self::CodePage(_))
    }

    /// The source that a page must allow in `form-action` so that its form may be redirected to
    /// this URI. Browsers apply the directive to the redirect after the form, too. CSP has no
    /// notation for IPv6 literals, so for those it is the scheme.
    pub(super) fn form_action(&self) -> &str {
        match self {
            Self::CodePage(_) => "'self'",
            Self::Loopback(text) if text.starts_with("http://[") => "http:",
            Self::Loopback(text) => text.strip_suffix(LOOPBACK_PATH).unwrap_or(text),
        }
    }

    /// Redirects the browser to this URI with these parameters in the query.
    pub(super) fn redirect_with(&self, parameters: &[(&str, &str)]) -> Response {
        let query =
            form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
        see_other(&format!("{self}?{query}"))
    }
}

impl fmt::Display for RedirectUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use url::{Host, Url};

    use super::*;

    const ISSUER: &str = "https://broker.example.com";

    #[test]
    fn loopback_with_any_port_and_the_code_page_are_allowed() {
        for text in [
            "http://127.0.0.1:1/callback",
            "http://127.0.0.1:65535/callback",
            "http://[::1]:49152/callback",
            "https://broker.example.com/login/code",
        ] {
            assert_eq!(RedirectUri::allowed(text, ISSUER).unwrap().as_str(), text);
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "http://127.0.0.1/callback",
            "http://127.0.0.1:/callback",
            "http://127.0.0.1:0/callback",
            "http://127.0.0.1:080/callback",
            "http://127.0.0.1:65536/callback",
            "http://127.0.0.1:+80/callback",
            "http://127.0.0.1:80/",
            "http://127.0.0.1:80/callback/",
            "http://127.0.0.1:80/callback/../x",
            "http://127.0.0.1:80/Callback",
            "http://127.0.0.1:80/x/callback",
            "http://127.0.0.1:80/callback?a=b",
            "http://127.0.0.1:80/callback#a",
            "http://127.0.0.1:80@evil.example/callback",
            "http://127.0.0.1:80:90/callback",
            "http://me@127.0.0.1:80/callback",
            "http://127.0.0.1.evil.example:80/callback",
            "http://127.0.0.2:80/callback",
            "http://127.1:80/callback",
            "http://0x7f000001:80/callback",
            "http://[::1%25lo]:80/callback",
            "http://[0:0:0:0:0:0:0:1]:80/callback",
            "http://localhost:80/callback",
            "https://127.0.0.1:80/callback",
            "HTTP://127.0.0.1:80/callback",
            "http:/127.0.0.1:80/callback",
            " http://127.0.0.1:80/callback",
            "http://127.0.0.1:80/callback ",
            "http://127.0.0.1:80\\@evil.example/callback",
            "https://broker.example.com/login/code?x",
            "https://broker.example.com/login/code/",
            "https://broker.example.com/login/codex",
            "https://broker.example.com.evil.example/login/code",
            "http://broker.example.com/login/code",
            "javascript:alert(1)//callback",
        ] {
            assert_eq!(RedirectUri::allowed(text, ISSUER), None, "{text}");
        }
    }

    #[test]
    fn form_action_allows_only_the_redirect_uri() {
        for (text, source) in [
            ("http://127.0.0.1:8000/callback", "http://127.0.0.1:8000"),
            ("http://[::1]:8000/callback", "http:"),
            ("https://broker.example.com/login/code", "'self'"),
        ] {
            assert_eq!(RedirectUri::allowed(text, ISSUER).unwrap().form_action(), source);
        }
    }

    proptest! {
        /// A URL parser sees nothing in an allowed URI but this machine and that path.
        #[test]
        fn an_allowed_uri_stays_on_this_machine(
            text in "(http|https|HTTP)://[0-9a-z.:@\\[\\]\\\\/#?%-]{0,30}(:[0-9]{0,6})?/(callback)?[a-z/?#.]{0,4}\
                     |http://127\\.0\\.0\\.1[:.@0-9a-z]{1,8}/callback"
        ) {
            if let Some(allowed) = RedirectUri::allowed(&text, ISSUER) {
                let url = Url::parse(&text).unwrap();
                let here = matches!(url.host(), Some(Host::Ipv4(ip)) if ip.is_loopback())
                    || matches!(url.host(), Some(Host::Ipv6(ip)) if ip.is_loopback());
                prop_assert!(here && url.scheme() == "http" && url.path() == "/callback");
                prop_assert!(url.username().is_empty() && url.password().is_none());
                prop_assert!(url.query().is_none() && url.fragment().is_none());
                prop_assert_eq!(allowed.as_str(), text);
            }
        }

        #[test]
        fn every_port_is_allowed(port in 1u16..) {
            let text = format!("http://127.0.0.1:{port}/callback");
            prop_assert!(RedirectUri::allowed(&text, ISSUER).is_some());
        }

        /// Parameters are data: none of them can add another or change the host.
        #[test]
        fn parameters_are_encoded_and_decode_unchanged(state in ".{0,60}") {
            let uri = RedirectUri::allowed("http://127.0.0.1:80/callback", ISSUER).unwrap();
            let response = uri.redirect_with(&[("state", &state), ("iss", ISSUER)]);
            let location = response.headers()[poem::http::header::LOCATION].to_str().unwrap();
            let url = Url::parse(location).unwrap();
            let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
            prop_assert_eq!(pairs, [("state".to_owned(), state), ("iss".into(), ISSUER.into())]);
            prop_assert_eq!(url.host_str(), Some("127.0.0.1"));
        }
    }
}
