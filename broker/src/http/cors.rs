//! CORS: lets pages of the trusted origins call the broker and read its responses (Fetch Standard,
//! "CORS protocol").
//!
//! [`Origins::check`] decides whether a page may *act* with a cookie, with the same list, because
//! browsers send a preflight only before some requests.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use tenant_shared::Code;

use super::ApiError;
use crate::identity::Origins;

/// How long a browser may cache a preflight response, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// The part of CORS that depends on the path.
#[derive(Debug)]
pub(super) struct CorsPolicy {
    /// Methods that pages may use.
    methods: &'static [&'static str],
    /// Request headers that pages may set, in lower case.
    request_headers: &'static [&'static str],
    /// Response headers that pages may read.
    exposed: HeaderValue,
    /// Whether a request from an origin that is not trusted is refused. Otherwise it is handled, and
    /// the page cannot read the response.
    refuses_foreign: bool,
}

/// The policy of the HTTP API.
pub(super) static API: CorsPolicy = CorsPolicy {
    methods: &["GET", "POST", "PUT", "DELETE"],
    request_headers: &["content-type", "authorization"],
    exposed: HeaderValue::from_static("x-request-id, retry-after, content-disposition"),
    refuses_foreign: true,
};

/// The policy of the gateway.
pub(super) static GATEWAY: CorsPolicy = CorsPolicy {
    methods: &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
    request_headers: &["accept", "authorization", "content-type"],
    exposed: HeaderValue::from_static("x-request-id, audit-id, retry-after, warning"),
    refuses_foreign: false,
};

/// Decision of CORS on a request.
#[derive(Debug)]
pub(super) enum CorsDecision {
    /// The request is handled. Pages of the origin, if there is one, may read the response.
    Handle(Option<HeaderValue>),
    /// The request is a preflight, which is answered with these headers and no body.
    Preflight(Box<HeaderMap>),
    /// The request is refused.
    Refuse(ApiError),
}

impl CorsPolicy {
    /// Decides on a request.
    ///
    /// Pages may set the header `more` besides those of the policy.
    pub(super) fn decide(
        &self,
        method: &Method,
        headers: &HeaderMap,
        origins: &Origins,
        more: Option<&HeaderName>,
    ) -> CorsDecision {
        let Some(origin) = headers.get(header::ORIGIN) else { return CorsDecision::Handle(None) };
        let trusted = origin.to_str().is_ok_and(|origin| origins.contains(origin));
        let origin = trusted.then(|| origin.clone());
        let requested = headers.get(header::ACCESS_CONTROL_REQUEST_METHOD);
        if let (&Method::OPTIONS, Some(requested)) = (method, requested) {
            return self.preflight(origin, requested, headers, more);
        }
        match origin {
            None if self.refuses_foreign => CorsDecision::Refuse(foreign_origin()),
            origin => CorsDecision::Handle(origin),
        }
    }

    fn preflight(
        &self,
        origin: Option<HeaderValue>,
        method: &HeaderValue,
        headers: &HeaderMap,
        more: Option<&HeaderName>,
    ) -> CorsDecision {
        let more = more.map(HeaderName::as_str).filter(|it| !self.request_headers.contains(it));
        let names: Vec<&str> = self.request_headers.iter().copied().chain(more).collect();
        let permitted = self.methods.iter().any(|known| method == known)
            && requested_headers(headers).all(|name| names.contains(&name.as_str()));
        if self.refuses_foreign && !(permitted && origin.is_some()) {
            return CorsDecision::Refuse(foreign_origin());
        }
        let mut response = HeaderMap::new();
        if let Some(origin) = origin {
            set_allowed_origin(&mut response, origin);
            let list = |items: &[&str]| HeaderValue::from_str(&items.join(", "));
            if let (Ok(methods), Ok(headers)) = (list(self.methods), list(&names)) {
                response.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
                response.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, headers);
            }
            response.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        }
        response.insert(header::VARY, HeaderValue::from_static("Origin"));
        CorsDecision::Preflight(Box::new(response))
    }

    /// Lets pages of this origin read the response with these headers.
    pub(super) fn expose(&self, response: &mut HeaderMap, origin: HeaderValue) {
        set_allowed_origin(response, origin);
        response.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, self.exposed.clone());
        response.append(header::VARY, HeaderValue::from_static("Origin"));
    }
}

