//! Sessions of browsers: a cookie instead of tokens, for the broker's pages and for frontends.

use url::Url;

use super::Origins;
use crate::cookie::HostCookie;

/// How often the use of a browser's session is written down, in milliseconds.
pub(super) const USE_MS: i64 = 60_000;

/// What every session of a browser has in common.
#[derive(Clone, Debug)]
pub struct BrowserSessions {
    /// The cookie that carries the session's secret.
    pub cookie: HostCookie,
    /// The pages that may act with it.
    pub origins: Origins,
    /// How long a session lives without being used, in seconds.
    pub idle_seconds: u32,
    /// How long it lives at most, in seconds.
    pub max_seconds: u32,
}

impl BrowserSessions {
    /// For a broker at this address, with these frontends.
    pub fn new(
        public_url: &Url,
        frontends: Vec<String>,
        idle_seconds: u32,
        max_seconds: u32,
    ) -> Self {
        Self {
            cookie: HostCookie::new("tenant-session", public_url.scheme() == "https", "/"),
            origins: Origins::new(public_url, frontends),
            idle_seconds,
            max_seconds,
        }
    }
}
