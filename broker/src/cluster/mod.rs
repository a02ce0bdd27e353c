//! The cluster: the broker's client of the Kubernetes API server, and the operations it performs
//! there.
//!
//! Everything here runs as the broker's restricted identity. An object is created or, if it exists
//! already, compared; objects that the broker did not make are never adopted, changed or deleted.

mod difference;
mod dry_run;
mod error;
mod kubernetes_user;
mod labels;
mod managed_objects;
mod namespace_ownership;
mod object;
mod quantity;
mod registry;
mod revoke;
mod secret;
mod self_review;
mod settings;
mod tenants;
mod token;
mod upstream;

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

pub use difference::{Compared, DRIFT_KINDS, Difference, is_marked_suspended};
pub use dry_run::{AccessReview, DryRunResult, ServerFacts};
pub use error::ClusterError;
pub use kubernetes_user::KubernetesUser;
pub use labels::labels_of;
pub use namespace_ownership::{NamespaceOwnership, RecordedUids};
pub use object::{EnsuredObject, Object, ObjectComparison};
pub use registry::Clusters;
pub use secret::{SECRET_TYPE, TokenSecret};
pub use self_review::UserInfo;
pub use settings::ClusterSettings;
pub use tenants::HeldBinding;
pub use token::{IssuedToken, TOKEN_OUTCOMES};
pub use upstream::{
    MAX_POOLED_BODY_BYTES, Transport, Upstream, UpstreamError, UpstreamRequestBody,
    UpstreamResponseBody,
};

use crate::base::{clock::Clock, telemetry::Metrics};

/// How long the API server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the API server may stay silent.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// The part of a kubeconfig that describes the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// URL of the API server.
    pub server: String,
    /// The CA certificates as base64 of PEM; if there are none, the system's CAs are trusted.
    pub certificate_authority_data: Option<String>,
}

/// A cluster, accessed with the broker's identity. Clones share its connections.
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
    /// The kubeconfig cannot be read or used.
    #[error("cannot use the kubeconfig {path} (cluster.kubeconfig)")]
    Kubeconfig {
        /// Path of the kubeconfig.
        path: String,
        /// The cause.
        source: kube::config::KubeconfigError,
    },
    /// No kubeconfig is configured, and the broker does not run in a pod with a ServiceAccount.
    #[error(
        "cluster.kubeconfig is not set, and there is no ServiceAccount of a pod; \
         in a pod, mount its token (automountServiceAccountToken); elsewhere, \
         name the broker's kubeconfig (`tenant-broker install --apply --credential FILE` makes one)"
    )]
    NotInCluster(#[source] kube::config::InClusterError),
    /// The client or its TLS configuration cannot be built.
    #[error("cannot prepare the connection to the cluster")]
    Client(#[source] kube::Error),
    /// The CA file cannot be read.
    #[error("cannot read the CA of the cluster {path}")]
    CaFile {
        /// Path of the file.
        path: String,
        /// The cause.
        source: std::io::Error,
    },
}

impl Cluster {
    /// Builds the clients without opening a connection, so the cluster may be down.
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
                let unusable =
                    |source| ConnectError::Kubeconfig { path: path.display().to_string(), source };
                let kubeconfig = Kubeconfig::read_from(path).map_err(unusable)?;
                Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                    .await
                    .map_err(unusable)?
            }
            None => Config::incluster().map_err(ConnectError::NotInCluster)?,
        };
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = Some(READ_TIMEOUT);
        config.write_timeout = Some(READ_TIMEOUT);
        // A caller waits for the result, so it is told to retry instead.
        config.default_retry = false;
        let endpoint = endpoint(settings, &config)?;
        let upstream = Upstream::new(&config)?;
        let client = Client::try_from(config).map_err(ConnectError::Client)?;
        Ok(Self { name: settings.name.clone(), client, endpoint, upstream, clock, metrics })
    }

    /// The cluster's name in workspaces and kubeconfigs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The connections for requests that bring their own token.
    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// The endpoint that kubeconfigs name.
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

/// Encodes a DER certificate as PEM (RFC 7468).
pub fn pem(der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let lines: Vec<&str> =
        body.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}
