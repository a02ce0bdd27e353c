//! Opens TCP and TLS connections to an API server.

use std::{
    error::Error,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::{Connection as _, HttpConnector};
use tower_service::Service;

use super::Io;
use crate::cluster::CONNECT_TIMEOUT;

/// When a connection on which nothing arrives is first probed (TCP keepalive), so that watches and
/// calls end that wait for a dead API server. Probes are sent only once the server has acknowledged
/// all bytes; until then the kernel's limit of retransmissions applies.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// How long a probe is waited for before the next one. Linux' default is 75 seconds.
const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How many probes in a row end the connection if none is answered, a minute after the last byte.
/// Linux' default is 9.
const TCP_KEEPALIVE_RETRIES: u32 = 3;
/// How long opening a connection may take, TLS handshake included.
const OPEN_TIMEOUT: Duration = CONNECT_TIMEOUT.saturating_mul(2);

/// A connection could not be opened.
pub(super) type ConnectorError = Box<dyn Error + Send + Sync>;

/// Opens connections to one API server, for one version of HTTP.
#[derive(Clone, Debug)]
pub(super) struct Connector(HttpsConnector<HttpConnector>);

impl Connector {
    /// Opens connections for HTTP/1.1.
    pub(super) fn http1(tls: &rustls::ClientConfig, server_name: Option<&str>) -> Self {
        Self(https(tls, server_name).enable_http1().wrap_connector(tcp()))
    }

    /// Opens connections for HTTP/2, or for HTTP/1.1 if the API server supports nothing else.
    pub(super) fn all_versions(tls: &rustls::ClientConfig, server_name: Option<&str>) -> Self {
        Self(https(tls, server_name).enable_all_versions().wrap_connector(tcp()))
    }

    /// Opens a connection for HTTP/2; `None` if ALPN negotiates HTTP/1.1.
    ///
    /// # Errors
    /// No connection could be opened.
    pub(super) async fn http2(&self, url: Uri) -> Result<Option<Io>, ConnectorError> {
        let io = self.clone().open(url).await?;
        Ok(io.connected().is_negotiated_h2().then_some(io))
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// The API server cannot be reached, or its certificate is not accepted.
    pub(super) async fn open(mut self, url: Uri) -> Result<Io, ConnectorError> {
        poll_fn(|context| self.0.poll_ready(context)).await?;
        tokio::time::timeout(OPEN_TIMEOUT, self.0.call(url)).await?
    }
}

impl Service<Uri> for Connector {
    type Response = Io;
    type Error = ConnectorError;
    type Future = Pin<Box<dyn Future<Output = Result<Io, ConnectorError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), ConnectorError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        Box::pin(self.clone().open(url))
    }
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_keepalive(Some(TCP_KEEPALIVE));
    tcp.set_keepalive_interval(Some(TCP_KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(TCP_KEEPALIVE_RETRIES));
    tcp
}

fn https(
    tls: &rustls::ClientConfig,
    server_name: Option<&str>,
) -> HttpsConnectorBuilder<hyper_rustls::builderstates::WantsProtocols1> {
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http();
    match server_name.and_then(|name| name.to_owned().try_into().ok()) {
        Some(name) => {
            let name: rustls::pki_types::ServerName<'static> = name;
            builder.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
        None => builder,
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::{socket_keepalive, tcp_keepcnt, tcp_keepidle, tcp_keepintvl};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_dead_server_is_noticed_within_a_minute() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let mut tcp = tcp();
        poll_fn(|context| tcp.poll_ready(context)).await.unwrap();
        let connection = tcp.call(url).await.unwrap();
        let socket = connection.inner();
        assert!(socket_keepalive(socket).unwrap());
        let probes = tcp_keepintvl(socket).unwrap() * tcp_keepcnt(socket).unwrap();
        assert_eq!(tcp_keepidle(socket).unwrap() + probes, Duration::from_mins(1));
    }
}
