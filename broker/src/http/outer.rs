//! The outer HTTP stack. Every request of API, pages, issuer and gateway passes it in this order:
//! request id and client address, CORS, the inner service, headers, metrics, access log.

use std::{net::IpAddr, sync::Arc, time::Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use tenant_shared::{
    BROKER_VERSION_HEADER, GATEWAY_PATH, MIN_PLUGIN_VERSION, MIN_PLUGIN_VERSION_HEADER,
};
use tracing::Instrument as _;

use super::{
    API_PATH, ApiError, Body, ErrorFormat, TrustedProxies,
    access_log::{AccessLogLine, Details},
    body,
    cors::{self, CorsDecision, CorsPolicy},
    error_format::is_model_services,
};
use crate::{
    base::{
        clock::Clock,
        request_context::{Fields, REQUEST, RequestContext, RequestInfo},
        telemetry::Metrics,
    },
    identity::Origins,
};

/// Length to which a `User-Agent` is truncated, in characters.
const MAX_USER_AGENT_CHARS: usize = 200;
/// Length to which a path is truncated, in characters, because a stream keeps it as long as it is
/// open.
const MAX_PATH_CHARS: usize = 300;
/// Response header with the request id.
pub const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// RFC 6797; a year, which the preload lists of browsers require.
const HSTS: HeaderValue = HeaderValue::from_static("max-age=31536000");
/// Status in log lines and metrics of a request whose client disconnected before the response.
const NO_RESPONSE: u16 = 0;
/// No response but a page, which sets a policy of its own, may be rendered as a page.
const CSP: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");

/// The outer stack. Clones share everything.
#[derive(Clone, Debug)]
pub struct OuterStack {
    /// Source of request ids.
    pub clock: Clock,
    /// Counts requests and their duration.
    pub metrics: Metrics,
    /// Whether people reach the broker over HTTPS; then responses have HSTS.
    pub https: bool,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub proxies: TrustedProxies,
    /// Origins whose pages may use API and gateway.
    pub origins: Origins,
    /// Header with the token of callers of model services, which pages may set.
    pub token_header: Option<HeaderName>,
}

impl OuterStack {
    /// Handles one request of a connection from this address with the inner service.
    pub async fn handle<F: Future<Output = Response<Body>>>(
        &self,
        request: Request<Incoming>,
        remote: IpAddr,
        inner: impl FnOnce(Request<Incoming>, Arc<RequestInfo>) -> F,
    ) -> Response<Body> {
        let info = Arc::new(self.info(&request, remote));
        let policy = cors_policy(request.uri().path());
        let decision = policy.map_or(CorsDecision::Handle(None), |policy| {
            let more = self.token_header.as_ref().filter(|_| is_model_services(&info.path));
            policy.decide(&info.method, request.headers(), &self.origins, more)
        });
        let span = tracing::debug_span!(
            "request",
            request_id = info.id,
            method = info.method.as_str(),
            path = info.path
        );
        let (mut response, authenticated, fields) = REQUEST
            .scope(RequestContext::new(Arc::clone(&info)), async {
                let mut unanswered = UnansweredRequest { metrics: Some(&self.metrics) };
                let response = match decision {
                    CorsDecision::Handle(origin) => {
                        let mut response = inner(request, Arc::clone(&info)).instrument(span).await;
                        if let (Some(policy), Some(origin)) = (policy, origin) {
                            policy.expose(response.headers_mut(), origin);
                        }
                        response
                    }
                    CorsDecision::Preflight(headers) => preflight(*headers),
                    CorsDecision::Refuse(error) => refusal(&info.path, error),
                };
                unanswered.metrics = None;
                REQUEST
                    .with(|context| (response, context.is_authenticated(), context.drain_fields()))
            })
            .await;
        self.set_headers(&info, response.headers_mut());
        if authenticated && is_api(&info.path) {
            set_versions(response.headers_mut());
        }
        record_request(&self.metrics, &info, response.status().as_u16(), fields.as_ref());
        response
    }

    fn info(&self, request: &Request<Incoming>, remote: IpAddr) -> RequestInfo {
        RequestInfo {
            // Never an id of the client: it becomes the Audit-ID of calls to the cluster.
            id: self.clock.random_id().to_string(),
            address: Some(self.proxies.client(remote, request.headers())),
            user_agent: user_agent(request.headers()),
            method: request.method().clone(),
            path: truncated(request.uri().path(), MAX_PATH_CHARS).to_owned(),
            started_at: Instant::now(),
        }
    }

    fn set_headers(&self, info: &RequestInfo, headers: &mut HeaderMap) {
        if let Ok(id) = HeaderValue::from_str(&info.id) {
            headers.insert(REQUEST_ID_HEADER, id);
        }
        if self.https {
            headers.insert(header::STRICT_TRANSPORT_SECURITY, HSTS);
        }
        // The gateway forwards the API server's headers, and sets its own for browsers.
        if !info.path.starts_with(GATEWAY_PATH) {
            headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(CSP);
            // Most responses are secret or personal; the few that may be cached say so themselves.
            headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        }
    }
}

/// The request of the current context until it has a response. hyper drops its future if the client
/// disconnects before that; then it is counted, and its access-log line is written, with the status 0.
struct UnansweredRequest<'a> {
    /// `None` once there is a response.
    metrics: Option<&'a Metrics>,
}

