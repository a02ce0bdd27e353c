//! The way to the API server for requests that are not the broker's own: one pool of connections for
//! everybody, for a connection carries no identity; each request brings its token.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri, uri::PathAndQuery};
use http_body_util::combinators::BoxBody;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{Config, client::ConfigExt as _, config::AuthInfo};

use super::{CONNECT_TIMEOUT, ConnectError};

/// How long an idle connection is kept; shorter than API servers keep theirs (Go: 3 minutes).
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// Idle connections that are kept.
const MOST_IDLE: usize = 128;
/// How often a silent connection is probed, so that a dead API server ends idle watches.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// What a request to the API server carries.
pub type UpstreamBody = BoxBody<Bytes, std::io::Error>;

/// The connections.
#[derive(Clone)]
pub struct Upstream {
    // HTTP/1.1 on purpose: every kind of stream can be upgraded, one slow reader holds up nobody
    // else's frames, and an aborted request is a closed connection, which no server overlooks.
    client: Client<HttpsConnector<HttpConnector>, UpstreamBody>,
    base: Uri,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("base", &self.base).finish_non_exhaustive()
    }
}

/// A request could not be sent, or was not answered.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The path cannot be one of the API server's.
    #[error("the path cannot be forwarded")]
    Path(#[source] http::Error),
    /// The connection.
    #[error("the API server cannot be reached")]
    Connection(#[source] hyper_util::client::legacy::Error),
}

impl Upstream {
    /// Prepares the connections of this configuration, without its identity.
    pub(super) fn new(config: &Config) -> Result<Self, ConnectError> {
        let mut anonymous = config.clone();
        anonymous.auth_info = AuthInfo::default();
        let tls = anonymous.rustls_client_config().map_err(ConnectError::Client)?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_keepalive(Some(TCP_KEEPALIVE));
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let connector = match anonymous.tls_server_name.clone().map(TryInto::try_into) {
            Some(Ok(name)) => builder
                .with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name))
                .enable_http1()
                .wrap_connector(tcp),
            _ => builder.enable_http1().wrap_connector(tcp),
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MOST_IDLE)
            .build(connector);
        Ok(Self { client, base: anonymous.cluster_url })
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
    /// [`UpstreamError::Connection`].
    pub async fn send(
        &self,
        request: Request<UpstreamBody>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        self.client.request(request).await.map_err(UpstreamError::Connection)
    }
}