/// Names of the headers that a page wants to set, in lower case.
fn requested_headers(headers: &HeaderMap) -> impl Iterator<Item = String> {
    headers
        .get_all(header::ACCESS_CONTROL_REQUEST_HEADERS)
        .iter()
        .flat_map(|value| value.to_str().unwrap_or("?").split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !name.is_empty())
}

fn set_allowed_origin(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
}

fn foreign_origin() -> ApiError {
    let text = "the request came from a page of an origin that is not listed in \
                `frontends.origins`, or has a method or header that frontends may not use";
    ApiError::new(Code::ForeignOrigin, text)
}

/// The status of the response to a preflight.
pub(super) const PREFLIGHT_STATUS: StatusCode = StatusCode::OK;

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    fn origins() -> Origins {
        let broker = Url::parse("https://broker.example").unwrap();
        Origins::new(&broker, vec!["https://app.example".to_owned()])
    }

    fn headers(origin: &str, method: &str, names: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ORIGIN, origin.parse().unwrap());
        if !method.is_empty() {
            headers.insert(header::ACCESS_CONTROL_REQUEST_METHOD, method.parse().unwrap());
            headers.insert(header::ACCESS_CONTROL_REQUEST_HEADERS, names.parse().unwrap());
        }
        headers
    }

    #[test]
    fn only_listed_origins_are_allowed() {
        for (origin, allowed) in [
            ("https://app.example", true),
            ("https://broker.example", true),
            ("https://app.example.evil", false),
            ("null", false),
        ] {
            let preflight = headers(origin, "PATCH", "");
            let CorsDecision::Preflight(response) =
                GATEWAY.decide(&Method::OPTIONS, &preflight, &origins(), None)
            else {
                panic!("no preflight");
            };
            let allow_origin = response.get(header::ACCESS_CONTROL_ALLOW_ORIGIN);
            assert_eq!(allow_origin.is_some(), allowed, "{origin}");
            assert_eq!(response[header::VARY], "Origin");
            let simple = API.decide(&Method::GET, &headers(origin, "", ""), &origins(), None);
            assert_eq!(matches!(simple, CorsDecision::Handle(Some(_))), allowed, "{origin}");
            assert_eq!(matches!(simple, CorsDecision::Refuse(_)), !allowed, "{origin}");
        }
    }

    #[test]
    fn the_api_permits_its_methods_and_headers_only() {
        for (method, names, permitted) in [
            ("POST", "Content-Type, Authorization", true),
            ("DELETE", "", true),
            ("PUT", "", true),
            ("PATCH", "", false),
            ("POST", "x-other", false),
        ] {
            let preflight = headers("https://app.example", method, names);
            let decision = API.decide(&Method::OPTIONS, &preflight, &origins(), None);
            assert_eq!(matches!(decision, CorsDecision::Preflight(_)), permitted, "{method}");
        }
        let preflight = headers("https://app.example", "POST", "x-other");
        let more = HeaderName::from_static("x-other");
        let decision = API.decide(&Method::OPTIONS, &preflight, &origins(), Some(&more));
        let CorsDecision::Preflight(response) = decision else { panic!("no preflight") };
        let allowed = response[header::ACCESS_CONTROL_ALLOW_HEADERS].to_str().unwrap();
        assert_eq!(allowed, "content-type, authorization, x-other");
        let plain = API.decide(&Method::OPTIONS, &HeaderMap::new(), &origins(), None);
        assert!(matches!(plain, CorsDecision::Handle(None)), "no page sent it");
    }
}
