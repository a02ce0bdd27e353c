//! Settings without a section: addresses, folder and intervals.

use std::{net::SocketAddr, path::PathBuf};

use url::Url;

use super::{
    declaration::{Declaration, Setting},
    parse::{from_str, within},
};
use crate::http::TrustedProxies;

pub(super) const LISTEN: Setting<SocketAddr> = Setting::new(
    "listen",
    "127.0.0.1:8080",
    from_str,
    "Address of the API, the issuer and its pages.",
);
pub(super) const OPERATOR_LISTEN: Setting<SocketAddr> = Setting::new(
    "operator_listen",
    "127.0.0.1:8081",
    from_str,
    "Address of /healthz, /readyz and /metrics, which need no credential: keep it private. In a \
     pod 0.0.0.0:8081, because kubelets and Prometheus connect to the address of the pod.",
);
pub(super) const PUBLIC_URL: Setting<Url> = Setting::new(
    "public_url",
    "http://127.0.0.1:8080",
    public_url,
    "URL under which people reach the broker; the issuer of its ID tokens. HTTPS, except on \
     loopback.",
);
pub(super) const STATE_DIR: Setting<PathBuf> = Setting::new(
    "state_dir",
    "/var/lib/tenant-broker",
    from_str,
    "Folder of the SQLite database and of the generated signing key.",
);
pub(super) const DRAIN_SECONDS: Setting<u32> = Setting::new(
    "drain_seconds",
    "20",
    within::<0, 3600>,
    "Seconds that requests in flight have to finish after SIGTERM.",
);
pub(super) const SWEEP_SECONDS: Setting<u32> = Setting::new(
    "sweep_seconds",
    "10",
    within::<1, 3600>,
    "Interval of the sweep, which finishes interrupted work, in seconds.",
);
pub(super) const TRUSTED_PROXIES: Setting<TrustedProxies> = Setting::new(
    "trusted_proxies",
    "",
    from_str,
    "Addresses and networks (CIDR) of proxies whose X-Forwarded-For is trusted; from all other \
     addresses the header is ignored.",
);
pub(super) const DRIFT_SECONDS: Setting<u32> = Setting::new(
    "drift_seconds",
    "60",
    within::<1, 86_400>,
    "Interval at which the objects of all workspaces are compared with their desired state, in \
     seconds.",
);
pub(super) const SETTINGS: &[&dyn Declaration] = &[
    &LISTEN,
    &OPERATOR_LISTEN,
    &PUBLIC_URL,
    &STATE_DIR,
    &DRAIN_SECONDS,
    &SWEEP_SECONDS,
    &TRUSTED_PROXIES,
    &DRIFT_SECONDS,
];

fn public_url(text: &str) -> Result<Url, String> {
    let mut url: Url = from_str(text)?;
    let why = match url.scheme() {
        "https" => None,
        "http" if is_loopback(&url) => None,
        "http" => Some("plain HTTP exposes every session: use https, or loopback"),
        _ => Some("an http or https URL"),
    };
    let extra = url.path() != "/" || url.query().is_some() || url.fragment().is_some();
    if let Some(why) = why.or(extra.then_some("without path, query or fragment")) {
        return Err(why.to_owned());
    }
    url.set_path("");
    Ok(url)
}

pub(super) fn is_loopback(url: &Url) -> bool {
    matches!(url.host_str(), Some("127.0.0.1" | "[::1]" | "localhost"))
}
