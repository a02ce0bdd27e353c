//! Arguments of `namespaces`.

use clap::{ArgAction, Args, Subcommand, ValueHint};

use super::{
    options::{AuditReason, OutputArgs},
    values::{dns_label, key_and_value, tenant_name},
};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Namespaces {
    #[command(subcommand)]
    pub(crate) action: Option<NamespacesAction>,
    #[command(flatten)]
    pub(crate) listed: ListedNamespaces,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NamespacesAction {
    /// List namespaces (the default)
    List(ListedNamespaces),
    /// Create a namespace of a tenant that you own
    Create(CreateNamespace),
    /// Delete a namespace with everything in it
    Delete(DeleteNamespace),
    /// Give a tenant a namespace that is no tenant's, with your kubeconfig (administrators)
    Adopt(AdoptNamespace),
    /// Move a namespace from one tenant to another, with your kubeconfig (administrators)
    Transfer(TransferNamespace),
}

#[derive(Debug, Args)]
pub(crate) struct ListedNamespaces {
    /// Only those of this tenant [default: all tenants that name you]
    #[arg(long, value_name = "NAME", value_parser = tenant_name)]
    pub(crate) tenant: Option<String>,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CreateNamespace {
    /// Name of the namespace: that of the tenant, a dash, and a name of your choice
    #[arg(value_parser = dns_label)]
    pub(crate) name: String,
    /// Tenant [default: the one that the name begins with, else the only one that you own]
    #[arg(long, value_name = "NAME", value_parser = tenant_name)]
    pub(crate) tenant: Option<String>,
    /// Label of the namespace; repeat it for several
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = key_and_value)]
    pub(crate) labels: Vec<(String, String)>,
    /// Annotation of the namespace; repeat it for several
    #[arg(long = "annotation", value_name = "KEY=VALUE", value_parser = key_and_value)]
    pub(crate) annotations: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteNamespace {
    /// Name of the namespace
    #[arg(value_parser = dns_label)]
    pub(crate) namespace: String,
    /// Tenant of the namespace [default: the one of yours that has it]
    #[arg(long, value_name = "NAME", value_parser = tenant_name)]
    pub(crate) tenant: Option<String>,
    /// Wait until the namespace is gone
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true"
    )]
    pub(crate) wait: bool,
    /// How long to wait
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) timeout: u32,
}

#[derive(Debug, Args)]
pub(crate) struct AdoptNamespace {
    /// Name of the namespace
    #[arg(value_parser = dns_label)]
    pub(crate) namespace: String,
    /// Tenant that gets the namespace
    #[arg(long, value_name = "NAME", value_parser = tenant_name)]
    pub(crate) tenant: String,
    #[command(flatten)]
    pub(crate) flags: MoveFlags,
}

#[derive(Debug, Args)]
pub(crate) struct TransferNamespace {
    /// Name of the namespace
    #[arg(value_parser = dns_label)]
    pub(crate) namespace: String,
    /// Tenant that gets the namespace
    #[arg(long, value_name = "NAME", value_parser = tenant_name)]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) flags: MoveFlags,
}

/// Flags of a command that moves a namespace.
#[derive(Debug, Default, Args)]
pub(crate) struct MoveFlags {
    /// Only print what would change
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) reason: AuditReason,
    /// Kubeconfig of an administrator of the cluster [default: that of kubectl]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<String>,
    /// Context of that kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// How long to wait until the tenant has the namespace
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) timeout: u32,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}
