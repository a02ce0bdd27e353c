//! What is taken off a request before it goes to the API server, and off the answer. Pure.

use super::cors::is_of_cors;
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Headers that concern one connection only (RFC 9110 section 7.6.1), beside what `Connection`
/// lists.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
];

/// Headers that say who somebody is, where they come from, or that are the broker's business.
const OURS: [HeaderName; 9] = [
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

/// The subprotocol in which a browser may send the API server a token; the gateway's session is
/// the cookie, and a second identity must not go along.
const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Why a request with these headers is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HeaderError {
    /// The client asks to act as somebody else.
    #[error(
        "impersonation (Impersonate-* headers, kubectl's --as) is not possible through the gateway"
    )]
    Impersonation,
    /// More than one `Host` or `Authorization`.
    #[error("the request has two headers {0}")]
    Twice(&'static str),
}

/// Refuses what must not be forwarded, not even cleaned.
///
/// # Errors
/// See [`HeaderError`].
pub(super) fn check(headers: &HeaderMap) -> Result<(), HeaderError> {
    if headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Err(HeaderError::Impersonation);
    }
    for name in [header::HOST, header::AUTHORIZATION] {
        if headers.get_all(&name).iter().nth(1).is_some() {
            let shown = if name == header::HOST { "Host" } else { "Authorization" };
            return Err(HeaderError::Twice(shown));
        }
    }
    Ok(())
}

/// The protocol that a request asks to go on in (`websocket`, `SPDY/3.1`), RFC 9110 section 7.8.
pub(super) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let wants = listed(headers).any(|name| name.eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|_| wants).cloned()
}

/// What `Connection` lists.
fn listed(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = listed(headers).filter_map(|name| name.parse().ok()).collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Makes a client's headers those of a request to the API server.
pub(super) fn to_upstream(headers: &mut HeaderMap) {
    remove_hop_by_hop(headers);
    for name in &OURS {
        headers.remove(name);
    }
    let foreign: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            ["x-remote-", "x-forwarded-", "impersonate-"]
                .iter()
                .any(|prefix| name.as_str().starts_with(prefix))
        })
        .cloned()
        .collect();
    for name in foreign {
        headers.remove(name);
    }
    drop_bearer_protocol(headers);
}

fn drop_bearer_protocol(headers: &mut HeaderMap) {
    let name = header::SEC_WEBSOCKET_PROTOCOL;
    let carries =
        |value: &HeaderValue| value.to_str().is_ok_and(|text| text.contains(BEARER_PROTOCOL));
    if !headers.get_all(&name).iter().any(carries) {
        return;
    }
    let kept: Vec<String> = headers
        .get_all(&name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|protocol| !protocol.starts_with(BEARER_PROTOCOL))
        .map(str::to_owned)
        .collect();
    headers.remove(&name);
    if let Ok(value) = HeaderValue::from_str(&kept.join(", "))
        && !kept.is_empty()
    {
        headers.insert(name, value);
    }
}

/// Makes the API server's headers those of the answer.
pub(super) fn to_client(headers: &mut HeaderMap) {
    remove_hop_by_hop(headers);
    let foreign: Vec<HeaderName> =
        headers.keys().filter(|name| is_of_cors(name)).cloned().collect();
    for name in foreign {
        headers.remove(name);
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
    fn nobody_acts_as_somebody_else() {
        for name in
            ["Impersonate-User", "impersonate-group", "IMPERSONATE-Extra-scopes", "impersonate-uid"]
        {
            assert_eq!(check(&headers(&[(name, "x")])), Err(HeaderError::Impersonation), "{name}");
        }
        for name in ["Host", "Authorization"] {
            assert_eq!(check(&headers(&[(name, "a"), (name, "b")])), Err(HeaderError::Twice(name)));
        }
        check(&headers(&[("host", "a"), ("authorization", "Bearer x"), ("accept", "a")])).unwrap();
    }

    #[test]
    fn what_says_who_somebody_is_does_not_go_along() {
        let mut given = headers(&[
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
        to_upstream(&mut given);
        assert_eq!(names(&given), ["accept", "user-agent", "x-stream-protocol-version"]);
    }

    #[test]
    fn what_connection_lists_stays_here() {
        let mut given = headers(&[
            ("Connection", "keep-alive, X-Secret, Authorization"),
            ("Connection", "Impersonate-User, upgrade"),
            ("Upgrade", "websocket"),
            ("X-Secret", "x"),
            ("TE", "trailers"),
            ("Keep-Alive", "timeout=5"),
            ("Trailer", "X-Sum"),
            ("Accept", "a"),
        ]);
        assert_eq!(upgrade(&given).unwrap(), "websocket");
        to_upstream(&mut given);
        assert_eq!(names(&given), ["accept", "trailer"]);
        assert_eq!(upgrade(&headers(&[("Upgrade", "h2c")])), None, "not asked for");
    }

    #[test]
    fn a_token_in_a_subprotocol_stays_here() {
        let mut given = headers(&[(
            "Sec-WebSocket-Protocol",
            "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9rZW4, v4.channel.k8s.io",
        )]);
        to_upstream(&mut given);
        assert_eq!(given["sec-websocket-protocol"], "v5.channel.k8s.io, v4.channel.k8s.io");
    }
}
