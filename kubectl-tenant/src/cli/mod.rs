//! The command line: commands and flags.
//!
//! | file | arguments of |
//! |---|---|
//! | `accounts` | `login`, `logout`, `profiles` |
//! | `sessions`, `users` | the commands of these names |
//! | `workspaces` | `init`, `workspaces`, `usage`, `audit`, `suspend`, `resume`, `kubeconfig` |
//! | `credentials` | `credentials`, `get-token` |
//! | `tenants`, `resource_target` | `tenants`, `use`, `why`, `import` |
//! | `namespaces`, `models` | the commands of these names |
//! | `options`, `values` | flags that several commands have, and parsers of values |

pub(crate) mod accounts;
pub(crate) mod credentials;
pub(crate) mod models;
pub(crate) mod namespaces;
pub(crate) mod options;
mod resource_target;
pub(crate) mod sessions;
pub(crate) mod tenants;
pub(crate) mod users;
mod values;
pub(crate) mod workspaces;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueHint};
use tenant_shared::PLUGIN_COMMAND;

use self::{
    accounts::{Login, Logout, Profiles},
    credentials::{Credentials, GetToken},
    models::Models,
    namespaces::Namespaces,
    options::OutputArgs,
    sessions::Sessions,
    tenants::{Import, Tenants, UseTenant, WhyArgs},
    users::Users,
    workspaces::{Audit, Init, Kubeconfig, Suspend, Usage, Workspaces},
};
use crate::{reference, store::AccountFlags};

/// Your own namespace in a shared cluster: sign in once, then use kubectl as usual.
#[derive(Debug, Parser)]
#[command(name = PLUGIN_COMMAND, bin_name = "kubectl tenant", version, after_help = reference::after_help())]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) flags: AccountFlags,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Sign in, create your workspace if there is none, and point kubectl at it
    Login(Login),
    /// End the session and delete what is stored here
    Logout(Logout),
    /// Show who is signed in, where, and until when
    Whoami(OutputArgs),
    /// List your sessions, or end them
    Sessions(Sessions),
    /// List, suspend, resume and rename users, and set their groups (administrators)
    Users(Users),
    /// List the accounts on this machine, or choose the current one
    Profiles(Profiles),
    /// Create your workspace
    Init(Init),
    /// List your workspaces
    Workspaces(Workspaces),
    /// List tenants and their members; create, change, delete, suspend and resume them
    Tenants(Tenants),
    /// List, create, delete, adopt and transfer the namespaces of tenants
    Namespaces(Namespaces),
    /// List the models of a namespace; install, watch and delete a Llama Stack for them
    Models(Models),
    /// Become a member of a tenant, and point kubectl at its namespaces
    Use(UseTenant),
    /// Explain which entry of a Tenant gives you a right in a namespace
    Why(WhyArgs),
    /// Translate Tenants of capsule.clastix.io, for kubectl apply
    Import(Import),
    /// List the credentials of a workspace, or revoke one
    Credentials(Credentials),
    /// Show the gateway usage of a workspace
    Usage(Usage),
    /// Show the audit trail: sign-ins, issued tokens, suspensions, refusals
    Audit(Audit),
    /// Suspend a workspace: no new tokens, and old ones stop working (administrators)
    Suspend(Suspend),
    /// Resume a suspended workspace (administrators)
    Resume(Suspend),
    /// Merge your workspace into the kubeconfig, or print it
    Kubeconfig(Kubeconfig),
    /// Print a token for kubectl (kubectl calls this itself)
    GetToken(GetToken),
    /// Show sessions, tokens and the last failure, without asking the broker
    Status(OutputArgs),
    /// Print a completion script, or install the one for kubectl
    Completion {
        #[command(subcommand)]
        action: CompletionAction,
    },
    /// Show the versions of plugin and broker, and whether they work together
    Version(Version),
    /// Write the manual pages, one for each command (packages call this)
    #[command(hide = true)]
    Man {
        /// Folder for the pages, such as /usr/local/share/man/man1; created if missing
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum CompletionAction {
    /// Script for bash, for `kubectl-tenant …`
    Bash,
    /// Script for zsh, for `kubectl-tenant …`
    Zsh,
    /// Script for fish, for `kubectl-tenant …`
    Fish,
    /// The program kubectl_complete-tenant, with which kubectl completes `kubectl tenant …`
    Kubectl,
    /// Install kubectl_complete-tenant, so that kubectl completes `kubectl tenant …`
    Install {
        /// Folder of your PATH, created if missing [default: the one of this plugin]
        #[arg(long = "dir", value_name = "DIR", value_hint = ValueHint::DirPath)]
        folder: Option<PathBuf>,
    },
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Version {
    /// Show the plugin's version only; the broker is not asked
    #[arg(long)]
    pub(crate) client: bool,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use clap::{CommandFactory, error::ErrorKind};

    #[test]
    fn the_command_tree_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Appends the help of each visible command below `parent`. `path` has the names of `parent`
    /// and the commands above it, without the program.
    fn append_help(root: &clap::Command, parent: &clap::Command, path: &[&str], all: &mut String) {
        for command in parent.get_subcommands().filter(|command| !command.is_hide_set()) {
            let path = [path, &[command.get_name()]].concat();
            let args = [&[PLUGIN_COMMAND][..], &path, &["--help"]].concat();
            let help = root.clone().try_get_matches_from(args).unwrap_err();
            assert_eq!(help.kind(), ErrorKind::DisplayHelp, "{path:?}");
            all.extend([format!("=== {}\n{}\n", path.join(" "), help.render())]);
            append_help(root, command, &path, all);
        }
    }

    #[test]
    fn help_of_each_command() {
        // The width that clap uses without a terminal.
        let root = Cli::command().term_width(100);
        let mut all = String::new();
        append_help(&root, &root, &[], &mut all);
        insta::assert_snapshot!(all);
    }

    #[test]
    fn the_cache_hit_parser_agrees_with_clap() {
        let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
        let line = format!("x get-token --cluster=c --workspace={id} --broker=https://b.example");
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let hit = tenant_cached_token::CacheKey::from_args(&args).unwrap();
        let cli = Cli::try_parse_from(&args).unwrap();
        let Command::GetToken(slow) = cli.command else { panic!("another command") };
        assert_eq!(hit.cluster, slow.cluster);
        assert_eq!(hit.workspace, slow.workspace.to_string());
        assert_eq!(hit.broker, cli.flags.broker.unwrap());
    }
}
