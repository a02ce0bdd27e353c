//! Request headers: the checks and filters before a request goes to the API server, and the upgrade
//! protocols. Pure.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Hop-by-hop headers (RFC 9110 section 7.6.1), in addition to those that `Connection` lists.
/// `Trailer` is one of them because the gateway drops the trailers that it announces.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
];

/// Headers that carry credentials or origins, or that the broker sets itself.
const REPLACED: [HeaderName; 9] = [
    header::AUTHORIZATION,
    header::PROXY_AUTHORIZATION,
    header::COOKIE,
    header::HOST,
    header::FORWARDED,
    header::VIA,
    header::EXPECT,
    HeaderName::from_static("audit-id"),
    HeaderName::from_static("x-real-ip"),
];

/// The WebSocket subprotocol in which a browser may send a token to the API server. The gateway
/// removes it because a request has one identity, that of its session.
const BEARER_PROTOCOL: &[u8] = b"base64url.bearer.authorization.k8s.io.";

/// A protocol that a connection may be upgraded to; the API server supports these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum UpgradeProtocol {
    /// WebSocket (RFC 6455).
    WebSocket,
    /// SPDY, which kubectl uses before 1.31 and with `KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false`.
    Spdy,
}

impl UpgradeProtocol {
    /// The protocol of an `Upgrade` header, if the gateway forwards it. Names are compared
    /// case-insensitively because the API server does so.
    pub(in crate::gateway) fn from_header(value: &HeaderValue) -> Option<Self> {
        [Self::WebSocket, Self::Spdy]
            .into_iter()
            .find(|protocol| value.as_bytes().eq_ignore_ascii_case(protocol.as_str().as_bytes()))
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::WebSocket => "websocket",
            Self::Spdy => "SPDY/3.1",
        }
    }

    /// The value of the header `Upgrade`.
    pub(in crate::gateway) fn header(self) -> HeaderValue {
        HeaderValue::from_static(self.as_str())
    }
}

/// A request with these headers is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::gateway) enum HeaderError {
    /// The client requests impersonation.
    #[error(
        "impersonation (Impersonate-* headers, kubectl's --as) is not possible through the gateway"
    )]
    Impersonation,
    /// There is more than one `Authorization` header.
    #[error("the request has more than one Authorization header; send one")]
    TwoAuthorizations,
}

/// Refuses a request that must not be forwarded, even with its headers filtered.
///
/// # Errors
/// See [`HeaderError`].
pub(in crate::gateway) fn check(headers: &HeaderMap) -> Result<(), HeaderError> {
    if headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Err(HeaderError::Impersonation);
    }
    if headers.get_all(header::AUTHORIZATION).iter().nth(1).is_some() {
        return Err(HeaderError::TwoAuthorizations);
    }
    Ok(())
}

/// The protocol that a request asks to upgrade to (RFC 9110 section 7.8). Other protocols and
/// lists of several are ignored, as a server may do, and the request is handled without an upgrade.
pub(in crate::gateway) fn requested_upgrade(headers: &HeaderMap) -> Option<UpgradeProtocol> {
    let mut values = headers.get_all(header::UPGRADE).iter();
    let protocol = UpgradeProtocol::from_header(values.next()?)?;
    let has_option = connection_options(headers).any(|name| name.eq_ignore_ascii_case("upgrade"));
    (has_option && values.next().is_none()).then_some(protocol)
}

/// The connection options that `Connection` lists (RFC 9110 section 7.6.1).
pub(in crate::gateway) fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> =
        connection_options(headers).filter_map(|name| name.parse().ok()).collect();
    for name in listed.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Filters a client's headers for the request to the API server.
pub(in crate::gateway) fn to_upstream(headers: &mut HeaderMap) {
    remove_hop_by_hop(headers);
    for name in &REPLACED {
        headers.remove(name);
    }
    let identity_headers: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            ["x-remote-", "x-forwarded-", "impersonate-"]
                .iter()
                .any(|prefix| name.as_str().starts_with(prefix))
        })
        .cloned()
        .collect();
    for name in identity_headers {
        headers.remove(name);
    }
    drop_bearer_protocol(headers);
}

