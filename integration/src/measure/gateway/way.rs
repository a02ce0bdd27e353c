//! A way to the API server.

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

/// The ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Name {
    Direct,
    Gateway,
    Nginx,
    KubectlProxy,
}

impl Name {
    pub(super) const ALL: [Self; 4] =
        [Self::Direct, Self::Gateway, Self::Nginx, Self::KubectlProxy];
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Direct => "direct",
            Self::Gateway => "gateway",
            Self::Nginx => "nginx",
            Self::KubectlProxy => "kubectl proxy",
        })
    }
}

/// One of them: where to connect to, and as whom.
#[derive(Clone)]
pub(crate) struct Way {
    pub(super) name: Name,
    pub(super) address: SocketAddr,
    /// Where to for streams, if that is another place.
    pub(super) for_streams: SocketAddr,
    /// None where it is plain HTTP.
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
    /// What stands before each path of the API server.
    pub(super) prefix: String,
    /// None where the proxy itself has the token.
    pub(super) authorization: Option<HeaderValue>,
    /// The processes of the proxy.
    pub(super) processes: Vec<u32>,
}

impl Way {
    /// The way below this URL. `authority` is the CA's PEM.
    pub(crate) fn new(name: Name, url: &Url, authority: &str) -> Result<Self> {
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

    /// The same with this bearer token.
    pub(crate) fn with_token(mut self, token: &str) -> Result<Self> {
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
        value.set_sensitive(true);
        self.authorization = Some(value);
        Ok(self)
    }
}
