//! The response to the client.

mod headers;
mod tunnel;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use tenant_shared::Code;

use super::{
    in_flight::{Download, InFlightRequest},
    kubernetes_api::path::Target,
    request::{Upgrade, UpstreamRequest, headers::UpgradeProtocol},
};
use crate::http::{ApiError, Body, body};

/// The policy lets a browser display a response and nothing else. Tenants control the responses of
/// their programs behind `/proxy/`, so no script in them may run as a page of the broker.
const CSP: HeaderValue =
    HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; sandbox");

/// Turns the API server's response into the one for the client. After an upgrade, a task forwards
/// the bytes.
///
/// # Errors
/// The response switches to a protocol that the client did not request, or the client's connection
/// cannot be upgraded.
pub(super) fn to_client<B>(
    response: Response<B>,
    request: UpstreamRequest,
    target: &Target<'_>,
    mut in_flight: InFlightRequest,
) -> Result<Response<Body>, ApiError>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return start_tunnel(response, request.upgrade, target, in_flight);
    }
    in_flight.response_started(response.status());
    let (mut head, body) = response.into_parts();
    headers::filter(&mut head.headers, target.gateway_prefix, target.path_and_query);
    if request.is_browser {
        head.headers.insert(header::CONTENT_SECURITY_POLICY, CSP);
        head.headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        head.headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
    let mut body = Download::new(body, in_flight);
    if head.status == StatusCode::OK && is_json_stream(&head.headers) {
        body.end_with_expired_event();
    }
    let mut client_response = Response::new(body.boxed());
    *client_response.status_mut() = head.status;
    *client_response.headers_mut() = head.headers;
    client_response.extensions_mut().insert(body::WithinTenantLimits);
    Ok(client_response)
}

/// Whether a body is JSON, as it is sent, and of any length.
fn is_json_stream(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = media_type.and_then(|value| value.split(';').next()).map(str::trim);
    let is_other = [header::CONTENT_ENCODING, header::CONTENT_LENGTH];
    media_type == Some("application/json") && !is_other.iter().any(|it| headers.contains_key(it))
}

/// The response to a request whose connection becomes a tunnel.
fn start_tunnel<B: Send + 'static>(
    mut response: Response<B>,
    upgrade: Option<Upgrade>,
    target: &Target<'_>,
    mut in_flight: InFlightRequest,
) -> Result<Response<Body>, ApiError> {
    let server = hyper::upgrade::on(&mut response);
    let confirmed = response.headers().get(header::UPGRADE).and_then(UpgradeProtocol::from_header);
    let (Some(confirmed), Some(upgrade)) = (confirmed, upgrade) else {
        return Err(in_flight.refuse(other_protocol()));
    };
    if confirmed != upgrade.protocol {
        return Err(in_flight.refuse(other_protocol()));
    }
    let Some(client) = upgrade.client else {
        let text = "this connection cannot be upgraded; use HTTP/1.1";
        return Err(in_flight.refuse(ApiError::new(Code::InvalidRequest, text)));
    };
    let mut client_response = Response::new(body::full(Bytes::new()));
    *client_response.status_mut() = response.status();
    let headers = client_response.headers_mut();
    *headers = std::mem::take(response.headers_mut());
    headers::filter(headers, target.gateway_prefix, target.path_and_query);
    headers.insert(header::UPGRADE, confirmed.header());
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    in_flight.response_started(response.status());
    tokio::spawn(tunnel::run(client, server, response.into_body(), in_flight));
    Ok(client_response)
}

fn other_protocol() -> ApiError {
    let text = "the API server switched to a protocol that the request did not ask for";
    ApiError::new(Code::ClusterRefused, text)
}
