//! Who asked, where proxies stand between people and the broker.
//!
//! A connection's own address cannot be forged. What a header says can, so it counts only if the
//! connection came from a proxy that the operator listed (`trusted_proxies`). Of `X-Forwarded-For`
//! the rightmost address counts that is not itself a listed proxy: everything to its left was sent
//! by whoever is there and may be invented.
//!
//! One header is read, on purpose: where two are, a proxy that sets one of them passes the other on
//! as the client wrote it. `Forwarded` (RFC 7239) is the one left out, for few proxies write it and
//! all write the other.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use ipnet::IpNet;
use poem::http::HeaderMap;

/// Name of the header that proxies append the address to from which they were asked.
const FORWARDED_FOR: &str = "x-forwarded-for";
/// Proxies in a row that are looked through; whatever is beyond them counts as the client.
const MOST_HOPS: usize = 16;

/// The proxies that are believed: none unless configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<IpNet>);

/// A text that is neither an address nor a network.
#[derive(Debug, PartialEq, Eq)]
pub struct NoNetwork(String);

impl fmt::Display for NoNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: addresses or networks, for example 10.0.0.0/8,fd00::/8,192.0.2.7", self.0)
    }
}

impl FromStr for TrustedProxies {
    type Err = NoNetwork;

    /// Addresses and networks (RFC 4632, RFC 4291 section 2.3) with commas between them.
    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        let network = |item: &str| {
            let one = |address: IpAddr| IpNet::from(address.to_canonical());
            item.parse().or_else(|_| item.parse().map(one)).map_err(|_| NoNetwork(item.to_owned()))
        };
        items.map(network).collect::<Result<_, _>>().map(Self)
    }
}

impl TrustedProxies {
    fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The address that a request came from: the connection's, or, if that is a listed proxy's, what
    /// the chain of proxies says.
    pub fn client(&self, connection: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut nearest = connection.to_canonical();
        // Each line and each element is to the right of the one before it (RFC 9110 section 5.3).
        let mut elements = headers
            .get_all(FORWARDED_FOR)
            .iter()
            .rev()
            .flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
        for _ in 0..MOST_HOPS {
            if !self.contains(nearest) {
                break;
            }
            // What is no address stands for somebody whom the proxy did not name: the proxy counts.
            let Some(address) = elements.next().and_then(address) else { break };
            nearest = address;
        }
        nearest
    }
}

/// An element of the header: an address, with a port behind it as some proxies write it.
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
    fn only_what_a_listed_proxy_says_counts() {
        let seen = |lines| client("10.0.0.0/8, fd00::/8", "10.0.0.1", lines);
        assert_eq!(seen(&[]), "10.0.0.1");
        assert_eq!(seen(&["192.0.2.1"]), "192.0.2.1");
        assert_eq!(seen(&["1.2.3.4, 192.0.2.1"]), "192.0.2.1", "the left one is invented");
        assert_eq!(seen(&["1.2.3.4", "192.0.2.1"]), "192.0.2.1", "lines are one list");
        assert_eq!(seen(&["192.0.2.1, 10.9.9.9,fd00::1"]), "192.0.2.1", "two proxies more");
        assert_eq!(seen(&["10.0.0.2, 10.0.0.3"]), "10.0.0.2", "somebody inside");
        assert_eq!(seen(&["192.0.2.1, unknown"]), "10.0.0.1", "nobody is named");
        assert_eq!(seen(&["192.0.2.1, unknown, 10.0.0.4"]), "10.0.0.4");
        assert_eq!(seen(&["192.0.2.1:4711"]), "192.0.2.1");
        assert_eq!(seen(&["[2001:db8::1]:4711"]), "2001:db8::1");
        assert_eq!(seen(&["[2001:db8::1]"]), "2001:db8::1");
        assert_eq!(seen(&["::ffff:192.0.2.1"]), "192.0.2.1");
        assert_eq!(client("10.0.0.0/8", "::ffff:10.0.0.1", &["192.0.2.1"]), "192.0.2.1");
        assert_eq!(client("10.0.0.0/8", "192.0.2.9", &["10.0.0.1"]), "192.0.2.9");
        assert_eq!(client("", "10.0.0.1", &["192.0.2.1"]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", "10.0.0.2", &["192.0.2.1"]), "10.0.0.2");
    }

    #[test]
    fn what_is_no_network_is_named() {
        for text in ["10.0.0.0/33", "proxy.example.com", "10.0.0.0/8,*"] {
            assert!(text.parse::<TrustedProxies>().is_err(), "{text}");
        }
        assert_eq!("10.0.0.0/8,*".parse::<TrustedProxies>().unwrap_err().0, "*");
    }

    /// A header line as anybody may send it.
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
        fn whoever_is_no_proxy_changes_nothing(
            connection: IpAddr, lines in proptest::collection::vec(line(), 0..4)
        ) {
            let proxies: TrustedProxies = "127.0.0.0/8,::1".parse().unwrap();
            let connection = connection.to_canonical();
            prop_assume!(!proxies.contains(connection));
            prop_assert_eq!(proxies.client(connection, &headers(&lines)), connection);
        }

        #[test]
        fn whatever_a_client_sends_is_left_of_its_own_address(
            client: IpAddr, lines in proptest::collection::vec(line(), 0..4)
        ) {
            let proxies: TrustedProxies = "127.0.0.0/8".parse().unwrap();
            let client = client.to_canonical();
            prop_assume!(!proxies.contains(client));
            let mut forged = headers(&lines);
            // As a proxy does that appends to what came.
            forged.append(FORWARDED_FOR, HeaderValue::from_str(&client.to_string()).unwrap());
            prop_assert_eq!(proxies.client("127.0.0.1".parse().unwrap(), &forged), client);
        }
    }
}
