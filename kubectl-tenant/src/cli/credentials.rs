//! Arguments of `credentials` and `get-token`.

use clap::{Args, Subcommand};
use tenant_shared::{CLUSTER_NAME, CredentialId, Name};
use uuid::Uuid;

use super::options::{AuditReason, ListArgs, OutputArgs};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Credentials {
    #[command(subcommand)]
    pub(crate) action: Option<CredentialsAction>,
    #[command(flatten)]
    pub(crate) listed: ListedCredentials,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CredentialsAction {
    /// List credentials that still work: tokens of kubectl and of downloaded kubeconfigs (the default)
    List(ListedCredentials),
    /// Revoke a credential; the output says which others end with it
    Revoke(RevokeCredential),
}

#[derive(Debug, Args)]
pub(crate) struct ListedCredentials {
    /// Namespace or identifier of the workspace, or e-mail address of its owner [default: yours]
    pub(crate) workspace: Option<Name>,
    /// Include expired and revoked credentials
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) listed: ListArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeCredential {
    /// Identifier in the list, or as the cluster's audit log shows it: JTI=…
    pub(crate) id: CredentialId,
    /// Workspace, if it is not yours: namespace, identifier, or e-mail address of the owner
    #[arg(long, value_name = "WORKSPACE")]
    pub(crate) workspace: Option<Name>,
    #[command(flatten)]
    pub(crate) reason: AuditReason,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GetToken {
    /// Name of the cluster
    #[arg(long, default_value = CLUSTER_NAME, value_name = "NAME")]
    pub(crate) cluster: String,
    /// Identifier of the workspace
    #[arg(long, value_name = "UUID")]
    pub(crate) workspace: Uuid,
    /// Where the token is used
    #[arg(long, value_enum, default_value_t)]
    pub(crate) mode: TokenMode,
    /// Get a new token, even if a cached one is good
    #[arg(long)]
    pub(crate) force: bool,
}

/// Where a token is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TokenMode {
    /// The API server: a Kubernetes token
    #[default]
    Exec,
    /// The broker's gateway: an access token that is good for the gateway only
    Gateway,
}
