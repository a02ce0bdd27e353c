//! Settings of frontends (`frontends.*`): origins whose pages may use a browser's session.

use url::Url;

use super::{
    Settings,
    declaration::{Declaration, Setting},
    general::is_loopback,
    parse::{list, within},
};
use crate::identity::BrowserSessions;

const ORIGINS: Setting<Vec<String>> = Setting::new(
    "frontends.origins",
    "",
    list,
    "Origins of frontends that may act with a browser's session, for example \
     https://app.example.com; on the broker's own site, because browsers send its cookie nowhere \
     else.",
);
const SESSION_IDLE_SECONDS: Setting<u32> = Setting::new(
    "frontends.session_idle_seconds",
    "28800",
    within::<60, 2_592_000>,
    "Seconds without use after which a browser's session ends.",
);
const SESSION_MAX_SECONDS: Setting<u32> = Setting::new(
    "frontends.session_max_seconds",
    "604800",
    within::<60, 31_536_000>,
    "Seconds after which a browser's session ends, however often it is used.",
);
pub(super) const SETTINGS: &[&dyn Declaration] =
    &[&ORIGINS, &SESSION_IDLE_SECONDS, &SESSION_MAX_SECONDS];

/// Reads the limits of browser sessions and the origins that may use them.
pub(super) fn browser(s: &mut Settings, public_url: &Url) -> BrowserSessions {
    let mut origins = Vec::new();
    for text in ORIGINS.read(s) {
        match parse_origin(&text) {
            Ok(origin) => origins.push(origin),
            Err(why) => ORIGINS.fault(s, &format!("{text}: {why}")),
        }
    }
    BrowserSessions::new(
        public_url,
        origins,
        SESSION_IDLE_SECONDS.read(s),
        SESSION_MAX_SECONDS.read(s),
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
        "http" => Err("plain HTTP exposes every session: use https, or loopback"),
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
