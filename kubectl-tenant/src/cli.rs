//! The command line: commands, flags and environment variables.

use std::path::PathBuf;

use clap::{
    Args, Parser, Subcommand, ValueHint,
    builder::{PossibleValuesParser, TypedValueParser},
};
use tenant_shared::{CLUSTER_NAME, CredentialId, ExecApiVersion, Name, PLUGIN_COMMAND};
use uuid::Uuid;

use crate::{
    broker::Mode,
    entry_name,
    models::arguments::Models,
    output::Format,
    reference,
    store::{AccountFlags, Storage},
    tenants::arguments::{Import, Namespaces, Tenants, UseTenant, WhyArgs},
};

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
    /// List, suspend and resume users (administrators)
    Users(Users),
    /// List the accounts on this machine, or choose the current one
    Profiles(Profiles),
    /// Create your workspace
    Init(Init),
    /// List your workspaces
    Workspaces(Workspaces),
    /// List tenants and their members; create, change, delete, suspend and resume them
    Tenants(Tenants),
    /// List, create and delete the namespaces of your tenants
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

/// Flags for kubeconfig entries.
#[derive(Clone, Debug, Args)]
pub(crate) struct EntryFlags {
    /// Name of context, cluster and user in the kubeconfig [default: the broker's names]
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

#[derive(Debug, Args)]
pub(crate) struct Logout {
    /// End all your sessions at the broker, including other machines and browsers
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Sessions {
    #[command(subcommand)]
    pub(crate) action: Option<SessionsAction>,
    #[command(flatten)]
    pub(crate) listed: ListedSessions,
}

#[derive(Debug, Args)]
pub(crate) struct ListedSessions {
    /// Sessions of another user, by e-mail address, identifier or namespace (administrators)
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<Name>,
    #[command(flatten)]
    pub(crate) listed: ListArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsAction {
    /// List sessions (the default)
    List(ListedSessions),
    /// End one session, or all
    Revoke(RevokeSession),
}

#[derive(Debug, Args)]
pub(crate) struct RevokeSession {
    /// Identifier of the session in the list
    #[arg(required_unless_present_any = ["all", "others"], conflicts_with_all = ["all", "others"])]
    pub(crate) id: Option<Uuid>,
    /// Every session, including this one
    #[arg(long)]
    pub(crate) all: bool,
    /// Every session except this one
    #[arg(long, conflicts_with = "user")]
    pub(crate) others: bool,
    /// Sessions of another user, by e-mail address, identifier or namespace (administrators)
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<Name>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Users {
    #[command(subcommand)]
    pub(crate) action: Option<UsersAction>,
    #[command(flatten)]
    pub(crate) listed: ListArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UsersAction {
    /// List users (the default)
    List(ListArgs),
    /// Suspend a user and all their workspaces: every session ends at once
    Suspend {
        /// E-mail address or identifier of the user, or namespace of their workspace
        user: Name,
        #[command(flatten)]
        reason: AuditReason,
        #[command(flatten)]
        shown: OutputArgs,
    },
    /// Resume a suspended user; their workspaces stay suspended
    Resume {
        /// E-mail address or identifier of the user, or namespace of their workspace
        user: Name,
        #[command(flatten)]
        reason: AuditReason,
        #[command(flatten)]
        shown: OutputArgs,
    },
    /// Change a user's e-mail address, so that somebody else can have the old one
    Rename {
        /// E-mail address or identifier of the user, or namespace of their workspace
        user: Name,
        /// New address; without it the user gets a placeholder that no mailbox can have
        #[arg(long, value_name = "ADDRESS")]
        email: Option<String>,
        #[command(flatten)]
        reason: AuditReason,
        #[command(flatten)]
        shown: OutputArgs,
    },
    /// Show the groups of a user for Tenants, or replace those of a local account
    Groups {
        /// E-mail address or identifier of the user, or namespace of their workspace
        user: Name,
        /// Group that the user has from now on; repeat it for several, which replace those before
        #[arg(long, value_name = "GROUP", conflicts_with = "none")]
        set: Vec<String>,
        /// Take all groups away
        #[arg(long)]
        none: bool,
        #[command(flatten)]
        reason: AuditReason,
        #[command(flatten)]
        shown: OutputArgs,
    },
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
    /// Print the broker's document and change nothing
    #[arg(long, conflicts_with_all = ["dry_run", "use_context", "context", "command_path", "exec_api_version"])]
    pub(crate) print: bool,
    /// Print the resulting kubeconfig and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Set the current context to this one
    #[arg(long = "use")]
    pub(crate) use_context: bool,
    #[command(flatten)]
    pub(crate) entry: EntryFlags,
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
        /// Folder of your PATH [default: the one of this plugin]
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

/// Parser of the versions without their group.
fn exec_api_version() -> impl TypedValueParser<Value = ExecApiVersion> {
    PossibleValuesParser::new(["v1", "v1beta1"]).map(|text| match text.as_str() {
        "v1beta1" => ExecApiVersion::V1Beta1,
        _ => ExecApiVersion::V1,
    })
}

fn absolute(text: &str) -> Result<String, String> {
    if PathBuf::from(text).is_absolute() {
        Ok(text.to_owned())
    } else {
        Err("it must be an absolute path".to_owned())
    }
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
