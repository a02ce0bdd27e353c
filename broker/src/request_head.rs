//! Checks of a request's head that hyper leaves to the server, for all paths and before anything else is
//! read. What is refused here is refused by Go's `net/http` too, and so by the API server: a request
//! that two servers read differently must not pass one and reach the other.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};

/// Bytes of path, query and headers at most, as they are sent in HTTP/1.1.
pub(crate) const MOST_BYTES: usize = 64 * 1024;
/// Methods that some path takes.
const ALLOW: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// Why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadError {
    /// It is longer than [`MOST_BYTES`].
    TooLong,
    /// `CONNECT` or `TRACE`.
    Method,
    /// HTTP/1.1 without `Host` (RFC 9112 section 3.2).
    NoHost,
    /// More than one `Host`, or one that is none.
    BadHost,
    /// Anything but `chunked`, once (RFC 9112 section 6.1).
    TransferEncoding,
    /// Anything but `100-continue` (RFC 9110 section 10.1.1).
    Expect,
}

impl HeadError {
    /// What is wrong with this request's head.
    pub(crate) fn of<B>(request: &Request<B>) -> Option<Self> {
        let headers = request.headers();
        // hyper stops reading at about that size, but takes a longer head that came in one piece.
        if bytes(request) > MOST_BYTES {
            return Some(Self::TooLong);
        }
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return Some(Self::Method);
        }
        let mut hosts = headers.get_all(header::HOST).iter();
        match (hosts.next(), hosts.next()) {
            (None, _) if request.version() == Version::HTTP_11 => return Some(Self::NoHost),
            (None, _) => {}
            (Some(host), None) if host.as_bytes().iter().copied().all(is_host_byte) => {}
            (Some(_), _) => return Some(Self::BadHost),
        }
        if !is_only(headers, &header::TRANSFER_ENCODING, "chunked") {
            return Some(Self::TransferEncoding);
        }
        if !is_only(headers, &header::EXPECT, "100-continue") {
            return Some(Self::Expect);
        }
        None
    }

    fn status(self) -> StatusCode {
        match self {
            Self::TooLong => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoHost | Self::BadHost => StatusCode::BAD_REQUEST,
            Self::TransferEncoding => StatusCode::NOT_IMPLEMENTED,
            Self::Expect => StatusCode::EXPECTATION_FAILED,
        }
    }

    fn text(self) -> Cow<'static, str> {
        match self {
            Self::TooLong => {
                let kib = MOST_BYTES / 1024;
                format!("the head of the request is longer than {kib} KiB; send fewer or shorter headers\n")
                    .into()
            }
            Self::Method => "the methods CONNECT and TRACE are not supported\n".into(),
            Self::NoHost => "the header Host is missing; HTTP/1.1 requires it\n".into(),
            Self::BadHost => {
                "the header Host is malformed or sent twice; send one host and port\n".into()
            }
            Self::TransferEncoding => {
                "the transfer encoding is not supported; send chunked, once, or Content-Length\n"
                    .into()
            }
            Self::Expect => {
                "the expectation is not supported; send Expect: 100-continue or none\n".into()
            }
        }
    }

    /// The refusal. It ends the connection, because what follows the head cannot be trusted to be the
    /// body; HTTP/2 has no such header, and ignores it.
    pub(crate) fn response(self) -> Response<Bytes> {
        let mut response = Response::new(match self.text() {
            Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
            Cow::Owned(text) => Bytes::from(text),
        });
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if self == Self::Method {
            headers.insert(header::ALLOW, ALLOW);
        }
        response
    }
}

/// Whether a header is absent, or there once with this value in any case.
fn is_only(headers: &HeaderMap, name: &header::HeaderName, value: &str) -> bool {
    let mut sent = headers.get_all(name).iter();
    match (sent.next(), sent.next()) {
        (None, _) => true,
        (Some(sent), None) => sent.as_bytes().eq_ignore_ascii_case(value.as_bytes()),
        (Some(_), Some(_)) => false,
    }
}

/// A byte of a host and port (RFC 3986 section 3.2), as Go's `httpguts.ValidHostHeader` has it.
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(&byte)
}

fn bytes<B>(request: &Request<B>) -> usize {
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let fields = request.headers().iter();
    path + fields.map(|(name, value)| name.as_str().len() + value.len() + 4).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(method: Method, headers: &[(&str, &str)]) -> Option<HeadError> {
        let mut request = Request::builder().method(method).uri("/a");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        HeadError::of(&request.body(()).unwrap())
    }

    #[test]
    fn a_head_that_two_servers_may_read_differently_is_refused() {
        let host = ("host", "broker.example:443");
        for (headers, expected) in [
            (&[host][..], None),
            (&[("host", "[::1]:443")], None),
            (&[], Some(HeadError::NoHost)),
            (&[host, host], Some(HeadError::BadHost)),
            (&[("host", "a b")], Some(HeadError::BadHost)),
            (&[("host", "user@broker")], Some(HeadError::BadHost)),
            (&[("host", "broker/clusters")], Some(HeadError::BadHost)),
            (&[host, ("transfer-encoding", "Chunked")], None),
            (&[host, ("transfer-encoding", "chunked, chunked")], Some(HeadError::TransferEncoding)),
            (&[host, ("transfer-encoding", "gzip, chunked")], Some(HeadError::TransferEncoding)),
            (
                &[host, ("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
                Some(HeadError::TransferEncoding),
            ),
            (&[host, ("expect", "100-Continue")], None),
            (&[host, ("expect", "200-ok")], Some(HeadError::Expect)),
        ] {
            assert_eq!(head(Method::GET, headers), expected, "{headers:?}");
        }
        for method in [Method::CONNECT, Method::TRACE] {
            assert_eq!(head(method, &[host]), Some(HeadError::Method));
        }
        let response = HeadError::Method.response();
        assert_eq!((response.status().as_u16(), &response.headers()["allow"]), (405, &ALLOW));
    }
}