impl Drop for UnansweredRequest<'_> {
    fn drop(&mut self) {
        let Some(metrics) = self.metrics else { return };
        // tokio drops a future within its task-local values.
        let _ = REQUEST.try_with(|context| {
            let fields = context.drain_fields();
            record_request(metrics, &context.info, NO_RESPONSE, fields.as_ref());
        });
    }
}

/// Counts a request, and writes its access-log line unless the handler does so, that is, without fields.
fn record_request(metrics: &Metrics, info: &RequestInfo, status: u16, fields: Option<&Fields>) {
    let seconds = info.started_at.elapsed().as_secs_f64();
    metrics.request(&info.method, &info.path, status, seconds);
    if let Some(fields) = fields {
        let details = Details::Handled(fields);
        AccessLogLine { message: "request", request: info, status, details }.write();
    }
}

/// Pages and endpoints of the issuer answer the broker's own pages and programs only, so they have
/// no CORS policy.
fn cors_policy(path: &str) -> Option<&'static CorsPolicy> {
    if path.starts_with(GATEWAY_PATH) {
        Some(&cors::GATEWAY)
    } else if is_api(path) || is_model_services(path) {
        Some(&cors::API)
    } else {
        None
    }
}

/// Whether a path belongs to the HTTP API.
fn is_api(path: &str) -> bool {
    path.strip_prefix(API_PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Says which versions of broker and plugin work together.
fn set_versions(headers: &mut HeaderMap) {
    headers.insert(BROKER_VERSION_HEADER, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    headers.insert(MIN_PLUGIN_VERSION_HEADER, HeaderValue::from_static(MIN_PLUGIN_VERSION));
}

fn preflight(headers: HeaderMap) -> Response<Body> {
    let mut response = Response::new(body::full(Bytes::new()));
    *response.status_mut() = cors::PREFLIGHT_STATUS;
    *response.headers_mut() = headers;
    response
}

fn refusal(path: &str, error: ApiError) -> Response<Body> {
    ErrorFormat::of_path(path).response(error).into()
}

/// The `User-Agent` without control characters, truncated.
fn user_agent(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(header::USER_AGENT)?.to_str().ok()?;
    // The only control character that `to_str` accepts is the tab.
    Some(truncated(text, MAX_USER_AGENT_CHARS).replace('\t', ""))
}

/// The first characters of a text.
fn truncated(text: &str, max_chars: usize) -> &str {
    if text.len() <= max_chars {
        return text;
    }
    text.char_indices().nth(max_chars).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_clients_are_truncated_and_have_no_tabs() {
        for (text, expected) in [("", ""), ("ab", "ab"), ("abc", "ab"), ("äöü", "äö"), ("äö", "äö")]
        {
            assert_eq!(truncated(text, 2), expected);
        }
        let agent = |text: &str| {
            let text = HeaderValue::from_bytes(text.as_bytes()).unwrap();
            user_agent(&HeaderMap::from_iter([(header::USER_AGENT, text)]))
        };
        assert_eq!(agent("kubectl\t1.36").as_deref(), Some("kubectl1.36"));
        assert_eq!(agent(&"x".repeat(300)).unwrap().len(), MAX_USER_AGENT_CHARS);
        assert_eq!(agent("ä"), None);
    }
}
