//! Response headers: the allow-list for responses of the API server. Pure.
//!
//! A response may come from a program behind `/proxy/`, and a browser attributes it to the broker:
//! `Set-Cookie`, `Clear-Site-Data` or `Strict-Transport-Security` would act on the broker's origin.
//! So only the headers listed here pass. This applies to every client and every path, because the
//! gateway cannot tell for sure who will interpret a response.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::gateway::request::headers::connection_options;

/// Base URL for resolving a `Location`; it is never sent.
const BASE: &str = "http://gateway.invalid";

/// Whether a header is one that the API server itself sends, or describes the body.
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

/// Whether a header belongs to an upgrade: the handshake of WebSocket (RFC 6455) or of SPDY, which
/// names its subprotocols also in a response that refuses the upgrade.
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

/// Removes all headers that are not allowed. `gateway_prefix` is the path prefix of the cluster,
/// for example `/clusters/internal-cluster`, and `path` the request path below it.
///
/// A response of the API server itself passes without an allocation, except for a `Connection`
/// header.
pub(in crate::gateway) fn filter(headers: &mut HeaderMap, gateway_prefix: &str, path: &str) {
    let listed: Vec<HeaderName> = if headers.contains_key(header::CONNECTION) {
        connection_options(headers).filter_map(|name| name.parse().ok()).collect()
    } else {
        Vec::new()
    };
    let is_removed =
        |name: &HeaderName| !(is_allowed(name) || is_of_upgrade(name)) || listed.contains(name);
    if headers.keys().any(is_removed) {
        let removed: Vec<HeaderName> =
            headers.keys().filter(|name| is_removed(name)).cloned().collect();
        for name in removed {
            headers.remove(name);
        }
    }
    if let Some(value) = headers.remove(header::LOCATION)
        && let Some(rewritten) = location(&value, gateway_prefix, path)
    {
        headers.insert(header::LOCATION, rewritten);
    }
}

/// Rewrites a `Location` to stay below the gateway. The API server does not know the gateway's path
/// prefix, so it is added here; without it a browser would follow to the broker's own pages. The
/// result is `None` for other hosts, because a program could send a browser to another site in the
/// broker's name.
fn location(value: &HeaderValue, gateway_prefix: &str, path: &str) -> Option<HeaderValue> {
    let base = url::Url::parse(BASE).ok()?.join(path).ok()?;
    let target = base.join(value.to_str().ok()?).ok()?;
    if target.origin() != base.origin() || !target.username().is_empty() {
        return None;
    }
    let query = target.query().map(|query| format!("?{query}")).unwrap_or_default();
    HeaderValue::try_from(format!("{gateway_prefix}{}{query}", target.path())).ok()
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
    fn a_proxied_program_cannot_act_on_the_brokers_origin() {
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
