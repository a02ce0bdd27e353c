//! URLs of models, which their owners write. Hosts are compared as they stand in the text, because the
//! normalization of an international name (UTS #46) takes microseconds, and a list has 10,000 models.

use url::Url;

/// Maximum length of a host, in bytes (RFC 1035 section 2.3.4, without the final dot).
const MAX_HOST_BYTES: usize = 253;
/// Maximum length of an authority without a user, in bytes: host and `:65535`.
const MAX_AUTHORITY_BYTES: usize = MAX_HOST_BYTES + 6;
/// Domain of addresses inside of the cluster.
const CLUSTER_LOCAL: &str = ".svc.cluster.local";

/// The authority of a URL (RFC 3986 section 3.2); `None` if there is none.
fn authority(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let is_scheme_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let is_scheme = !scheme.is_empty() && scheme.bytes().all(is_scheme_byte);
    let authority = rest.split(['/', '?', '#']).next()?;
    (is_scheme && !authority.is_empty()).then_some(authority)
}

/// Host of a URL, without a final dot.
fn host(url: &str) -> Option<&str> {
    let authority = authority(url)?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    // The last part of an IPv6 address has a bracket in it.
    let without_port = host.rsplit_once(':').filter(|(_, port)| {
        let mut bytes = port.bytes();
        bytes.all(|byte| byte.is_ascii_digit())
    });
    let host = without_port.map_or(host, |(host, _)| host).trim_end_matches('.');
    (!host.is_empty()).then_some(host)
}

/// Whether two URLs have the same host.
pub(super) fn has_same_host(one: &str, other: &str) -> bool {
    match (host(one), host(other)) {
        (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
        _ => false,
    }
}

/// Whether the host of a URL is one inside of the cluster.
pub(super) fn is_cluster_local(url: &str) -> bool {
    let domain = host(url).and_then(|host| {
        let start = host.len().checked_sub(CLUSTER_LOCAL.len())?;
        host.get(start..)
    });
    domain.is_some_and(|domain| domain.eq_ignore_ascii_case(CLUSTER_LOCAL))
}

/// Parses a URL whose host has at most [`MAX_HOST_BYTES`]; `None` for any other text. The length is
/// checked before, because the time for a label grows with the square of its length.
pub(super) fn parse(url: &str) -> Option<Url> {
    if authority(url)?.len() > MAX_AUTHORITY_BYTES {
        return None;
    }
    let url = Url::parse(url).ok()?;
    (url.host_str()?.len() <= MAX_HOST_BYTES).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_without_port_user_and_final_dot() {
        for (one, other, expected) in [
            ("http://m.ns", "https://M.ns./", true),
            ("http://m.ns:80/a", "http://u:p@m.ns?q", true),
            ("http://[::1]", "http://[::1]:80", true),
            ("http://[::1]", "http://[::2]", false),
            ("http://m.ns", "http://m.ns.example.com", false),
            ("http://", "http:///", false),
            ("no url", "no url", false),
        ] {
            assert_eq!(has_same_host(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn a_host_of_the_cluster_ends_with_its_domain() {
        for (url, expected) in [
            ("http://m.ns.svc.cluster.local", true),
            ("https://m.ns.SVC.cluster.local.:8080/v1", true),
            ("http://m.ns.svc.cluster.local.example.com", false),
            ("http://m/.svc.cluster.local", false),
            ("m.ns.svc.cluster.local", false),
            ("http://éé.svc.cluster.local", true),
            ("http://ésvc.cluster.local", false),
            ("", false),
        ] {
            assert_eq!(is_cluster_local(url), expected, "{url}");
        }
    }

    #[test]
    fn only_a_url_with_a_short_host_is_parsed() {
        let longest = "a".repeat(MAX_HOST_BYTES);
        for (url, expected) in [
            ("http://m.ns/a", true),
            (&*format!("http://{longest}:80/{longest}{longest}"), true),
            (&*format!("http://{longest}a"), false),
            (&*format!("http://{longest}\\@{longest}"), false),
            (&*format!("http:{longest}a://m"), false),
            (&*format!("http:///{longest}a"), false),
            (&*format!("http:/\t/{longest}a"), false),
            ("http:m.ns", false),
        ] {
            assert_eq!(parse(url).is_some(), expected, "{url}");
        }
    }
}
