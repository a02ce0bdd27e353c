//! Settings of frontends (`frontends.*`): origins whose pages may use a browser's session.

use url::Url;

use super::{Settings, is_loopback};
use crate::identity::BrowserSessions;

/// Reads the limits of browser sessions and the origins that may use them.
pub(super) fn browser(s: &mut Settings, public_url: &Url) -> BrowserSessions {
    let list = s.get_non_empty("frontends.origins").unwrap_or_default();
    let mut origins = Vec::new();
    for text in list.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        match parse_origin(text) {
            Ok(origin) => origins.push(origin),
            Err(why) => s.fault("frontends.origins", &format!("{text}: {why}")),
        }
    }
    BrowserSessions::new(
        public_url,
        origins,
        s.within("frontends.session_idle_seconds", 60, 2_592_000),
        s.within("frontends.session_max_seconds", 60, 31_536_000),
    )
}

/// Validates an origin, which must be written as browsers serialize it.
fn parse_origin(text: &str) -> Result<String, &'static str> {
    const FORM: &str = "an origin is scheme, host and port, for example https://app.example.com";
    if text.contains('*') {
        return Err("a wildcard would let every page act as the person who visits it");
    }
    let url: Url = text.parse().map_err(|_| FORM)?;
    let origin = url.origin().ascii_serialization();
    match url.scheme() {
        _ if text != origin => Err(FORM),
        "https" => Ok(origin),
        "http" if is_loopback(&url) => Ok(origin),
        "http" => Err("plain HTTP gives every session away: use https, or loopback"),
        _ => Err(FORM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_origins_are_accepted() {
        assert_eq!(parse_origin("https://app.example.com").unwrap(), "https://app.example.com");
        assert_eq!(parse_origin("http://127.0.0.1:3000").unwrap(), "http://127.0.0.1:3000");
        for text in [
            "*",
            "https://*.example.com",
            "https://app.example.com/",
            "https://app.example.com/x",
            "http://app.example.com",
            "app.example.com",
            "HTTPS://app.example.com",
            "null",
        ] {
            assert!(parse_origin(text).is_err(), "{text}");
        }
    }

    #[test]
    fn each_invalid_origin_is_a_fault() {
        let arguments = ["frontends.origins=https://a.example.com,*,http://b.example.com".into()];
        let mut settings = Settings::load(None, std::iter::empty(), &arguments).unwrap();
        let public_url = "https://broker.example.com".parse().unwrap();
        let sessions = browser(&mut settings, &public_url);
        assert!(sessions.origins.contains("https://a.example.com"));
        assert!(sessions.origins.contains("https://broker.example.com"), "its own");
        let faults = settings.finish().unwrap_err().to_string();
        assert!(faults.contains("*: ") && faults.contains("http://b.example.com: "), "{faults}");
    }
}
