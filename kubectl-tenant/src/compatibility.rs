//! Versions of broker and plugin that work together: what the broker says about its version, and
//! which of the two has to be updated.

use http::HeaderMap;
use semver::Version;
use tenant_shared::{BROKER_VERSION_HEADER, MIN_BROKER_VERSION, MIN_PLUGIN_VERSION_HEADER};

use crate::broker_url::BrokerUrl;

/// Version of this plugin.
pub(crate) const PLUGIN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Versions in the headers of a broker's response. A broker older than these headers, and one to
/// which the caller is not known, sends none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BrokerVersion {
    /// Version of the broker.
    pub(crate) version: Version,
    /// Oldest plugin that the broker supports.
    pub(crate) min_plugin_version: Version,
}

impl BrokerVersion {
    /// Reads the headers of a response; [`None`] if they are missing or malformed.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let version = |name: &str| Version::parse(headers.get(name)?.to_str().ok()?).ok();
        Some(Self {
            version: version(BROKER_VERSION_HEADER)?,
            min_plugin_version: version(MIN_PLUGIN_VERSION_HEADER)?,
        })
    }

    /// Says what has to be updated; [`None`] if the broker works with this plugin.
    pub(crate) fn advice(&self, broker: &BrokerUrl) -> Option<String> {
        let plugin = Version::parse(PLUGIN_VERSION).ok()?;
        let min_broker = Version::parse(MIN_BROKER_VERSION).ok()?;
        self.advice_for(broker, &plugin, &min_broker)
    }

    /// Like [`Self::advice`], for a plugin of this version that supports brokers from `min_broker`
    /// on.
    fn advice_for(
        &self,
        broker: &BrokerUrl,
        plugin: &Version,
        min_broker: &Version,
    ) -> Option<String> {
        let Self { version, min_plugin_version } = self;
        if plugin < min_plugin_version {
            return Some(format!(
                "kubectl-tenant {plugin} is too old for the broker {broker} ({version}), which \
                 supports {min_plugin_version} and later: update kubectl-tenant"
            ));
        }
        (version < min_broker).then(|| {
            format!(
                "the broker {broker} ({version}) is too old for kubectl-tenant {plugin}, which \
                 supports brokers from {min_broker} on: ask an administrator to update the broker"
            )
        })
    }
}

/// Says what has to be updated, by the headers of a response; [`None`] if nothing is known to be
/// too old.
pub(crate) fn advice(headers: &HeaderMap, broker: &BrokerUrl) -> Option<String> {
    BrokerVersion::from_headers(headers)?.advice(broker)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    fn broker() -> BrokerUrl {
        BrokerUrl::parse("https://broker.example.com").unwrap()
    }

    #[test]
    fn the_older_one_has_to_be_updated() {
        let broker_version =
            BrokerVersion { version: version("1.10.0"), min_plugin_version: version("1.9.0") };
        let advice = |plugin: &str, min_broker: &str| {
            broker_version.advice_for(&broker(), &version(plugin), &version(min_broker))
        };
        for (plugin, min_broker) in [("1.9.0", "1.10.0"), ("1.10.3", "1.2.0"), ("2.0.0", "1.10.0")]
        {
            assert_eq!(advice(plugin, min_broker), None, "{plugin} {min_broker}");
        }
        for plugin in ["1.8.9", "1.9.0-rc.1", "0.99.0"] {
            let text = advice(plugin, "1.2.0").unwrap();
            assert!(text.starts_with(&format!("kubectl-tenant {plugin} is too old")), "{text}");
            assert!(text.ends_with("supports 1.9.0 and later: update kubectl-tenant"), "{text}");
        }
        let text = advice("2.0.0", "1.11.0").unwrap();
        assert!(
            text.starts_with("the broker https://broker.example.com (1.10.0) is too"),
            "{text}"
        );
        assert!(text.contains("from 1.11.0 on: ask an administrator"), "{text}");
    }

    #[test]
    fn missing_and_malformed_headers_give_no_version() {
        let headers = |version: &[u8], min: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(BROKER_VERSION_HEADER, HeaderValue::from_bytes(version).unwrap());
            headers.insert(MIN_PLUGIN_VERSION_HEADER, HeaderValue::from_bytes(min).unwrap());
            BrokerVersion::from_headers(&headers)
        };
        assert_eq!(BrokerVersion::from_headers(&HeaderMap::new()), None);
        for malformed in [&b""[..], b"1", b"v1.0.0", b"1.0.0 ", b"1.0.0\xff", &[b'9'; 9000]] {
            assert_eq!(headers(malformed, b"1.0.0"), None, "{malformed:?}");
            assert_eq!(headers(b"1.0.0", malformed), None, "{malformed:?}");
        }
        let read = headers(b"1.2.3", b"0.1.0").unwrap();
        assert_eq!((read.version, read.min_plugin_version), (version("1.2.3"), version("0.1.0")));
    }

    /// A release that raises a minimum has to add its row to the table.
    #[test]
    fn the_documentation_has_the_versions_of_this_release() {
        let own = version(PLUGIN_VERSION);
        let min_plugin = version(tenant_shared::MIN_PLUGIN_VERSION);
        let min_broker = version(MIN_BROKER_VERSION);
        assert!(min_plugin <= own && min_broker <= own, "{min_plugin} {min_broker} {own}");
        let row = format!("| {}.{} | {min_plugin} | {min_broker} |", own.major, own.minor);
        let documentation = include_str!("../../docs/kubectl-tenant.md");
        assert!(documentation.lines().any(|line| line == row), "{row}");
    }
}
