//! The way to the API server for requests that are not the broker's own: connections for everybody,
//! for a connection carries no identity; each request brings its token.

mod answer;
mod connector;
mod kept;
mod shared;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderValue, Request, Response, Uri, header,
    uri::{Authority, PathAndQuery},
};
use http_body_util::combinators::BoxBody;
use hyper_util::rt::TokioIo;
use kube::{Config, client::ConfigExt as _, config::AuthInfo};

pub use answer::UpstreamAnswer;

use self::{connector::Connector, kept::KeptConnections, shared::SharedConnections};
use super::ConnectError;

/// What a request to the API server carries.
pub type UpstreamBody = BoxBody<Bytes, std::io::Error>;

/// A connection, with TLS or without.
type Io = hyper_rustls::MaybeHttpsStream<TokioIo<tokio::net::TcpStream>>;

/// How a request travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Travel {
    /// On a connection that is its own until the answer ends: one slow reader holds up nobody
    /// else, and an aborted request is a closed connection, which no server overlooks.
    Alone,
    /// The same, and what follows the answer's head may be another protocol.
    Upgrade,
    /// With others on a connection of HTTP/2: what is open for hours and mostly silent, of which
    /// there are thousands.
    Together,
}

/// The connections.
#[derive(Clone, Debug)]
pub struct Upstream {
    kept: KeptConnections,
    shared: SharedConnections,
    base: Uri,
    host: HeaderValue,
}

/// A request could not be sent, or was not answered.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The path cannot be one of the API server's.
    #[error("the path cannot be forwarded")]
    Path(#[source] http::Error),
    /// There is no connection.
    #[error("the API server cannot be reached")]
    Connect(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection broke off.
    #[error("the API server broke off")]
    Connection(#[source] hyper::Error),
}

impl Upstream {
    /// Prepares the connections of this configuration, without its identity.
    pub(super) fn new(config: &Config) -> Result<Self, ConnectError> {
        let mut anonymous = config.clone();
        anonymous.auth_info = AuthInfo::default();
        let tls = anonymous.rustls_client_config().map_err(ConnectError::Client)?;
        let connector =
            Connector::new(&tls, anonymous.tls_server_name.clone(), &anonymous.cluster_url);
        let connector = Arc::new(connector);
        let host = anonymous.cluster_url.authority().map(Authority::as_str).unwrap_or_default();
        Ok(Self {
            kept: KeptConnections::new(Arc::clone(&connector)),
            shared: SharedConnections::new(connector),
            host: HeaderValue::from_str(host).unwrap_or(HeaderValue::from_static("")),
            base: anonymous.cluster_url,
        })
    }

    /// The URL of this path and query at the API server.
    ///
    /// # Errors
    /// They make no URL.
    pub fn uri(&self, path_and_query: &str) -> Result<Uri, UpstreamError> {
        let prefix = self.base.path().trim_end_matches('/');
        let path = if prefix.is_empty() {
            PathAndQuery::try_from(path_and_query)
        } else {
            PathAndQuery::try_from(format!("{prefix}{path_and_query}"))
        };
        let mut parts = self.base.clone().into_parts();
        parts.path_and_query = Some(path.map_err(|error| UpstreamError::Path(error.into()))?);
        Uri::from_parts(parts).map_err(|error| UpstreamError::Path(error.into()))
    }

    /// Sends a request and returns the head of its answer. A connection that turns out to be closed
    /// before anything was sent is replaced; nothing is sent twice.
    ///
    /// # Errors
    /// There is no connection, or it breaks off.
    pub async fn send(
        &self,
        request: Request<UpstreamBody>,
        travel: Travel,
    ) -> Result<Response<UpstreamAnswer>, UpstreamError> {
        match travel {
            Travel::Alone => self.kept.send(self.alone(request)).await,
            Travel::Upgrade => Box::pin(self.kept.send_for_upgrade(self.alone(request))).await,
            Travel::Together => Box::pin(self.together(request)).await,
        }
    }

    async fn together(
        &self,
        request: Request<UpstreamBody>,
    ) -> Result<Response<UpstreamAnswer>, UpstreamError> {
        match self.shared.send(request).await? {
            Ok(response) => Ok(response),
            Err(request) => self.kept.send(self.alone(request)).await,
        }
    }

    /// In the form of HTTP/1.1 (RFC 9112 section 3.2.1).
    fn alone(&self, mut request: Request<UpstreamBody>) -> Request<UpstreamBody> {
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
        request.headers_mut().insert(header::HOST, self.host.clone());
        request
    }
}
