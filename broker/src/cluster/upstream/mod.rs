//! Connections to the API server for requests that are not the broker's own. They are shared by all
//! users, because a connection carries no identity: each request brings its own token.

mod connector;
mod dedicated;
mod http2_pool;
mod response_body;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri, uri::PathAndQuery};
use http_body_util::combinators::BoxBody;
use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use kube::{Config, client::ConfigExt as _, config::AuthInfo};

pub use response_body::UpstreamResponseBody;

use self::{
    connector::{Connector, ConnectorError},
    http2_pool::Http2Pool,
};
use super::ConnectError;

/// How long an idle HTTP/1.1 connection is kept. It is shorter than the idle timeout of API servers
/// (Go: 3 minutes).
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// The number of idle HTTP/1.1 connections that are kept.
const MAX_IDLE: usize = 128;
/// The largest buffer of an HTTP/1.1 connection, in bytes, which also limits the head of a response.
/// An idle connection keeps its buffer, and long responses make it as large as this.
const MAX_BUFFER_BYTES: usize = 64 * 1024;

/// The largest body of a request on a pooled connection, in bytes. It fits into the buffers of a TCP
/// connection, so that an aborted request leaves nothing to be written, even if the API server does
/// not read.
pub const MAX_POOLED_BODY_BYTES: u64 = 32 * 1024;

/// Body of a request to the API server.
pub type UpstreamRequestBody = BoxBody<Bytes, std::io::Error>;

/// A connection, with TLS or without.
type Io = hyper_rustls::MaybeHttpsStream<TokioIo<tokio::net::TcpStream>>;

/// The HTTP version and connection that a request is sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A pooled HTTP/1.1 connection that the request has for itself until the response ends: a slow
    /// reader holds up nobody else, and an aborted request is a closed connection, which no server
    /// overlooks. Only for requests that ask for no upgrade, with a complete body of at most
    /// [`MAX_POOLED_BODY_BYTES`].
    Http1,
    /// An HTTP/1.1 connection of its own, which is closed with the request. For upgrades, because
    /// the API server may hand the connection to a program of the tenant whatever the response says,
    /// and nobody else's request may follow on it. For streamed bodies, because an aborted request
    /// ends only with its connection if the API server does not read.
    Dedicated,
    /// An HTTP/2 connection shared with other requests: for streams that are open for hours and
    /// mostly silent, because there are thousands of them. Only for requests without a body, because
    /// hyper does not reset a stream whose request body has not ended.
    Http2,
}

/// The connection pools of one API server. Clones share them.
#[derive(Clone, Debug)]
pub struct Upstream {
    http1: legacy::Client<Connector, UpstreamRequestBody>,
    /// Opens the connections of [`Transport::Dedicated`].
    connector: Connector,
    http2: Http2Pool,
    base: Uri,
}

/// A request could not be sent, or got no response.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The path and query do not form a URI.
    #[error("the path cannot be forwarded")]
    Path(#[source] http::Error),
    /// No connection could be opened.
    #[error("the API server cannot be reached")]
    Connect(#[source] ConnectorError),
    /// The connection failed before the response's head was read.
    #[error("the connection to the API server failed")]
    Connection(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<legacy::Error> for UpstreamError {
    fn from(error: legacy::Error) -> Self {
        if error.is_connect() {
            Self::Connect(error.into())
        } else {
            Self::Connection(error.into())
        }
    }
}

impl Upstream {
    /// Prepares pools for the API server of this configuration, without its client identity.
    pub(super) fn new(config: &Config) -> Result<Self, ConnectError> {
        let mut anonymous = config.clone();
        anonymous.auth_info = AuthInfo::default();
        Self::with_identity(&anonymous)
    }

    /// Prepares pools for the API server of this configuration, whose connections have its client
    /// certificate. A token of the configuration is not sent.
    pub(super) fn with_identity(config: &Config) -> Result<Self, ConnectError> {
        let tls = config.rustls_client_config().map_err(ConnectError::Client)?;
        let (server_name, url) = (config.tls_server_name.as_deref(), config.cluster_url.clone());
        let connector = Connector::http1(&tls, server_name);
        let http1 = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE)
            .http1_max_buf_size(MAX_BUFFER_BYTES)
            .build(connector.clone());
        let http2 = Http2Pool::new(Connector::all_versions(&tls, server_name), url.clone());
        Ok(Self { http1, connector, http2, base: url })
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
            Transport::Http1 => self.send_http1(request).await,
            Transport::Dedicated => Box::pin(dedicated::send(&self.connector, request)).await,
            Transport::Http2 => match Box::pin(self.http2.send(request)).await? {
                Ok(response) => Ok(response),
                Err(request) => self.send_http1(request).await,
            },
        }
    }

    async fn send_http1(
        &self,
        request: Request<UpstreamRequestBody>,
    ) -> Result<Response<UpstreamResponseBody>, UpstreamError> {
        Ok(self.http1.request(request).await?.map(UpstreamResponseBody::http1))
    }
}
