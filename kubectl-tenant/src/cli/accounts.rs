//! Arguments of `login`, `logout` and `profiles`.

use clap::{Args, Subcommand};

use super::options::{EntryFlags, OutputArgs};
use crate::store::Storage;

#[derive(Debug, Args)]
pub(crate) struct Login {
    #[command(flatten)]
    pub(crate) method: SignInFlags,
    /// Where to keep the session; remembered for this account [default: keyring if there is one,
    /// else file]
    #[arg(long, value_enum, value_name = "WHERE")]
    pub(crate) storage: Option<Storage>,
    /// Tier of the workspace, if one has to be created [default: basic]
    #[arg(long, value_name = "TIER")]
    pub(crate) tier: Option<String>,
    /// Make the new context the current one (the default)
    #[arg(long = "use", overrides_with = "no_use")]
    pub(crate) use_context: bool,
    /// Leave the current context as it is
    #[arg(long, overrides_with = "use_context")]
    pub(crate) no_use: bool,
    #[command(flatten)]
    pub(crate) entry: EntryFlags,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

/// Flags that override the sign-in method that fits the machine.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SignInFlags {
    /// Do not open a browser: show an address for any browser and read the code from stdin
    #[arg(long)]
    pub(crate) no_browser: bool,
    /// Sign in on another device: show a code to type there (the default over SSH, in containers and
    /// without a desktop)
    #[arg(long, conflicts_with = "no_browser")]
    pub(crate) device: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Logout {
    /// End all your sessions at the broker, including other machines and browsers
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Profiles {
    #[command(subcommand)]
    pub(crate) action: Option<ProfilesAction>,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProfilesAction {
    /// List the accounts (the default)
    List(OutputArgs),
    /// Choose the current account
    Use {
        /// Name of the account in the list
        name: String,
    },
}
