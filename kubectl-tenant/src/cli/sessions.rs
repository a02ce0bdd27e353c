//! Arguments of `sessions`.

use clap::{ArgGroup, Args, Subcommand};
use tenant_shared::Name;
use uuid::Uuid;

use super::{options::ListArgs, values::session_id};

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
#[command(group(ArgGroup::new("which").args(["id", "all", "others"]).required(true).multiple(true)))]
pub(crate) struct RevokeSession {
    /// Identifier of the session in the list
    #[arg(conflicts_with_all = ["all", "others"], value_parser = session_id)]
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
