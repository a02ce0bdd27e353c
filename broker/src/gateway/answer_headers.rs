//! Which headers of the API server's answer go to the client. Pure.
//!
//! An answer may be that of a program behind `/proxy/`, and a browser takes it for the broker's own:
//! `Set-Cookie`, `Clear-Site-Data` or `Strict-Transport-Security` would act on the broker's origin.
//! So headers pass that are listed here, for every client and every path, because the gateway cannot
//! tell for sure who will interpret an answer.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::headers::listed;

/// Where a `Location` is resolved; it never leaves the gateway.
const BASE: &str = "http://gateway.invalid";

/// Whether a header is one that the API server itself answers with, or describes the body.
fn is_allowed(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "accept-ranges"
            | "age"
            | "allow"
            | "audit-id"
            | "cache-control"
            | "content-disposition"
            | "content-encoding"
            | "content-language"
            | "content-length"
            | "content-range"
            | "content-type"
            | "date"
            | "etag"
            | "expires"
            | "last-modified"
            | "location"
            | "retry-after"
            | "vary"
            | "warning"
            | "x-content-type-options"
            | "x-kubernetes-pf-flowschema-uid"
            | "x-kubernetes-pf-prioritylevel-uid"
    )
}

/// Whether a header belongs to an upgrade: the handshake of WebSocket (RFC 6455) or of the streams of
/// SPDY, which names its subprotocols in an answer that refuses the upgrade too.
fn is_of_upgrade(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "sec-websocket-accept"
            | "sec-websocket-extensions"
            | "sec-websocket-protocol"
            | "sec-websocket-version"
            | "x-accepted-stream-protocol-versions"
            | "x-stream-protocol-version"
    )
}

/// Removes every header that a client does not get. `gateway` is the path of the gateway, for example
/// `/clusters/internal-cluster`, and `path` that of the request below it.
///
/// An answer of the API server itself passes without an allocation, except for its `Connection`
/// header.
pub(super) fn filter(headers: &mut HeaderMap, gateway: &str, path: &str) {
    let named: Vec<HeaderName> = if headers.contains_key(header::CONNECTION) {
        listed(headers).filter_map(|name| name.parse().ok()).collect()
    } else {
        Vec::new()
    };
    let is_removed =
        |name: &HeaderName| !(is_allowed(name) || is_of_upgrade(name)) || named.contains(name);
    if headers.keys().any(is_removed) {
        let removed: Vec<HeaderName> =
            headers.keys().filter(|name| is_removed(name)).cloned().collect();
        for name in removed {
            headers.remove(name);
        }
    }
    if let Some(value) = headers.remove(header::LOCATION)
        && let Some(below) = location(&value, gateway, path)
    {
        headers.insert(header::LOCATION, below);
    }
}

/// A `Location` that stays below the gateway. The API server does not know that it is reached below
/// another path, so a path of its own gets the gateway's in front. Other hosts and paths outside of
/// the gateway give `None`: a browser would follow to the broker's own pages, or to where a program
/// sends it under the broker's name.
fn location(value: &HeaderValue, gateway: &str, path: &str) -> Option<HeaderValue> {
    let base = url::Url::parse(BASE).ok()?.join(path).ok()?;
    let target = base.join(value.to_str().ok()?).ok()?;
    if target.origin() != base.origin() || !target.username().is_empty() {
        return None;
    }
    let query = target.query().map(|query| format!("?{query}")).unwrap_or_default();
    HeaderValue::try_from(format!("{gateway}{}{query}", target.path())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filtered(pairs: &[(&str, &str)]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        filter(&mut headers, "/clusters/c", "/api/v1/namespaces/t/pods/p/proxy/a/b");
        let pairs =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        let mut pairs: Vec<String> = pairs.collect();
        pairs.sort_unstable();
        pairs
    }

    #[test]
    fn a_proxied_program_does_not_act_on_the_brokers_origin() {
        let kept = filtered(&[
            ("Set-Cookie", "__Host-tenant-session=x; Path=/; Secure"),
            ("Clear-Site-Data", "\"*\""),
            ("Strict-Transport-Security", "max-age=0"),
            ("Alt-Svc", "h3=\":443\""),
            ("Refresh", "0; url=/"),
            ("Service-Worker-Allowed", "/"),
            ("WWW-Authenticate", "Basic"),
            ("Link", "</x>; rel=preload"),
            ("Report-To", "{}"),
            ("NEL", "{}"),
            ("Access-Control-Allow-Origin", "*"),
            ("Trailer", "X-Sum"),
            ("Transfer-Encoding", "chunked"),
            ("Connection", "ETag, close"),
            ("ETag", "1"),
            ("Content-Type", "text/html"),
            ("Warning", "299 - one"),
            ("Warning", "299 - two"),
        ]);
        assert_eq!(kept, ["content-type: text/html", "warning: 299 - one", "warning: 299 - two"]);
    }

    #[test]
    fn a_redirect_stays_below_the_gateway() {
        for (sent, expected) in [
            ("/api/v1/x?a=b", Some("/clusters/c/api/v1/x?a=b")),
            ("c", Some("/clusters/c/api/v1/namespaces/t/pods/p/proxy/a/c")),
            ("../../../../../../../../../../login", Some("/clusters/c/login")),
            ("/%2e%2e/%2e%2e/login", Some("/clusters/c/login")),
            ("https://broker.example/login", None),
            ("//evil.example/", None),
            ("/\\evil.example/", None),
            ("\\\\evil.example/", None),
            ("javascript:alert(1)", None),
            ("http://gateway.invalid:80/x", Some("/clusters/c/x")),
        ] {
            let kept = filtered(&[("Location", sent)]);
            let expected: Vec<String> =
                expected.iter().map(|path| format!("location: {path}")).collect();
            assert_eq!(kept, expected, "{sent}");
        }
    }
}
