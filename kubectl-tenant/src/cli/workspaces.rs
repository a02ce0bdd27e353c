//! Arguments of the commands for workspaces: `init`, `workspaces`, `usage`, `audit`, `suspend`,
//! `resume` and `kubeconfig`.

use clap::Args;
use tenant_shared::Name;

use super::options::{AuditReason, EntryFlags, ListArgs, OutputArgs};
use crate::broker::Mode;

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Tier: decides quota, limits and role
    #[arg(long, value_name = "TIER", default_value = "basic")]
    pub(crate) tier: String,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Workspaces {
    /// Workspaces of all users (administrators)
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) listed: ListArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Usage {
    /// Namespace or identifier of the workspace, or e-mail address of its owner [default: yours]
    pub(crate) workspace: Option<Name>,
    /// Number of days, including today (UTC)
    #[arg(long, value_name = "NUMBER", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=35))]
    pub(crate) days: u32,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// Namespace or identifier of a workspace, or e-mail address of its owner [default: all that you
    /// may see]
    pub(crate) workspace: Option<Name>,
    /// Only this action, as the audit trail names it
    #[arg(long, value_name = "ACTION")]
    pub(crate) action: Option<String>,
    /// Maximum number of rows, newest first
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Suspend {
    /// Namespace or identifier of the workspace, or e-mail address of its owner
    pub(crate) workspace: Name,
    #[command(flatten)]
    pub(crate) reason: AuditReason,
    /// How long to wait for open steps; the broker continues with them in any case
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub(crate) wait: u32,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Kubeconfig {
    /// exec: the plugin renews the token; static: a token of two hours; gateway: via the broker
    #[arg(long, value_enum, default_value_t = Mode::Exec)]
    pub(crate) mode: Mode,
    /// Print the broker's document and change no file; with --mode static a new token is in it
    #[arg(long, conflicts_with_all = ["dry_run", "use_context", "context", "command_path", "exec_api_version"])]
    pub(crate) print: bool,
    /// Print the resulting kubeconfig and change nothing; not with --mode static, which issues a token
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Set the current context to this one
    #[arg(long = "use")]
    pub(crate) use_context: bool,
    #[command(flatten)]
    pub(crate) entry: EntryFlags,
}
