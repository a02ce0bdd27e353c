//! Arguments of `users`.

use clap::{Args, Subcommand};
use tenant_shared::Name;

use super::options::{AuditReason, ListArgs, OutputArgs};

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
    Rename(RenameUser),
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
pub(crate) struct RenameUser {
    /// E-mail address or identifier of the user, or namespace of their workspace
    pub(crate) user: Name,
    /// New address; without it the user gets a placeholder that no mailbox can have, after a
    /// confirmation
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) email: Option<String>,
    /// Do not ask for the confirmation of a placeholder
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) reason: AuditReason,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}
