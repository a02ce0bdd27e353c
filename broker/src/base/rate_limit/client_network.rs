//! The client that a rate limit counts for: an address or an IPv6 network.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
};

use crate::base::request_context;

/// A client for limits by address: an IPv4 address, or the /64 network of an IPv6 address, because
/// one IPv6 subscriber has a whole /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientNetwork {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// The upper 64 bits of an IPv6 address.
    V6([u16; 4]),
    /// The address is unknown, outside of a request.
    Unknown,
}

impl ClientNetwork {
    /// The client at this address.
    pub fn from_address(address: Option<IpAddr>) -> Self {
        match address.map(|address| address.to_canonical()) {
            Some(IpAddr::V4(address)) => Self::V4(address),
            Some(IpAddr::V6(address)) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
            None => Self::Unknown,
        }
    }

    /// The client of the current request.
    pub fn current() -> Self {
        Self::from_address(request_context::request_address())
    }
}

/// The text form, which is the subject of a row of `throttles`.
impl fmt::Display for ClientNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(address) => write!(f, "{address}"),
            Self::V6(network) => {
                network.iter().try_for_each(|group| write!(f, "{group:x}:"))?;
                f.write_str(":/64")
            }
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_subscriber_is_one_client() {
        let of = |text: &str| ClientNetwork::from_address(Some(text.parse().unwrap()));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8:1:2::1").to_string(), "2001:db8:1:2::/64");
        assert_eq!(of("192.0.2.1").to_string(), "192.0.2.1");
    }
}
