//! The cluster: the broker's own connection to its API server, and the few things it does there.
//!
//! Everything here runs as the broker's restricted identity. An object is made with create and, if
//! it is there already, compared; nothing foreign is adopted, changed or deleted.

mod difference;
mod error;
mod look;
mod object;
mod quantity;
mod rehearse;
mod revoke;
mod secret;
mod standing;
mod survey;
mod tenants;
mod token;
mod upstream;

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

pub use difference::{Compared, Difference, is_marked_suspended};
pub use error::ClusterError;
pub use look::KnownAs;
pub use object::{Object, Outcome, Seen, labels_of};
pub use rehearse::{Question, Rehearsal, ServerFacts};
pub use secret::{SECRET_TYPE, TokenSecret};
pub use standing::{NamespaceStanding, RecordedUids};
pub use tenants::HeldBinding;
pub use token::IssuedToken;
pub use upstream::{Travel, Upstream, UpstreamAnswer, UpstreamBody, UpstreamError};

use crate::{clock::Clock, config::ClusterSettings, telemetry::Metrics};

/// How long the API server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the API server may stay silent.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// What a person's kubeconfig says of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// URL of the API server.
    pub server: String,
    /// The CA's certificates as base64 of PEM; without them the system's CAs are trusted.
    pub certificate_authority_data: Option<String>,
}

/// One cluster, reached as the broker.
#[derive(Clone)]
pub struct Cluster {
    name: String,
    client: Client,
    endpoint: Endpoint,
    upstream: Upstream,
    clock: Clock,
    metrics: Metrics,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The cluster's settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig.
    #[error("cannot use the kubeconfig {path} (cluster.kubeconfig)")]
    Kubeconfig {
        /// Its path.
        path: String,
        /// Why.
        source: kube::config::KubeconfigError,
    },
    /// Not in a pod either.
    #[error(
        "cluster.kubeconfig is not set and this is not a pod of the cluster; \
         name the broker's kubeconfig (`tenant-broker install --apply --credential FILE` makes one)"
    )]
    NotInCluster(#[source] kube::config::InClusterError),
    /// The client.
    #[error("cannot prepare the connection to the cluster")]
    Client(#[source] kube::Error),
    /// The CA file.
    #[error("cannot read the CA of the cluster {path}")]
    CaFile {
        /// Its path.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

impl Cluster {
    /// Prepares the connection; does not open it yet, so the cluster may be down.
    ///
    /// # Errors
    /// The settings cannot be used.
    pub async fn connect(
        settings: &ClusterSettings,
        clock: Clock,
        metrics: Metrics,
    ) -> Result<Self, ConnectError> {
        let mut config = match &settings.kubeconfig {
            Some(path) => {
                let wrong =
                    |source| ConnectError::Kubeconfig { path: path.display().to_string(), source };
                let kubeconfig = Kubeconfig::read_from(path).map_err(wrong)?;
                Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                    .await
                    .map_err(wrong)?
            }
            None => Config::incluster().map_err(ConnectError::NotInCluster)?,
        };
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = Some(READ_TIMEOUT);
        config.write_timeout = Some(READ_TIMEOUT);
        // A caller waits: it is told to come back instead.
        config.default_retry = false;
        let endpoint = endpoint(settings, &config)?;
        let upstream = Upstream::new(&config)?;
        let client = Client::try_from(config).map_err(ConnectError::Client)?;
        Ok(Self { name: settings.name.clone(), client, endpoint, upstream, clock, metrics })
    }

    /// Its name in workspaces and kubeconfigs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The way there for requests that bring their own token.
    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// How people reach it.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

fn endpoint(settings: &ClusterSettings, config: &Config) -> Result<Endpoint, ConnectError> {
    let read = |path: &std::path::Path| {
        std::fs::read(path)
            .map_err(|source| ConnectError::CaFile { path: path.display().to_string(), source })
    };
    let pem = match (&settings.ca_file, &config.root_cert_file, &config.root_cert) {
        (Some(path), ..) | (None, Some(path), _) => Some(read(path)?),
        (None, None, Some(certificates)) => {
            Some(certificates.iter().map(|der| pem(der)).collect::<String>().into_bytes())
        }
        (None, None, None) => None,
    };
    let server = settings
        .server
        .as_ref()
        .map_or_else(|| config.cluster_url.to_string(), ToString::to_string);
    Ok(Endpoint {
        server: server.trim_end_matches('/').to_owned(),
        certificate_authority_data: pem.map(|pem| STANDARD.encode(pem)),
    })
}

/// A certificate as PEM (RFC 7468).
pub fn pem(der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let lines: Vec<&str> =
        body.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}
