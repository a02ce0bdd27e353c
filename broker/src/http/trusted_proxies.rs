//! Client addresses behind trusted proxies (`X-Forwarded-For`).
//!
//! The address of a connection cannot be forged. A header can, so it is trusted only if the
//! connection came from a proxy that the operator listed (`trusted_proxies`). The client is the
//! rightmost address in `X-Forwarded-For` that is not itself a listed proxy: the client may have
//! invented everything to the left of it.
//!
//! Only one header is read on purpose: with two headers, a proxy that sets one of them would pass
//! the other on as the client sent it. `Forwarded` (RFC 7239) is not read, because few proxies set
//! it and all set the other.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use ipnet::IpNet;
use poem::http::HeaderMap;

/// The header to which proxies append the address of their client.
const FORWARDED_FOR: &str = "x-forwarded-for";
/// Limit of proxies in a row; the address behind them counts as the client.
const MAX_HOPS: usize = 16;

/// The trusted proxies; none unless configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<IpNet>);

/// The text is neither an address nor a network.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidNetwork(String);

impl fmt::Display for InvalidNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: addresses or networks, for example 10.0.0.0/8,fd00::/8,192.0.2.7", self.0)
    }
}

impl FromStr for TrustedProxies {
    type Err = InvalidNetwork;

    /// Addresses and networks (RFC 4632, RFC 4291 section 2.3) with commas between them.
    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        let network = |item: &str| {
            let one = |address: IpAddr| IpNet::from(address.to_canonical());
            item.parse()
                .or_else(|_| item.parse().map(one))
                .map_err(|_| InvalidNetwork(item.to_owned()))
        };
        items.map(network).collect::<Result<_, _>>().map(Self)
    }
}

impl TrustedProxies {
    /// Whether the address is one of a listed proxy.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The client address of a request: the connection's, or the one from `X-Forwarded-For` if the
    /// connection came from a listed proxy.
    pub fn client(&self, connection: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut nearest = connection.to_canonical();
        // Header lines form one list, each to the right of the line before it (RFC 9110 section
        // 5.3).
        let mut elements = headers
            .get_all(FORWARDED_FOR)
            .iter()
            .rev()
            .flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
        for _ in 0..MAX_HOPS {
            if !self.contains(nearest) {
                break;
            }
            // An element that is no address means that the proxy did not know its client: the proxy
            // counts.
            let Some(address) = elements.next().and_then(address) else { break };
            nearest = address;
        }
        nearest
    }
}

/// Parses an element of the header: an address, with or without a port.
fn address(element: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(element).ok()?.trim_matches([' ', '\t']);
    let address = text
        .parse::<IpAddr>()
        .or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()))
        .ok()
        .or_else(|| text.strip_prefix('[')?.strip_suffix(']')?.parse().ok())?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use poem::http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn client(proxies: &str, connection: &str, lines: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED_FOR, HeaderValue::from_str(line).unwrap());
        }
        let proxies: TrustedProxies = proxies.parse().unwrap();
        proxies.client(connection.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn only_headers_of_listed_proxies_count() {
        let client_of = |lines| client("10.0.0.0/8, fd00::/8", "10.0.0.1", lines);
        assert_eq!(client_of(&[]), "10.0.0.1");
        assert_eq!(client_of(&["192.0.2.1"]), "192.0.2.1");
        assert_eq!(client_of(&["1.2.3.4, 192.0.2.1"]), "192.0.2.1", "the left one may be forged");
        assert_eq!(client_of(&["1.2.3.4", "192.0.2.1"]), "192.0.2.1", "lines are one list");
        assert_eq!(client_of(&["192.0.2.1, 10.9.9.9,fd00::1"]), "192.0.2.1", "two more proxies");
        assert_eq!(client_of(&["10.0.0.2, 10.0.0.3"]), "10.0.0.2", "the client is inside");
        assert_eq!(
            client_of(&["192.0.2.1, unknown"]),
            "10.0.0.1",
            "the proxy did not name its client"
        );
        assert_eq!(client_of(&["192.0.2.1, unknown, 10.0.0.4"]), "10.0.0.4");
        assert_eq!(client_of(&["192.0.2.1:4711"]), "192.0.2.1");
        assert_eq!(client_of(&["[2001:db8::1]:4711"]), "2001:db8::1");
        assert_eq!(client_of(&["[2001:db8::1]"]), "2001:db8::1");
        assert_eq!(client_of(&["::ffff:192.0.2.1"]), "192.0.2.1");
        assert_eq!(client("10.0.0.0/8", "::ffff:10.0.0.1", &["192.0.2.1"]), "192.0.2.1");
        assert_eq!(client("10.0.0.0/8", "192.0.2.9", &["10.0.0.1"]), "192.0.2.9");
        assert_eq!(client("", "10.0.0.1", &["192.0.2.1"]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", "10.0.0.2", &["192.0.2.1"]), "10.0.0.2");
    }

    #[test]
    fn an_invalid_network_is_named_in_the_error() {
        for text in ["10.0.0.0/33", "proxy.example.com", "10.0.0.0/8,*"] {
            assert!(text.parse::<TrustedProxies>().is_err(), "{text}");
        }
        assert_eq!("10.0.0.0/8,*".parse::<TrustedProxies>().unwrap_err().0, "*");
    }

    /// An arbitrary header line.
    fn line() -> impl Strategy<Value = Vec<u8>> {
        let element = prop_oneof![
            any::<IpAddr>().prop_map(|address| address.to_string().into_bytes()),
            any::<SocketAddr>().prop_map(|address| address.to_string().into_bytes()),
            proptest::collection::vec(0x20u8..0xff, 0..40),
        ];
        proptest::collection::vec(element, 0..40).prop_map(|elements| elements.join(&b','))
    }

    fn headers(lines: &[Vec<u8>]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines.iter().filter_map(|line| HeaderValue::from_bytes(line).ok()) {
            headers.append(FORWARDED_FOR, line);
        }
        headers
    }

    proptest! {
        #[test]
        fn headers_of_unlisted_addresses_are_ignored(
            connection: IpAddr, lines in proptest::collection::vec(line(), 0..4)
        ) {
            let proxies: TrustedProxies = "127.0.0.0/8,::1".parse().unwrap();
            let connection = connection.to_canonical();
            prop_assume!(!proxies.contains(connection));
            prop_assert_eq!(proxies.client(connection, &headers(&lines)), connection);
        }

        #[test]
        fn a_client_behind_a_proxy_cannot_forge_its_address(
            client: IpAddr, lines in proptest::collection::vec(line(), 0..4)
        ) {
            let proxies: TrustedProxies = "127.0.0.0/8".parse().unwrap();
            let client = client.to_canonical();
            prop_assume!(!proxies.contains(client));
            let mut forged = headers(&lines);
            // The proxy appends its client's address to the received header.
            forged.append(FORWARDED_FOR, HeaderValue::from_str(&client.to_string()).unwrap());
            prop_assert_eq!(proxies.client("127.0.0.1".parse().unwrap(), &forged), client);
        }
    }
}
