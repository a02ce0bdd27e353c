//! Requests: a summary of the client's request for log lines, and the request to the API server.

use std::net::IpAddr;

use bytes::Bytes;
use http::{
    Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header,
};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, upgrade::OnUpgrade};
use tenant_shared::{Code, GATEWAY_PATH};

use super::{
    Body,
    headers::{self, UpgradeProtocol},
    in_flight::{Download, InFlightRequest},
    path::Target,
    response_headers, tunnel,
    upstream_call::full_body,
};
use crate::{base::request_context::REQUEST, http::ApiError, identity::PresentedCredential};

/// The limit of a path in a log line, in characters.
const MAX_PATH_CHARS: usize = 300;
/// The limit of a recorded `User-Agent`, in characters.
const MAX_USER_AGENT_CHARS: usize = 200;
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The policy lets a browser display a response and nothing else. Tenants control the responses of
/// their programs behind `/proxy/`, so no script in them may run as a page of the broker.
const CSP: HeaderValue =
    HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; sandbox");

/// The `User-Agent`, without control characters and truncated.
pub(super) fn user_agent(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(header::USER_AGENT)?.to_str().ok()?;
    Some(text.chars().filter(|c| !c.is_control()).take(MAX_USER_AGENT_CHARS).collect())
}

/// Summary of a client's request for log lines.
#[derive(Debug)]
pub(super) struct RequestSummary {
    /// Id of the request, which is its `Audit-ID` at the API server.
    pub(super) id: String,
    /// IP address of the client.
    pub(super) address: Option<IpAddr>,
    /// HTTP method.
    pub(super) method: Method,
    /// Path, without the query because that may be private.
    pub(super) path: String,
}

impl RequestSummary {
    /// Summarizes a request.
    pub(super) fn new(request: &Request<Incoming>, id: &str, address: Option<IpAddr>) -> Self {
        Self {
            id: id.to_owned(),
            address,
            method: request.method().clone(),
            path: request.uri().path().chars().take(MAX_PATH_CHARS).collect(),
        }
    }

    /// Whether it is a discovery request, which reads API groups and versions but no resource.
    pub(super) fn is_discovery(&self) -> bool {
        let path = self.path.strip_prefix(GATEWAY_PATH).unwrap_or_default();
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        self.method == Method::GET
            && match segments[..] {
                ["version" | "openapi" | "api" | "apis", ..] => {
                    segments.len() <= if segments[0] == "api" { 2 } else { 3 }
                }
                _ => false,
            }
    }

    /// Logs a request that was not forwarded, or got no response from the API server.
    pub(super) fn log_refusal(&self, code: Code, status: u16, seconds: f64) {
        let notes = REQUEST.try_with(|facts| facts.notes.take()).unwrap_or_default();
        let notes: Vec<String> =
            notes.iter().map(|(field, value)| format!("{field}={value:?}")).collect();
        tracing::info!(
            request_id = self.id,
            address = self.address.map(tracing::field::display),
            method = self.method.as_str(),
            path = self.path,
            status,
            duration_ms = (seconds * 1e5).round() / 1e2,
            code = code.as_str(),
            notes = notes.join(" "),
            "request refused"
        );
    }
}

/// The request to the API server.
#[derive(Debug)]
pub(super) struct UpstreamRequest {
    /// The filtered headers.
    pub(super) headers: HeaderMap,
    upgrade: Option<UpgradeProtocol>,
    client_upgrade: Option<OnUpgrade>,
    is_browser: bool,
}

impl UpstreamRequest {
    /// Builds the request from the client's headers, which it takes.
    ///
    /// # Errors
    /// A WebSocket with a cookie has no `Origin` header.
    pub(super) fn from_client(
        client_headers: &mut HeaderMap,
        extensions: &mut Extensions,
        presented: &PresentedCredential,
        summary: &RequestSummary,
    ) -> Result<Self, ApiError> {
        let upgrade = headers::requested_upgrade(client_headers);
        if presented.is_cookie()
            && upgrade.is_some()
            && !client_headers.contains_key(header::ORIGIN)
        {
            let text = "a WebSocket with a cookie needs the header Origin; browsers send it";
            return Err(ApiError::new(Code::ForeignOrigin, text));
        }
        let is_browser = presented.is_cookie()
            || client_headers.contains_key("sec-fetch-site")
            || client_headers.contains_key(header::ORIGIN);
        let mut headers = std::mem::take(client_headers);
        headers::to_upstream(&mut headers);
        if let Ok(id) = HeaderValue::from_str(&summary.id) {
            headers.insert(AUDIT_ID, id);
        }
        // The API server's audit log then has the client's address next to the broker's.
        if let Some(address) = summary.address
            && let Ok(address) = HeaderValue::from_str(&address.to_string())
        {
            headers.insert(X_FORWARDED_FOR, address);
        }
        let client_upgrade = match upgrade {
            Some(protocol) => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
                headers.insert(header::UPGRADE, protocol.header());
                extensions.remove::<OnUpgrade>()
            }
            None => None,
        };
        Ok(Self { headers, upgrade, client_upgrade, is_browser })
    }

    /// Whether the client asks for an upgrade.
    pub(super) fn is_upgrade(&self) -> bool {
        self.upgrade.is_some()
    }

    /// Turns the API server's response into the one for the client. After an upgrade, a task
    /// forwards the bytes.
    ///
    /// # Errors
    /// The response switches to a protocol that the client did not request, or the client's
    /// connection cannot be upgraded.
    pub(super) fn into_response<B>(
        self,
        mut response: Response<B>,
        target: &Target<'_>,
        mut in_flight: InFlightRequest,
    ) -> Result<Response<Body>, ApiError>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let status = response.status();
        if status == StatusCode::SWITCHING_PROTOCOLS {
            let server = hyper::upgrade::on(&mut response);
            let confirmed =
                response.headers().get(header::UPGRADE).and_then(UpgradeProtocol::from_header);
            let (Some(protocol), true) = (confirmed, confirmed == self.upgrade) else {
                in_flight.mark_refused();
                let text = "the API server switched to a protocol that the request did not ask for";
                return Err(ApiError::new(Code::ClusterRefused, text));
            };
            let Some(client) = self.client_upgrade else {
                in_flight.mark_refused();
                let text = "this connection cannot be upgraded; use HTTP/1.1";
                return Err(ApiError::new(Code::InvalidRequest, text));
            };
            let mut client_response = Response::new(full_body(Bytes::new()));
            *client_response.status_mut() = status;
            *client_response.headers_mut() = std::mem::take(response.headers_mut());
            response_headers::filter(
                client_response.headers_mut(),
                target.gateway_prefix,
                target.path_and_query,
            );
            client_response.headers_mut().insert(header::UPGRADE, protocol.header());
            client_response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
            in_flight.response_started(status.as_u16());
            tokio::spawn(tunnel::run(client, server, in_flight));
            return Ok(client_response);
        }
        in_flight.response_started(status.as_u16());
        let (mut head, body) = response.into_parts();
        response_headers::filter(&mut head.headers, target.gateway_prefix, target.path_and_query);
        if self.is_browser {
            head.headers.insert(header::CONTENT_SECURITY_POLICY, CSP);
            head.headers
                .insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            head.headers
                .entry(header::CACHE_CONTROL)
                .or_insert(HeaderValue::from_static("no-store"));
        }
        let mut client_response = Response::new(Download::new(body, in_flight).boxed());
        *client_response.status_mut() = head.status;
        *client_response.headers_mut() = head.headers;
        Ok(client_response)
    }
}
