//! Where a sign-in leads.

use uuid::Uuid;

use super::redirect::RedirectUri;
use crate::identity::Origins;

/// Bytes of an address to return to at most.
pub(super) const MOST_RETURN_BYTES: usize = 512;
/// What the database keeps in front of a device's identifier.
const DEVICE: &str = "device:";
/// What the database keeps in front of an address to return to.
const BROWSER: &str = "browser:";

/// What waits for somebody to sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A client waits for a code at its redirect URI.
    Client(RedirectUri),
    /// A device waits; its request is the one with this identifier.
    Device(Uuid),
    /// The browser itself gets a session and goes on to this place.
    Browser(ReturnTo),
}

impl Target {
    /// As the database keeps it.
    pub(super) fn as_text(&self) -> String {
        match self {
            Self::Client(redirect) => redirect.to_string(),
            Self::Device(id) => format!("{DEVICE}{id}"),
            Self::Browser(ReturnTo(place)) => format!("{BROWSER}{place}"),
        }
    }

    /// From the database, if it is (still) allowed.
    pub(super) fn parse(text: &str, issuer: &str, origins: &Origins) -> Option<Self> {
        if let Some(id) = text.strip_prefix(DEVICE) {
            return id.parse().ok().map(Self::Device);
        }
        if let Some(place) = text.strip_prefix(BROWSER) {
            return ReturnTo::allowed(place, origins).map(Self::Browser);
        }
        RedirectUri::allowed(text, issuer).map(Self::Client)
    }
}

/// Where a browser goes after its person signed in: a path of the broker, or an address of a listed
/// frontend. The comparison is with text, so that no parser of a browser sees more in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReturnTo(String);

impl ReturnTo {
    /// The place, if it is one that a sign-in may lead to.
    pub(super) fn allowed(text: &str, origins: &Origins) -> Option<Self> {
        let is_plain = text.len() <= MOST_RETURN_BYTES
            && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        // A second slash would make it an address of another host.
        let is_path = text.starts_with('/') && !text.starts_with("//");
        let is_allowed = is_path || origins.frontend_of(text).is_some();
        (is_plain && is_allowed).then(|| Self(text.to_owned()))
    }

    /// As it was asked for.
    pub(super) fn as_str(&self) -> &str {
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
    fn other_places_are_not() {
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
    fn a_target_comes_back_from_the_database_as_it_was() {
        let issuer = "https://broker.example.com";
        let all = [
            Target::Client(RedirectUri::allowed("http://127.0.0.1:1/callback", issuer).unwrap()),
            Target::Device(Uuid::nil()),
            Target::Browser(ReturnTo::allowed("/account", &origins()).unwrap()),
        ];
        for target in all {
            assert_eq!(Target::parse(&target.as_text(), issuer, &origins()), Some(target));
        }
        assert_eq!(Target::parse("device:x", issuer, &origins()), None);
        assert_eq!(Target::parse("browser://evil.example.com", issuer, &origins()), None);
    }

    proptest! {
        // A browser reads a `Location` as the URL standard says, against the page's own address.
        #[test]
        fn a_browser_never_leaves_the_listed_origins(text in "[/\\\\@:.?#a-z \\t%0-9-]{0,40}") {
            if let Some(place) = ReturnTo::allowed(&text, &origins()) {
                let base: Url = "https://broker.example.com/login".parse().unwrap();
                let origin = base.join(place.as_str()).unwrap().origin().ascii_serialization();
                prop_assert!(origins().contains(&origin), "{text:?} leads to {origin}");
            }
        }
    }
}
