//! The services behind the listener: the outer stack in front of the gateway, the pages and the API.

use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use tenant_shared::GATEWAY_PATH;

use crate::{
    base::request_context::RequestInfo,
    gateway::Gateway,
    http::{Body, OuterStack, PoemService, call_poem},
    server::{ConnectionInfo, Handler},
};

/// The services of one broker process.
pub(super) struct Services {
    pub(super) outer: OuterStack,
    /// Serves requests below `/clusters/`.
    pub(super) gateway: Gateway,
    /// Serves all other requests: pages, API and issuer.
    pub(super) poem: PoemService,
}

impl Handler for Services {
    async fn handle(
        &self,
        request: Request<Incoming>,
        connection: &ConnectionInfo,
    ) -> Response<Body> {
        let inner = async |request: Request<Incoming>, info: Arc<RequestInfo>| {
            if self.is_forwarded(&request) {
                self.gateway.handle(request, &info).await
            } else {
                let ConnectionInfo { local, remote, scheme } = connection.clone();
                call_poem(&self.poem, request, local, remote, scheme).await
            }
        };
        self.outer.handle(request, connection.remote.ip(), inner).await
    }

    fn is_forwarded(&self, request: &Request<Incoming>) -> bool {
        request.uri().path().starts_with(GATEWAY_PATH)
    }

    fn close_streams(&self) {
        self.gateway.stop();
    }
}
