//! Calls poem endpoints (pages, API, issuer) with requests of the server.

use std::net::SocketAddr;

use http::{Request, Response, uri::Scheme};
use hyper::body::Incoming;
use poem::{
    Endpoint as _,
    endpoint::BoxEndpoint,
    web::{LocalAddr, RemoteAddr},
};

use super::Body;

/// Pages, API and issuer as one endpoint.
pub type PoemService = BoxEndpoint<'static, poem::Response>;

/// Handles a request that arrived on a connection between these addresses.
pub async fn call(
    service: &PoemService,
    request: Request<Incoming>,
    local: SocketAddr,
    remote: SocketAddr,
    scheme: Scheme,
) -> Response<Body> {
    let addresses = (LocalAddr(local.into()), RemoteAddr(remote.into()));
    let request = poem::Request::from((request, addresses.0, addresses.1, scheme));
    service.get_response(request).await.into()
}
