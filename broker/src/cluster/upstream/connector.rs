//! Opens TCP and TLS connections to an API server.

use std::time::Duration;

use http::Uri;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::{Connection as _, HttpConnector};
use tower_service::Service as _;

use super::{Io, UpstreamError};
use crate::cluster::CONNECT_TIMEOUT;

/// How often an idle connection is probed (TCP keepalive), so that idle watches of a dead API
/// server end.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// How long opening a connection may take, TLS handshake included.
const OPEN_TIMEOUT: Duration = CONNECT_TIMEOUT.saturating_mul(2);

/// Opens connections to one API server.
#[derive(Debug)]
pub(super) struct Connector {
    http1: HttpsConnector<HttpConnector>,
    http2: HttpsConnector<HttpConnector>,
    url: Uri,
}

impl Connector {
    pub(super) fn new(tls: &rustls::ClientConfig, server_name: Option<String>, url: &Uri) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_keepalive(Some(TCP_KEEPALIVE));
        let name = server_name.and_then(|name| name.try_into().ok());
        let builder = || {
            let builder = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http();
            match &name {
                Some(name) => {
                    let name: rustls::pki_types::ServerName<'static> = Clone::clone(name);
                    builder.with_server_name_resolver(FixedServerNameResolver::new(name))
                }
                None => builder,
            }
        };
        Self {
            http1: builder().enable_http1().wrap_connector(tcp.clone()),
            http2: builder().enable_all_versions().wrap_connector(tcp),
            url: url.clone(),
        }
    }

    /// Opens a connection for HTTP/1.1.
    ///
    /// # Errors
    /// [`UpstreamError::Connect`].
    pub(super) async fn http1(&self) -> Result<Io, UpstreamError> {
        open(self.http1.clone(), self.url.clone()).await
    }

    /// Opens a connection for HTTP/2; `None` if ALPN negotiates HTTP/1.1.
    ///
    /// # Errors
    /// [`UpstreamError::Connect`].
    pub(super) async fn http2(&self) -> Result<Option<Io>, UpstreamError> {
        let io = open(self.http2.clone(), self.url.clone()).await?;
        Ok(io.connected().is_negotiated_h2().then_some(io))
    }
}

async fn open(mut connector: HttpsConnector<HttpConnector>, url: Uri) -> Result<Io, UpstreamError> {
    std::future::poll_fn(|context| connector.poll_ready(context))
        .await
        .map_err(UpstreamError::Connect)?;
    match tokio::time::timeout(OPEN_TIMEOUT, connector.call(url)).await {
        Ok(io) => io.map_err(UpstreamError::Connect),
        Err(elapsed) => Err(UpstreamError::Connect(elapsed.into())),
    }
}
