//! Settings of the cluster.

use std::path::PathBuf;

use url::Url;

use super::KubernetesUser;

/// How the broker and people reach the cluster, and the broker's identity there.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// Name of the cluster in workspaces and in the URL of the gateway. Entries of kubeconfigs are
    /// always called [`tenant_shared::CLUSTER_NAME`].
    pub name: String,
    /// Kubeconfig with the broker's own credential; without it the broker uses the pod's
    /// ServiceAccount.
    pub kubeconfig: Option<PathBuf>,
    /// API server URL in people's kubeconfigs, if it differs from the broker's own.
    pub server: Option<Url>,
    /// PEM file with the CA in people's kubeconfigs, if it differs from the broker's own.
    pub ca_file: Option<PathBuf>,
    /// The user as which the API server knows the broker.
    pub identity: KubernetesUser,
    /// The default audiences of the API server's tokens: `--api-audiences`, or its issuer.
    pub audiences: Vec<String>,
    /// Whether the broker starts although its admission policies are missing or changed.
    pub allow_missing_policies: bool,
    /// Whether every token is bound to a Secret of its own.
    pub bind_tokens_to_secrets: bool,
}
