//! The services behind the listener: the outer stack in front of the gateway, the pages and the API.

use std::sync::Arc;

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use tenant_shared::{GATEWAY_PATH, MODEL_SERVICES_PATH};

use crate::{
    base::request_context::RequestInfo,
    gateway::Gateway,
    http::{API_PATH, Body, OuterStack, PoemService, call_poem, is_model_services},
    model_services::api::HEALTH_PATH,
    server::{ConnectionInfo, Handler},
};

/// The services of one broker process.
pub(super) struct Services {
    pub(super) outer: OuterStack,
    /// Serves requests below `/clusters/`.
    pub(super) gateway: Gateway,
    /// Serves model services, if they are enabled.
    pub(super) models: Option<Arc<PoemService>>,
    /// Serves all other requests: pages, API and issuer.
    pub(super) poem: PoemService,
}

impl Services {
    /// The endpoint of model services, if the path is one of theirs and they are enabled.
    fn model_services(&self, path: &str) -> Option<&PoemService> {
        let is_theirs = is_model_services(path) || path == HEALTH_PATH;
        self.models.as_deref().filter(|_| is_theirs)
    }
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
                let poem = self.model_services(&info.path).unwrap_or(&self.poem);
                call_poem(poem, request, local, remote, scheme).await
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

/// Model services behind a listener of their own.
pub(super) struct ModelServicesOnly {
    pub(super) outer: OuterStack,
    pub(super) model_services: Arc<PoemService>,
}

impl Handler for ModelServicesOnly {
    async fn handle(
        &self,
        mut request: Request<Incoming>,
        connection: &ConnectionInfo,
    ) -> Response<Body> {
        if let Some(uri) = with_prefix(request.uri()) {
            *request.uri_mut() = uri;
        }
        let inner = async |request: Request<Incoming>, _: Arc<RequestInfo>| {
            let ConnectionInfo { local, remote, scheme } = connection.clone();
            call_poem(&self.model_services, request, local, remote, scheme).await
        };
        self.outer.handle(request, connection.remote.ip(), inner).await
    }
}

/// The URI below [`MODEL_SERVICES_PATH`]: this listener needs no prefix, because nothing else is
/// here. The health check has none anyway.
fn with_prefix(uri: &Uri) -> Option<Uri> {
    let path = uri.path_and_query()?.as_str();
    if is_model_services(uri.path()) || uri.path() == HEALTH_PATH {
        return None;
    }
    let prefix = MODEL_SERVICES_PATH.strip_suffix(API_PATH)?;
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = format!("{prefix}{path}").parse().ok();
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_without_prefix_get_one() {
        for (path, expected) in [
            ("/api/v1/user?a=b", Some("/gen-ai/api/v1/user?a=b")),
            ("/clusters/x", Some("/gen-ai/clusters/x")),
            ("/gen-ai/api/v1/user", None),
            ("/healthcheck", None),
        ] {
            let found = with_prefix(&path.parse().unwrap()).map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), expected, "{path}");
        }
    }
}
