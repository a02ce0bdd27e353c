//! Validation of the request head (request smuggling): the checks that hyper leaves to the server,
//! for all paths and before the request is read.
//!
//! Go's `net/http`, and so the API server, refuses the same requests: a request that two servers
//! read differently must not pass one and reach the other.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};

/// Limit of path, query and headers together, in bytes as sent in HTTP/1.1.
pub(crate) const MAX_BYTES: usize = 64 * 1024;
/// Methods that are supported by at least one path.
const ALLOW: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// The reason why a request head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadError {
    /// The head is longer than [`MAX_BYTES`].
    TooLong,
    /// The method is `CONNECT` or `TRACE`.
    Method,
    /// HTTP/1.1 without `Host` (RFC 9112 section 3.2).
    NoHost,
    /// More than one `Host`, or a malformed one.
    BadHost,
    /// A `Transfer-Encoding` other than a single `chunked` (RFC 9112 section 6.1).
    TransferEncoding,
    /// An `Expect` other than `100-continue` (RFC 9110 section 10.1.1).
    Expect,
}

impl HeadError {
    /// The first error in this request's head, if there is any.
    pub(crate) fn check<B>(request: &Request<B>) -> Option<Self> {
        let headers = request.headers();
        // hyper stops reading at about this size, but accepts a longer head that arrives in one
        // read.
        if size(request) > MAX_BYTES {
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
                let kib = MAX_BYTES / 1024;
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

    /// The error response. It closes the connection, because the bytes after the head may not be
    /// the body. HTTP/2 has no `Connection` header; there it is ignored.
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

/// Whether a header is absent, or present once with this value (case-insensitive).
fn is_only(headers: &HeaderMap, name: &header::HeaderName, value: &str) -> bool {
    let mut sent = headers.get_all(name).iter();
    match (sent.next(), sent.next()) {
        (None, _) => true,
        (Some(sent), None) => sent.as_bytes().eq_ignore_ascii_case(value.as_bytes()),
        (Some(_), Some(_)) => false,
    }
}

/// Whether a byte is allowed in `Host` (RFC 3986 section 3.2); the same set as Go's
/// `httpguts.ValidHostHeader`.
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(&byte)
}

/// Size of path, query and headers in HTTP/1.1, in bytes.
fn size<B>(request: &Request<B>) -> usize {
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
        HeadError::check(&request.body(()).unwrap())
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
