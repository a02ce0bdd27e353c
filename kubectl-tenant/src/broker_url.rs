//! Broker URLs in one canonical form.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};
use url::{Host, Url};

use crate::error::Error;

/// A broker's base URL, which is also its issuer identifier: `https`, lower-case host, no default
/// port, no trailing slash, no query, no user information. Plain `http` is accepted only for a
/// loopback address, because anywhere else it would send sessions and tokens unencrypted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct BrokerUrl(String);

impl BrokerUrl {
    /// Parses a URL from the command line or from a kubeconfig.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let bad = |why: &str| {
            Error::usage(format!("the broker URL {text:?} cannot be used: {why}"))
                .hint("give the address as in https://broker.example.com")
        };
        if !text.contains("://") && !text.trim().is_empty() {
            return Err(without_scheme(text.trim()));
        }
        let url = Url::parse(text.trim()).map_err(|error| bad(&error.to_string()))?;
        if url.host().is_none() {
            return Err(bad("it names no host"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("it must not hold a user or a password"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad("it must not hold a query or a fragment"));
        }
        match url.scheme() {
            "https" => {}
            "http" if is_loopback(&url) => {}
            "http" => {
                return Err(Error::usage(format!(
                    "the broker URL {text:?} is plain http, which would send your session unencrypted"
                ))
                .hint(
                    "use https; plain http is accepted for 127.0.0.1, [::1] and localhost only",
                ));
            }
            _ => return Err(bad("it must begin with https://")),
        }
        Ok(Self(url.as_str().trim_end_matches('/').to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Appends a path, which begins with a slash.
    pub(crate) fn join(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }

    /// Whether the broker runs on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        Url::parse(&self.0).is_ok_and(|url| is_loopback(&url))
    }

    pub(crate) fn is_plain_http(&self) -> bool {
        self.0.starts_with("http:")
    }
}

/// Whether secrets may be sent to this URL: `https`, or a loopback address.
pub(crate) fn is_safe(url: &Url) -> bool {
    url.scheme() == "https" || (url.scheme() == "http" && is_loopback(url))
}

/// The error for an address without a scheme, with the URL that was probably meant.
fn without_scheme(text: &str) -> Error {
    let meant = |scheme: &str| Url::parse(&format!("{scheme}://{text}")).ok();
    let local = meant("http").filter(is_loopback);
    let whole = local.or_else(|| meant("https")).filter(|url| url.host().is_some());
    match whole.filter(|_| !text.contains(char::is_whitespace)) {
        Some(url) => {
            Error::usage(format!("{}:// is missing in the broker URL {text:?}", url.scheme()))
                .hint(format!("write {}", url.as_str().trim_end_matches('/')))
        }
        None => Error::usage(format!("the broker URL {text:?} cannot be used"))
            .hint("give the address as in https://broker.example.com"),
    }
}

/// Whether the host of a URL is this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

impl fmt::Display for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for BrokerUrl {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        Self::parse(&text)
    }
}

impl From<BrokerUrl> for String {
    fn from(url: BrokerUrl) -> Self {
        url.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn spellings_of_one_url_are_equal() {
        for text in [
            "https://broker.example.com",
            "HTTPS://Broker.Example.com:443/",
            " https://broker.example.com// ",
        ] {
            assert_eq!(BrokerUrl::parse(text).unwrap().as_str(), "https://broker.example.com");
        }
        assert_eq!(
            BrokerUrl::parse("https://example.com/tenants/").unwrap().join("/api/v1/me"),
            "https://example.com/tenants/api/v1/me"
        );
    }

    #[test]
    fn plain_http_needs_a_loopback_address() {
        for text in ["http://127.0.0.1:8080", "http://[::1]:8080", "http://localhost"] {
            assert!(BrokerUrl::parse(text).unwrap().is_loopback(), "{text}");
        }
        for text in ["http://10.0.0.1", "http://broker.example.com", "http://localhost.example.com"]
        {
            let error = BrokerUrl::parse(text).unwrap_err();
            assert_eq!(error.kind, Kind::Usage);
            assert!(error.message.contains("unencrypted"), "{error}");
        }
    }

    #[test]
    fn a_missing_scheme_is_named() {
        for (text, message, hint) in [
            ("example.com", "https:// is missing", "write https://example.com"),
            ("example.com:8443/t/", "https:// is missing", "write https://example.com:8443/t"),
            ("localhost:8080", "http:// is missing", "write http://localhost:8080"),
            ("not an address", "cannot be used", "as in https://broker.example.com"),
        ] {
            let error = BrokerUrl::parse(text).unwrap_err();
            assert_eq!(error.kind, Kind::Usage);
            assert!(error.message.contains(message), "{error}");
            assert!(error.hint.unwrap().contains(hint), "{text}");
        }
    }

    #[test]
    fn invalid_urls_are_refused() {
        for text in
            ["", "broker", "ftp://x", "https://u:p@x", "https://x?a", "https://x#a", "file:///x"]
        {
            assert_eq!(BrokerUrl::parse(text).unwrap_err().kind, Kind::Usage, "{text}");
        }
    }
}
