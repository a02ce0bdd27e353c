//! CORS: lets pages of the allowed origins read the responses of the gateway (Fetch standard, "CORS
//! protocol"). The check whether a page may *act* with a cookie is elsewhere and uses the same
//! list.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};

use crate::identity::Origins;

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
const HEADERS: HeaderValue = HeaderValue::from_static("accept, authorization, content-type");
const EXPOSED: HeaderValue = HeaderValue::from_static("audit-id, retry-after, warning");
/// How long a browser may cache a preflight response, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// The origin of a request, if it is allowed.
pub(super) fn allowed_origin<B>(request: &Request<B>, origins: &Origins) -> Option<HeaderValue> {
    let origin = request.headers().get(header::ORIGIN)?;
    origin.to_str().is_ok_and(|origin| origins.contains(origin)).then(|| origin.clone())
}

/// Whether a request is a CORS preflight.
pub(super) fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ORIGIN)
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The response to a preflight; without an allowed origin it grants nothing.
pub(super) fn preflight(origin: Option<&HeaderValue>) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        set_allow_headers(headers, origin);
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    }
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Origin"));
    response
}

/// Lets pages of this origin read a response.
pub(super) fn expose(headers: &mut HeaderMap, origin: &HeaderValue) {
    set_allow_headers(headers, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}

fn set_allow_headers(headers: &mut HeaderMap, origin: &HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    #[test]
    fn only_listed_origins_are_allowed() {
        let broker = Url::parse("https://broker.example").unwrap();
        let origins = Origins::new(&broker, vec!["https://app.example".to_owned()]);
        for (sent, allowed) in [
            ("https://app.example", true),
            ("https://broker.example", true),
            ("https://app.example.evil", false),
            ("null", false),
        ] {
            let request = Request::options("/clusters/c/api")
                .header(header::ORIGIN, sent)
                .header(header::ACCESS_CONTROL_REQUEST_METHOD, "PATCH")
                .body(())
                .unwrap();
            assert!(is_preflight(&request));
            let origin = allowed_origin(&request, &origins);
            let response = preflight(origin.as_ref());
            let allow_origin = response.headers().get(header::ACCESS_CONTROL_ALLOW_ORIGIN);
            assert_eq!(allow_origin.is_some(), allowed, "{sent}");
            assert_eq!(response.headers()[header::VARY], "Origin");
        }
        assert!(!is_preflight(&Request::options("/").body(()).unwrap()));
    }
}
