//! Flags that several commands have.

use clap::{Args, ValueHint};
use tenant_shared::ExecApiVersion;

use super::values::{absolute, exec_api_version};
use crate::{entry_name, output::Format};

/// Flags of commands that show data.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct OutputArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
}

/// Flag of commands that have a row in the audit trail.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AuditReason {
    /// Reason, for the audit trail
    #[arg(id = "reason", long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
}

/// Flags of commands that show a list.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ListArgs {
    /// Maximum number of rows; stderr says if there are more
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

/// Flags for kubeconfig entries.
#[derive(Clone, Debug, Args)]
pub(crate) struct EntryFlags {
    /// Name of context, cluster and user in the kubeconfig [default: the one chosen before, else
    /// the profile, else the broker's names; `use` takes the first two or tenant, and adds -TENANT]
    #[arg(long, visible_alias = "name", value_name = "NAME", value_parser = entry_name::check)]
    pub(crate) context: Option<String>,
    /// Absolute path of this plugin in the kubeconfig, for programs that do not search PATH
    #[arg(long, value_name = "FILE", value_parser = absolute, value_hint = ValueHint::FilePath)]
    pub(crate) command_path: Option<String>,
    /// Version of client.authentication.k8s.io in the kubeconfig: v1beta1 for programs that know no
    /// other, such as lightkube; remembered for this account [default: v1]
    #[arg(long, value_name = "VERSION", value_parser = exec_api_version())]
    pub(crate) exec_api_version: Option<ExecApiVersion>,
}
