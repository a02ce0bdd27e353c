//! Connections to the API server for requests that are not the broker's own. They are shared by all
//! users, because a connection carries no identity: each request brings its own token.

mod connector;
mod http1_pool;
mod http2_pool;
mod response_body;
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

pub use response_body::UpstreamResponseBody;

use self::{connector::Connector, http1_pool::Http1Pool, http2_pool::Http2Pool};
use super::ConnectError;

/// Body of a request to the API server.
pub type UpstreamRequestBody = BoxBody<Bytes, std::io::Error>;

/// A connection, with TLS or without.
type Io = hyper_rustls::MaybeHttpsStream<TokioIo<tokio::net::TcpStream>>;

/// The HTTP version and connection that a request is sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// An HTTP/1.1 connection that the request has for itself until the response ends: a slow
    /// reader holds up nobody else, and an aborted request is a closed connection, which no server
    /// overlooks.
    Http1,
    /// A new HTTP/1.1 connection that may switch to another protocol after the response's head.
    Upgrade,
    /// An HTTP/2 connection shared with other requests: for streams that are open for hours and
    /// mostly silent, because there are thousands of them.
    Http2,
}

/// The connection pools of one API server. Clones share them.
#[derive(Clone, Debug)]
pub struct Upstream {
    http1: Http1Pool,
    http2: Http2Pool,
    base: Uri,
    host: HeaderValue,
}

/// A request could not be sent, or got no response.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The path and query do not form a URI.
    #[error("the path cannot be forwarded")]
    Path(#[source] http::Error),
    /// No connection could be opened.
    #[error("the API server cannot be reached")]
    Connect(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection failed before the response's head was read.
    #[error("the connection to the API server failed")]
    Connection(#[source] hyper::Error),
}

impl Upstream {
    /// Prepares pools for the API server of this configuration, without its client identity.
    pub(super) fn new(config: &Config) -> Result<Self, ConnectError> {
        let mut anonymous = config.clone();
        anonymous.auth_info = AuthInfo::default();
        let tls = anonymous.rustls_client_config().map_err(ConnectError::Client)?;
        let connector =
            Connector::new(&tls, anonymous.tls_server_name.clone(), &anonymous.cluster_url);
        let connector = Arc::new(connector);
        let host = anonymous.cluster_url.authority().map(Authority::as_str).unwrap_or_default();
        Ok(Self {
            http1: Http1Pool::new(Arc::clone(&connector)),
            http2: Http2Pool::new(connector),
            host: HeaderValue::from_str(host).unwrap_or(HeaderValue::from_static("")),
            base: anonymous.cluster_url,
        })
    }

    /// The URL of a path and query at the API server.
    ///
    /// # Errors
    /// They do not form a URI.
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

    /// Sends a request and returns the response as soon as its head is read. If a pooled
    /// connection turns out to be closed before anything was sent, another one is used; nothing
    /// is sent twice.
    ///
    /// # Errors
    /// No connection could be opened, or it failed.
    pub async fn send(
        &self,
        request: Request<UpstreamRequestBody>,
        transport: Transport,
    ) -> Result<Response<UpstreamResponseBody>, UpstreamError> {
        match transport {
            Transport::Http1 => self.http1.send(self.to_http1(request)).await,
            Transport::Upgrade => {
                Box::pin(self.http1.send_for_upgrade(self.to_http1(request))).await
            }
            Transport::Http2 => Box::pin(self.send_http2(request)).await,
        }
    }

    async fn send_http2(
        &self,
        request: Request<UpstreamRequestBody>,
    ) -> Result<Response<UpstreamResponseBody>, UpstreamError> {
        match self.http2.send(request).await? {
            Ok(response) => Ok(response),
            Err(request) => self.http1.send(self.to_http1(request)).await,
        }
    }

    /// Rewrites a request to origin form with a `Host` header (RFC 9112 section 3.2.1).
    fn to_http1(&self, mut request: Request<UpstreamRequestBody>) -> Request<UpstreamRequestBody> {
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
        request.headers_mut().insert(header::HOST, self.host.clone());
        request
    }
}
