//! Errors of the management of users.

use crate::{
    access::AccessError,
    identity::{GroupsError, NotAnEmail, SIGN_IN},
    workspace::WorkspaceError,
};

/// An operation on a user was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// No user has the identifier.
    #[error("there is no such user; `kubectl tenant users list` lists them")]
    NotFound,
    /// Administrators cannot suspend themselves.
    #[error("you cannot suspend yourself; another administrator has to")]
    Yourself,
    /// The caller was suspended or lost the administrator role after the request was authenticated.
    /// The text is that of the error that all their later requests get.
    #[error("{SIGN_IN}")]
    FormerAdministrator,
    /// Another user has the e-mail address.
    #[error("another user has this e-mail address; change theirs first")]
    EmailTaken,
    /// The e-mail address is malformed.
    #[error(transparent)]
    Email(#[from] NotAnEmail),
    /// The request has no list of groups.
    #[error("groups is missing: send all groups of the user, or [] for none")]
    NoGroups,
    /// The groups cannot be used.
    #[error(transparent)]
    Groups(#[from] GroupsError),
    /// A sign-in provider decides on the groups of the user.
    #[error(
        "this user signs in at a provider, which decides on their groups: change them there. The \
         broker takes them over when the user signs in or renews the session"
    )]
    GroupsOfProvider,
    /// The caller may not manage users, or nothing has the name.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The suspension of a workspace failed.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The database failed.
    #[error("the database failed")]
    Storage(#[from] sqlx::Error),
}
