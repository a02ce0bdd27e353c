//! Browser sessions: a cookie instead of tokens, for the broker's own pages and for frontends.

use url::Url;

use super::{HostCookie, Origins};

/// Minimum time between two updates of a browser session's last use, in milliseconds.
pub(super) const USE_INTERVAL_MS: i64 = 60_000;

/// Settings that all browser sessions share.
#[derive(Clone, Debug)]
pub struct BrowserSessions {
    /// The cookie that carries the session's secret.
    pub cookie: HostCookie,
    /// The origins whose pages may use the cookie.
    pub origins: Origins,
    /// Idle timeout of a session, in seconds.
    pub idle_seconds: u32,
    /// Lifetime of a session from its start at most, in seconds.
    pub max_seconds: u32,
}

impl BrowserSessions {
    /// Settings of a broker at this address with these frontends.
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
