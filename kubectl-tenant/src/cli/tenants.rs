//! Arguments of the commands for tenants: `tenants`, `use`, `why` and `import`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use tenant_shared::NamespacesOnDelete;

use super::{
    options::{AuditReason, EntryFlags, OutputArgs},
    resource_target::ResourceTarget,
    values::{dns_label, service_account, tenant_name},
};
use crate::broker::Mode;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Tenants {
    #[command(subcommand)]
    pub(crate) action: Option<TenantsAction>,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantsAction {
    /// List the tenants that name you (the default); for administrators all tenants
    List(OutputArgs),
    /// Show your roles in a tenant and who gives them, and what the broker could not carry out
    Get(NamedTenant),
    /// List the members of a tenant (owners and administrators)
    Members(NamedTenant),
    /// Create a Tenant, from flags or a file (administrators)
    Create(CreateTenant),
    /// Make Tenants as a file says (administrators)
    Apply(ApplyTenants),
    /// Change a Tenant in your editor (administrators)
    Edit(EditTenant),
    /// Delete a Tenant: its people lose the rights that it gives them (administrators)
    Delete(DeleteTenant),
    /// Suspend a tenant: nobody has rights in its namespaces any more (administrators)
    Suspend(SuspendTenant),
    /// Resume a suspended tenant (administrators)
    Resume(SuspendTenant),
}

#[derive(Debug, Args)]
pub(crate) struct NamedTenant {
    /// Name of the tenant
    #[arg(value_parser = tenant_name)]
    pub(crate) tenant: String,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

/// What a command does without writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    /// Write
    #[default]
    None,
    /// Read the flags or the file only; the broker is not asked
    Client,
    /// Let the broker and the API server validate
    Server,
}

/// What becomes of the namespaces of a deleted Tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeptNamespaces {
    /// The Tenant is not deleted if it has any
    #[default]
    Refuse,
    /// They stay, with everything in them
    Keep,
}

impl From<KeptNamespaces> for NamespacesOnDelete {
    fn from(namespaces: KeptNamespaces) -> Self {
        match namespaces {
            KeptNamespaces::Refuse => Self::Refuse,
            KeptNamespaces::Keep => Self::Keep,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct CreateTenant {
    /// Name of the tenant: at most 40 lower case letters, digits and dashes
    #[arg(value_parser = tenant_name, required_unless_present = "file", conflicts_with = "file")]
    pub(crate) name: Option<String>,
    /// User who owns it, by the name that Tenants have for people; repeat it for several
    #[arg(long = "owner", value_name = "USER", conflicts_with = "file")]
    pub(crate) owners: Vec<String>,
    /// Group that owns it; repeat it for several
    #[arg(long = "owner-group", value_name = "GROUP", conflicts_with = "file")]
    pub(crate) owner_groups: Vec<String>,
    /// ServiceAccount that owns it; repeat it for several
    #[arg(long = "owner-service-account", value_name = "NAMESPACE:NAME", value_parser = service_account, conflicts_with = "file")]
    pub(crate) owner_service_accounts: Vec<(String, String)>,
    /// How many namespaces it may have [default: 10000]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000), conflicts_with = "file")]
    pub(crate) quota: Option<u32>,
    /// Tier of its namespaces
    #[arg(long, value_name = "TIER", conflicts_with = "file")]
    pub(crate) tier: Option<String>,
    /// YAML file with Tenants, instead of the flags; - is standard input
    #[arg(short = 'f', long = "filename", id = "file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// Write nothing: with client and -o yaml print the Tenant for kubectl or Git
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    pub(crate) dry_run: DryRun,
    #[command(flatten)]
    pub(crate) reason: AuditReason,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyTenants {
    /// YAML file with Tenants; - is standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Write nothing
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    pub(crate) dry_run: DryRun,
    /// Also change fields that other field managers have set, such as a GitOps tool
    #[arg(long)]
    pub(crate) force_conflicts: bool,
    #[command(flatten)]
    pub(crate) reason: AuditReason,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct EditTenant {
    /// Name of the tenant
    #[arg(value_parser = tenant_name)]
    pub(crate) tenant: String,
    /// Also change fields that other field managers have set, such as a GitOps tool
    #[arg(long)]
    pub(crate) force_conflicts: bool,
    #[command(flatten)]
    pub(crate) reason: AuditReason,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteTenant {
    /// Name of the tenant
    #[arg(value_parser = tenant_name)]
    pub(crate) tenant: String,
    /// What becomes of its namespaces
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    pub(crate) namespaces: KeptNamespaces,
    /// Do not ask for a confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Delete nothing: let the broker check
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) reason: AuditReason,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SuspendTenant {
    /// Name of the tenant
    #[arg(value_parser = tenant_name)]
    pub(crate) tenant: String,
    #[command(flatten)]
    pub(crate) reason: AuditReason,
    /// How long to wait for open steps; the broker continues with them in any case
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub(crate) wait: u32,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UseTenant {
    /// Name of the tenant
    #[arg(value_parser = tenant_name)]
    pub(crate) tenant: String,
    /// Default namespace of the context [default: the first active one of the tenant]
    #[arg(short, long, value_name = "NAME", value_parser = dns_label)]
    pub(crate) namespace: Option<String>,
    /// exec: the plugin renews the token; static: a token of two hours; gateway: via the broker
    #[arg(long, value_enum, default_value_t = Mode::Exec)]
    pub(crate) mode: Mode,
    #[command(flatten)]
    pub(crate) entry: EntryFlags,
}

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// Verb of the request, such as get, list or create
    pub(crate) verb: String,
    /// Resource in the plural, such as pods, deployments.apps or secrets/NAME
    #[arg(value_name = "RESOURCE[.GROUP][/NAME]")]
    pub(crate) target: ResourceTarget,
    /// Namespace of a tenant
    #[arg(short, long, value_name = "NAME", value_parser = dns_label)]
    pub(crate) namespace: String,
    /// Subresource, such as log or exec
    #[arg(long, value_name = "NAME")]
    pub(crate) subresource: Option<String>,
    /// Tenant of the namespace [default: the one of yours that has it]
    #[arg(long, value_name = "NAME", value_parser = tenant_name)]
    pub(crate) tenant: Option<String>,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// YAML file with Tenants of capsule.clastix.io/v1beta2 or v1beta1; - is standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Only report what the broker does not carry out
    #[arg(long)]
    pub(crate) dry_run: bool,
}
