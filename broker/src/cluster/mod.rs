//! The cluster: the broker's client of the Kubernetes API server, and the operations it performs
//! there.
//!
//! Everything here runs as the broker's restricted identity. Its credential is read again when its
//! files change ([`Cluster::connect`]). An object is created or, if it exists already, compared;
//! objects that the broker did not make are never adopted, changed or deleted.

mod broker_reads;
mod connections;
mod custom_resources;
mod discovery;
mod error;
mod ingress_domain;
mod kubernetes_user;
mod namespaces;
mod objects;
mod pages;
mod registry;
mod reviews;
mod service_account;
mod settings;
mod upstream;

use std::{path::PathBuf, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::Client;
use tokio::task::JoinError;

use self::connections::{Connections, CredentialFiles};
pub(crate) use self::pages::{PROTOBUF_MAGIC, ProtobufEnvelope, TypeMeta};
pub use self::{
    broker_reads::{
        BrokerRead, BrokerReadError, BrokerReadResource, ClusterList, ReadClient, RequiredLabels,
        SelectorError, UnknownClusterList,
    },
    connections::{CREDENTIAL_FILES, ExecError},
    custom_resources::{
        CustomObject, CustomResource, CustomWriteError, DefinitionState, FieldConflict,
        Persistence, WatchEvent, field_conflicts,
    },
    error::ClusterError,
    ingress_domain::{CLUSTER_CONFIG, INGRESS, INGRESSES},
    kubernetes_user::KubernetesUser,
    namespaces::{
        BindingWithFinalizers, BindingsDescription, HomeState, NamespaceLimits, NamespaceOwnership,
        RecordedUids, grants_to_other_namespaces,
    },
    objects::{
        Compared, DRIFT_KINDS, Difference, EMPTY_LIST_INTERVAL, EnsuredObject, NANOS_PER_UNIT,
        Object, ObjectComparison, is_marked_suspended, is_quantity,
        labels::{
            POD_SECURITY, POD_SECURITY_PREFIX, POD_SECURITY_RESTRICTED, POD_SECURITY_WARN,
            labels_of, labels_of_tenant,
        },
        nanos_of, quantity_of,
    },
    registry::Clusters,
    reviews::{
        AccessReview, DryRunResult, MemberReviewError, SampleWorkspace, ServerInfo,
        self_review::UserInfo,
    },
    service_account::{IssuedToken, SECRET_TYPE, TOKEN_OUTCOMES, TokenSecret},
    settings::ClusterSettings,
    upstream::{
        MAX_POOLED_BODY_BYTES, Transport, Upstream, UpstreamError, UpstreamRequestBody,
        UpstreamResponseBody,
    },
};

use crate::base::{
    certificate::CertificateError,
    clock::Clock,
    reload::{FileError, Reloaded, Reloader},
    telemetry::Metrics,
};

/// API group of roles and their bindings, and of the users and groups that they name.
pub const RBAC: &str = "rbac.authorization.k8s.io";
/// How long the API server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the API server may stay silent.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a watch may stay silent. The API server ends a watch earlier.
const WATCH_READ_TIMEOUT: Duration = Duration::from_secs(150);

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
    connections: Reloaded<Connections>,
    clock: Clock,
    metrics: Metrics,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The credential cannot be used, because of the settings, the files that they name, or the API
/// server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {path} (cluster.kubeconfig)", path = path.display())]
    Kubeconfig {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// The cause.
        source: kube::config::KubeconfigError,
    },
    /// The file is not a kubeconfig in YAML or JSON.
    #[error("{path} is no kubeconfig (cluster.kubeconfig)", path = path.display())]
    NotAKubeconfig {
        /// Path of the kubeconfig.
        path: PathBuf,
    },
    /// No kubeconfig is configured, and the broker does not run in a pod with a ServiceAccount.
    #[error(
        "cluster.kubeconfig is not set, and there is no ServiceAccount of a pod; \
         in a pod, mount its token (automountServiceAccountToken); elsewhere, \
         name the broker's kubeconfig (`tenant-broker install --apply --credential FILE` makes one)"
    )]
    NotInCluster(#[source] kube::config::InClusterError),
    /// A file of the credential cannot be read.
    #[error("the broker's credential (cluster.kubeconfig)")]
    File(#[from] FileError),
    /// The certificate of the client, or of the CA that it trusts, cannot be used.
    #[error("the certificates of the broker's credential (cluster.kubeconfig)")]
    Certificate(#[from] CertificateError),
    /// The CA for people's kubeconfigs cannot be read.
    #[error("the CA for people's kubeconfigs (cluster.ca_file)")]
    CaFile(#[source] FileError),
    /// The CA for people's kubeconfigs is no certificate.
    #[error("the CA for people's kubeconfigs (cluster.ca_file)")]
    CaCertificate(#[source] CertificateError),
    /// The program that prints the credential gave none.
    #[error("the broker's credential (cluster.kubeconfig)")]
    Program(#[from] ExecError),
    /// The kubeconfig names a provider that Kubernetes has removed in 1.26. The client would use
    /// each credential that it gets from there without the check of its identity.
    #[error(
        "the kubeconfig (cluster.kubeconfig) has an `auth-provider`, which is not supported; use \
         the program of the provider in an `exec` entry"
    )]
    AuthProvider,
    /// A proxy is configured. Its URL is left out, because it may have a password in it.
    #[error(
        "the cluster cannot be reached through a proxy; take `proxy-url` out of the kubeconfig \
         (cluster.kubeconfig), and unset HTTPS_PROXY and https_proxy"
    )]
    Proxy,
    /// The token cannot be sent in a header.
    #[error(
        "the token of the broker's credential (cluster.kubeconfig) has a character that no header \
         may have"
    )]
    Token,
    /// The client or its TLS configuration cannot be built.
    #[error("cannot prepare the connection to the cluster")]
    Client(#[source] kube::Error),
    /// The task that builds the clients ended early.
    #[error("cannot prepare the connection to the cluster")]
    Interrupted(#[source] JoinError),
    /// The API server did not answer to a new credential.
    #[error("the API server did not answer in time to the new credential")]
    NoAnswer,
    /// The API server refused a new credential.
    #[error("the API server does not accept the new credential")]
    NotAccepted(#[source] ClusterError),
    /// A new credential is that of another user.
    #[error(
        "the API server knows the new credential as {found}, but the policies restrict {wanted} \
         (cluster.identity)"
    )]
    OtherUser {
        /// The user of the credential.
        found: String,
        /// The configured user.
        wanted: String,
    },
    /// A new kubeconfig names another API server, whose people and policies are not known.
    #[error("the kubeconfig names another API server, {0}; restart the broker to use another one")]
    OtherServer(String),
    /// A new credential may do everything.
    #[error("the new credential is in the group {0}: it may do everything")]
    Unrestricted(&'static str),
}

impl Cluster {
    /// Builds the clients without opening a connection, so the cluster may be down. The reloader
    /// replaces them when the credential's files change: new requests then use new connections, and
    /// requests in flight finish on their own.
    ///
    /// # Errors
    /// The settings cannot be used.
    pub async fn connect(
        settings: &ClusterSettings,
        clock: Clock,
        metrics: Metrics,
        reloader: &Reloader,
    ) -> Result<Self, ConnectError> {
        let files = CredentialFiles::new(settings.clone());
        let reloader = reloader.clone();
        // A kubeconfig can name a program that prints the credential, and loading waits for it.
        let load = move || reloader.load(files.name(), files);
        let connections =
            tokio::task::spawn_blocking(load).await.map_err(ConnectError::Interrupted)??;
        Ok(Self { name: settings.name.clone(), connections, clock, metrics })
    }

    /// The cluster's name in workspaces and kubeconfigs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The connections for requests that bring their own token.
    pub fn upstream(&self) -> Arc<Upstream> {
        Arc::clone(&self.connections.get().upstream)
    }

    /// The endpoint that kubeconfigs name.
    pub fn endpoint(&self) -> Arc<Endpoint> {
        Arc::clone(&self.connections.get().endpoint)
    }

    /// The client for the broker's own requests.
    fn client(&self) -> Client {
        self.connections.get().client.clone()
    }

    /// The client for the broker's own watches.
    fn watch_client(&self) -> Client {
        self.connections.get().watch_client.clone()
    }
}

/// Encodes a DER certificate as PEM (RFC 7468).
pub fn pem(der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let lines: Vec<&str> =
        body.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}
