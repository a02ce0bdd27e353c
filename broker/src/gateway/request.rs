//! The request as the client sent it, and as it goes on.

use std::net::IpAddr;

use bytes::Bytes;
use http::{
    Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header,
};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, upgrade::OnUpgrade};
use tenant_shared::{Code, GATEWAY_PATH};

use super::{
    Body, answer_headers,
    exchange::whole,
    headers::{self, UpgradeProtocol},
    passage::{Download, Passage},
    path::Target,
    tunnel,
};
use crate::{
    identity::Presented,
    problem::{Failure, REQUEST},
};

/// Characters of a path in a log line.
const MOST_PATH: usize = 300;
/// Characters of a `User-Agent` that are kept.
const MOST_USER_AGENT: usize = 200;
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// What a browser may do with an answer: show it, and nothing else. A tenant decides what its own
/// programs answer behind `/proxy/`, so nothing of it may run as a page of the broker.
const CSP: HeaderValue =
    HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; sandbox");

/// What the client says it is, short enough to be kept.
pub(super) fn user_agent(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(header::USER_AGENT)?.to_str().ok()?;
    Some(text.chars().filter(|c| !c.is_control()).take(MOST_USER_AGENT).collect())
}

/// What the client sent, as log lines show it.
#[derive(Debug)]
pub(super) struct Seen {
    /// The request's id, which is the `Audit-ID` at the API server.
    pub(super) id: String,
    /// Where it came from.
    pub(super) address: Option<IpAddr>,
    /// What it does.
    pub(super) method: Method,
    /// To what; without the query, which may be private.
    pub(super) path: String,
}

impl Seen {
    /// Of this request.
    pub(super) fn new(request: &Request<Incoming>, id: &str, address: Option<IpAddr>) -> Self {
        Self {
            id: id.to_owned(),
            address,
            method: request.method().clone(),
            path: request.uri().path().chars().take(MOST_PATH).collect(),
        }
    }

    /// Whether it asks which APIs there are, and for no resource.
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

    /// The line of a request that was not forwarded, or not answered.
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

/// A request as it goes on.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Its headers, cleaned.
    pub(super) headers: HeaderMap,
    upgrade: Option<UpgradeProtocol>,
    client: Option<OnUpgrade>,
    is_browser: bool,
}

impl Outgoing {
    /// Takes what goes on out of what was sent.
    ///
    /// # Errors
    /// A browser opens a WebSocket and does not say for which page.
    pub(super) fn read(
        sent: &mut HeaderMap,
        extensions: &mut Extensions,
        presented: &Presented,
        seen: &Seen,
    ) -> Result<Self, Failure> {
        let upgrade = headers::upgrade(sent);
        if presented.is_cookie() && upgrade.is_some() && !sent.contains_key(header::ORIGIN) {
            let text = "a WebSocket with a cookie needs the header Origin; browsers send it";
            return Err(Failure::new(Code::ForeignOrigin, text));
        }
        let is_browser = presented.is_cookie()
            || sent.contains_key("sec-fetch-site")
            || sent.contains_key(header::ORIGIN);
        let mut headers = std::mem::take(sent);
        headers::to_upstream(&mut headers);
        if let Ok(id) = HeaderValue::from_str(&seen.id) {
            headers.insert(AUDIT_ID, id);
        }
        // The API server's audit log then says where the person was, beside where the broker is.
        if let Some(address) = seen.address
            && let Ok(address) = HeaderValue::from_str(&address.to_string())
        {
            headers.insert(X_FORWARDED_FOR, address);
        }
        let client = match upgrade {
            Some(protocol) => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
                headers.insert(header::UPGRADE, protocol.header());
                extensions.remove::<OnUpgrade>()
            }
            None => None,
        };
        Ok(Self { headers, upgrade, client, is_browser })
    }

    /// Whether the client asks for an upgrade.
    pub(super) fn is_upgrade(&self) -> bool {
        self.upgrade.is_some()
    }

    /// The API server's answer as the client gets it; what follows flows by itself.
    ///
    /// # Errors
    /// The answer switches to a protocol that the client did not ask for, or the client's connection
    /// cannot be upgraded.
    pub(super) fn answer<B>(
        self,
        mut response: Response<B>,
        target: &Target<'_>,
        mut passage: Passage,
    ) -> Result<Response<Body>, Failure>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let status = response.status();
        if status == StatusCode::SWITCHING_PROTOCOLS {
            let server = hyper::upgrade::on(&mut response);
            let confirmed = response.headers().get(header::UPGRADE).and_then(UpgradeProtocol::of);
            let (Some(protocol), true) = (confirmed, confirmed == self.upgrade) else {
                passage.refused();
                let text = "the answer switches to a protocol that the request did not ask for";
                return Err(Failure::new(Code::ClusterRefused, text));
            };
            let Some(client) = self.client else {
                passage.refused();
                let text = "this connection cannot be upgraded; use HTTP/1.1";
                return Err(Failure::new(Code::InvalidRequest, text));
            };
            let mut answer = Response::new(whole(Bytes::new()));
            *answer.status_mut() = status;
            *answer.headers_mut() = std::mem::take(response.headers_mut());
            answer_headers::filter(answer.headers_mut(), target.gateway, target.path_and_query);
            answer.headers_mut().insert(header::UPGRADE, protocol.header());
            answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
            passage.answered(status.as_u16());
            tokio::spawn(tunnel::carry(client, server, passage));
            return Ok(answer);
        }
        passage.answered(status.as_u16());
        let (mut head, body) = response.into_parts();
        answer_headers::filter(&mut head.headers, target.gateway, target.path_and_query);
        if self.is_browser {
            head.headers.insert(header::CONTENT_SECURITY_POLICY, CSP);
            head.headers
                .insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            head.headers
                .entry(header::CACHE_CONTROL)
                .or_insert(HeaderValue::from_static("no-store"));
        }
        let mut answer = Response::new(Download::new(body, passage).boxed());
        *answer.status_mut() = head.status;
        *answer.headers_mut() = head.headers;
        Ok(answer)
    }
}
