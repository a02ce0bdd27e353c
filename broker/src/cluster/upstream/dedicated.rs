//! HTTP/1.1 connections for one request each.

use http::{HeaderValue, Request, Response, Uri, header, uri::PathAndQuery};
use hyper::client::conn::http1;
use tokio_util::task::AbortOnDropHandle;

use super::{UpstreamError, UpstreamRequestBody, UpstreamResponseBody, connector::Connector};

/// Opens a connection and sends a request on it. The connection is closed at once when the future
/// or the response's body is dropped, also while the API server does not read what is sent. After a
/// 101 that applies until the upgrade (`hyper::upgrade::on`) has resolved, which takes the
/// connection over.
///
/// # Errors
/// The connection cannot be opened, or it failed.
pub(super) async fn send(
    connector: &Connector,
    mut request: Request<UpstreamRequestBody>,
) -> Result<Response<UpstreamResponseBody>, UpstreamError> {
    let failed = |error: hyper::Error| UpstreamError::Connection(error.into());
    let url = std::mem::take(request.uri_mut());
    to_origin_form(&mut request, &url)?;
    let io = connector.clone().open(url).await.map_err(UpstreamError::Connect)?;
    let (mut sender, connection) = http1::handshake(io).await.map_err(failed)?;
    let task = AbortOnDropHandle::new(tokio::spawn(connection.with_upgrades()));
    let response = sender.send_request(request).await.map_err(failed)?;
    Ok(response.map(|body| UpstreamResponseBody::dedicated(body, task)))
}

/// Sets the request's target and `Host` as a server expects them (RFC 9112 sections 3.2.1 and 3.2).
fn to_origin_form(
    request: &mut Request<UpstreamRequestBody>,
    url: &Uri,
) -> Result<(), UpstreamError> {
    let target = url.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = target.into();
    let host = url.authority().map_or("", |authority| authority.as_str());
    let host = HeaderValue::from_str(host).map_err(|error| UpstreamError::Path(error.into()))?;
    request.headers_mut().insert(header::HOST, host);
    Ok(())
}
