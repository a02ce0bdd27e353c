//! The routes to the API server: direct, and through each proxy.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use http::HeaderValue;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::Serialize;
use tokio_rustls::TlsConnector;
use url::Url;

use crate::http_client::use_ring;

/// Name of a route, in the order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RouteName {
    Direct,
    Gateway,
    /// The gateway of another build of the broker: its number among the replicas, from 2 on.
    OtherBuild(usize),
    Nginx,
    KubectlProxy,
    /// The API of model services.
    ModelServices,
}

impl fmt::Display for RouteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Direct => "direct",
            Self::Gateway => "gateway",
            Self::OtherBuild(number) => return f.pad(&format!("build {number}")),
            Self::Nginx => "nginx",
            Self::KubectlProxy => "kubectl proxy",
            Self::ModelServices => "model services",
        })
    }
}

/// One route: the address to connect to, and the credentials.
#[derive(Clone)]
pub(crate) struct Route {
    pub(super) name: RouteName,
    pub(super) address: SocketAddr,
    /// Address for streams, if it differs.
    pub(super) for_streams: SocketAddr,
    /// TLS client and server name; `None` for plain HTTP.
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
    /// Prefix of each path of the API server.
    pub(super) prefix: String,
    /// Credentials of the caller; `None` if the proxy itself has the token.
    pub(super) authorization: Option<HeaderValue>,
    /// Process ids of the proxy.
    pub(crate) processes: Vec<u32>,
}

impl Route {
    /// Creates the route below this URL. `authority` is the CA as PEM.
    pub(crate) fn new(name: RouteName, url: &Url, authority: &str) -> Result<Self> {
        let address = *url
            .socket_addrs(|| None)
            .with_context(|| format!("resolve {url}"))?
            .first()
            .with_context(|| format!("{url} has no address"))?;
        let tls = if url.scheme() == "https" {
            use_ring();
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
            let config =
                ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
            let connector = TlsConnector::from(Arc::new(config));
            Some((connector, ServerName::from(address.ip())))
        } else {
            None
        };
        let prefix = url.path().trim_end_matches('/').to_owned();
        Ok(Self {
            name,
            address,
            for_streams: address,
            tls,
            prefix,
            authorization: None,
            processes: Vec::new(),
        })
    }

    /// Adds this bearer token.
    pub(crate) fn with_token(mut self, token: &str) -> Result<Self> {
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
        value.set_sensitive(true);
        self.authorization = Some(value);
        Ok(self)
    }
}
