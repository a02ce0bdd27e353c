//! Return targets: where a sign-in leads.

use uuid::Uuid;

use super::RedirectUri;
use crate::identity::Origins;

/// Bytes of a return URL at most.
pub(in crate::issuer) const MAX_RETURN_BYTES: usize = 512;
/// Prefix of a stored device target, before the device's identifier.
const DEVICE: &str = "device:";
/// Prefix of a stored browser target, before the return URL.
const BROWSER: &str = "browser:";

/// The target of a sign-in: what the browser is redirected to afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::issuer) enum ReturnTarget {
    /// A client gets a code at its redirect URI.
    Client(RedirectUri),
    /// A device polls for the decision; this is the identifier of its device authorization.
    Device(Uuid),
    /// The browser itself gets a session and is redirected to this URL.
    Browser(ReturnTo),
}

impl ReturnTarget {
    /// The target as the database stores it.
    pub(in crate::issuer) fn as_text(&self) -> String {
        match self {
            Self::Client(redirect) => redirect.to_string(),
            Self::Device(id) => format!("{DEVICE}{id}"),
            Self::Browser(ReturnTo(url)) => format!("{BROWSER}{url}"),
        }
    }

    /// Parses a stored target. `None` if it is not allowed (any more).
    pub(in crate::issuer) fn parse(text: &str, issuer: &str, origins: &Origins) -> Option<Self> {
        if let Some(id) = text.strip_prefix(DEVICE) {
            return id.parse().ok().map(Self::Device);
        }
        if let Some(url) = text.strip_prefix(BROWSER) {
            return ReturnTo::allowed(url, origins).map(Self::Browser);
        }
        RedirectUri::allowed(text, issuer).map(Self::Client)
    }
}

/// A return URL: a path of the broker, or a URL of a listed frontend. It is compared as text, so
/// that it does not depend on how a browser parses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::issuer) struct ReturnTo(String);

impl ReturnTo {
    /// The URL, if a sign-in may lead to it.
    pub(in crate::issuer) fn allowed(text: &str, origins: &Origins) -> Option<Self> {
        let is_plain = text.len() <= MAX_RETURN_BYTES
            && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        // A second slash would make it an address of another host.
        let is_path = text.starts_with('/') && !text.starts_with("//");
        let is_allowed = is_path || origins.frontend_of(text).is_some();
        (is_plain && is_allowed).then(|| Self(text.to_owned()))
    }

    /// The URL as the request named it.
    pub(in crate::issuer) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use url::Url;

    use super::*;

    fn origins() -> Origins {
        Origins::new(
            &"https://broker.example.com".parse().unwrap(),
            vec!["https://app.example.com".to_owned()],
        )
    }

    #[test]
    fn own_paths_and_frontends_are_allowed() {
        for text in ["/account", "/device?user_code=A", "https://app.example.com/a?b=c#d"] {
            assert_eq!(ReturnTo::allowed(text, &origins()).unwrap().as_str(), text);
        }
    }

    #[test]
    fn other_urls_are_refused() {
        for text in [
            "",
            "account",
            "//evil.example.com",
            "/\\evil.example.com",
            "\\\\evil.example.com",
            "https://evil.example.com",
            "https://app.example.com.evil.com",
            "https://app.example.com@evil.com",
            "javascript:alert(1)",
            "/a b",
            "/a\r\nSet-Cookie: x=y",
            "/\t/evil.example.com",
            "/ä",
        ] {
            assert_eq!(ReturnTo::allowed(text, &origins()), None, "{text:?}");
        }
    }

    #[test]
    fn a_stored_target_parses_to_the_same_target() {
        let issuer = "https://broker.example.com";
        let all = [
            ReturnTarget::Client(
                RedirectUri::allowed("http://127.0.0.1:1/callback", issuer).unwrap(),
            ),
            ReturnTarget::Device(Uuid::nil()),
            ReturnTarget::Browser(ReturnTo::allowed("/account", &origins()).unwrap()),
        ];
        for target in all {
            assert_eq!(ReturnTarget::parse(&target.as_text(), issuer, &origins()), Some(target));
        }
        assert_eq!(ReturnTarget::parse("device:x", issuer, &origins()), None);
        assert_eq!(ReturnTarget::parse("browser://evil.example.com", issuer, &origins()), None);
    }

    proptest! {
        // A browser reads a `Location` as the URL standard says, against the page's own address.
        #[test]
        fn a_browser_never_leaves_the_listed_origins(text in "[/\\\\@:.?#a-z \\t%0-9-]{0,40}") {
            if let Some(url) = ReturnTo::allowed(&text, &origins()) {
                let base: Url = "https://broker.example.com/login".parse().unwrap();
                let origin = base.join(url.as_str()).unwrap().origin().ascii_serialization();
                prop_assert!(origins().contains(&origin), "{text:?} leads to {origin}");
            }
        }
    }
}