/// Removes subprotocols that carry a credential or bytes other than visible ASCII. The slash is
/// allowed, because subprotocols of Kubernetes are not tokens of RFC 6455
/// (`SPDY/3.1+portforward.k8s.io`). Bytes are compared, not text, because the API server finds a
/// credential next to non-ASCII bytes too.
fn drop_bearer_protocol(headers: &mut HeaderMap) {
    let name = header::SEC_WEBSOCKET_PROTOCOL;
    let protocols = |value: &HeaderValue| {
        let items = value.as_bytes().split(|byte| *byte == b',');
        items.map(|item| item.trim_ascii().to_vec()).collect::<Vec<_>>()
    };
    let is_kept = |protocol: &[u8]| {
        protocol.iter().all(u8::is_ascii_graphic)
            && !protocol.windows(BEARER_PROTOCOL.len()).any(|part| part == BEARER_PROTOCOL)
    };
    if !headers.contains_key(&name) {
        return;
    }
    let sent: Vec<Vec<u8>> = headers.get_all(&name).iter().flat_map(protocols).collect();
    if sent.iter().all(|protocol| is_kept(protocol)) {
        return;
    }
    headers.remove(&name);
    let kept: Vec<Vec<u8>> =
        sent.into_iter().filter(|one| !one.is_empty() && is_kept(one)).collect();
    if let Ok(value) = HeaderValue::from_bytes(&kept.join(&b", "[..]))
        && !kept.is_empty()
    {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn impersonation_and_duplicate_authorization_are_refused() {
        for name in
            ["Impersonate-User", "impersonate-group", "IMPERSONATE-Extra-scopes", "impersonate-uid"]
        {
            assert_eq!(check(&headers(&[(name, "x")])), Err(HeaderError::Impersonation), "{name}");
        }
        let two = headers(&[("Authorization", "a"), ("Authorization", "b")]);
        assert_eq!(check(&two), Err(HeaderError::TwoAuthorizations));
        check(&headers(&[("host", "a"), ("authorization", "Bearer x"), ("accept", "a")])).unwrap();
    }

    #[test]
    fn identity_headers_are_not_forwarded() {
        let mut sent = headers(&[
            ("Authorization", "Bearer session"),
            ("Cookie", "__Host-tenant-session=x"),
            ("X-Remote-User", "admin"),
            ("X-Remote-Group", "system:masters"),
            ("X-Remote-Extra-Scopes", "x"),
            ("X-Forwarded-For", "10.0.0.1"),
            ("X-Forwarded-Client-Cert", "x"),
            ("Forwarded", "for=10.0.0.1"),
            ("X-Real-Ip", "10.0.0.1"),
            ("Proxy-Authorization", "Basic x"),
            ("Audit-Id", "chosen"),
            ("Host", "broker"),
            ("Accept", "application/json"),
            ("User-Agent", "kubectl"),
            ("X-Stream-Protocol-Version", "v4.channel.k8s.io"),
        ]);
        to_upstream(&mut sent);
        assert_eq!(names(&sent), ["accept", "user-agent", "x-stream-protocol-version"]);
    }

    #[test]
    fn hop_by_hop_headers_are_not_forwarded() {
        let mut sent = headers(&[
            ("Connection", "keep-alive, X-Secret, Authorization"),
            ("Connection", "Impersonate-User, upgrade"),
            ("Upgrade", "websocket"),
            ("X-Secret", "x"),
            ("TE", "trailers"),
            ("Keep-Alive", "timeout=5"),
            ("Trailer", "X-Sum"),
            ("Accept", "a"),
        ]);
        to_upstream(&mut sent);
        assert_eq!(names(&sent), ["accept"]);
    }

    #[test]
    fn a_token_in_a_subprotocol_is_not_forwarded() {
        let mut sent = headers(&[(
            "Sec-WebSocket-Protocol",
            "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9rZW4, \
             SPDY/3.1+portforward.k8s.io",
        )]);
        to_upstream(&mut sent);
        let kept = "v5.channel.k8s.io, SPDY/3.1+portforward.k8s.io";
        assert_eq!(sent["sec-websocket-protocol"], kept);
        to_upstream(&mut sent);
        assert_eq!(sent["sec-websocket-protocol"], kept);
    }

    #[test]
    fn non_ascii_bytes_do_not_hide_a_token_in_a_subprotocol() {
        let token = b"base64url.bearer.authorization.k8s.io.dG9rZW4";
        for (before, after) in [
            (&b"v4.channel.k8s.io, "[..], &b", \xff"[..]),
            (b"v4.channel.k8s.io,\xc2\xa0", b""),
            (b"v4.channel.k8s.io,\xc2\x85", b"\xff"),
            (b"v4.channel.k8s.io,\t ", b"\t"),
        ] {
            let mut sent = HeaderMap::new();
            let value = HeaderValue::from_bytes(&[before, token, after].concat()).unwrap();
            sent.insert(header::SEC_WEBSOCKET_PROTOCOL, value);
            to_upstream(&mut sent);
            assert_eq!(sent["sec-websocket-protocol"], "v4.channel.k8s.io", "{before:?} {after:?}");
        }
        let mut sent = HeaderMap::new();
        sent.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_bytes(token).unwrap());
        to_upstream(&mut sent);
        assert!(sent.is_empty());
    }

    #[test]
    fn only_websocket_and_spdy_are_upgrades() {
        use UpgradeProtocol::{Spdy, WebSocket};
        for (sent, expected) in [
            (
                &[("Connection", "keep-alive, Upgrade"), ("Upgrade", "WebSocket")][..],
                Some(WebSocket),
            ),
            (&[("Connection", "upgrade"), ("Upgrade", "SPDY/3.1")], Some(Spdy)),
            (&[("Connection", "upgrade"), ("Upgrade", "h2c")], None),
            (&[("Connection", "upgrade"), ("Upgrade", "websocket, h2c")], None),
            (&[("Connection", "upgrade"), ("Upgrade", "websocket"), ("Upgrade", "h2c")], None),
            (&[("Upgrade", "websocket")], None),
        ] {
            assert_eq!(requested_upgrade(&headers(sent)), expected, "{sent:?}");
        }
    }
}
