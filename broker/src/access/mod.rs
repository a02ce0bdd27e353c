//! Authorization: checks that a caller may take an action, and returns a [`Permit`] or a refusal.
//!
//! Only this module makes a [`Permit`], and each protected function takes one, so a forgotten check
//! does not compile. The rules:
//!
//! | action | owner | administrator | another person |
//! |---|---|---|---|
//! | create a workspace | their own | their own | their own |
//! | see a workspace and its audit rows, find it by a name | yes | yes | 404 |
//! | get credentials of a workspace | yes | 403 | 404 |
//! | see what was issued, revoke one credential | yes | yes | 404 |
//! | suspend, resume | 403 | yes | 403 |
//! | see everybody's workspaces and audit rows | 403 | yes | 403 |
//! | see, find, suspend, resume and rename users, end their sessions | 403 | yes | 403 |
//!
//! A machine (its session is restricted to one workspace) sees and uses that workspace as its owner
//! does. It gets 404 for every other workspace and 403 for everything else, even if the owner is an
//! administrator.
//!
//! A refusal is 404 where even the existence must not be revealed, and 403 where the answer does
//! not depend on what exists.

use std::marker::PhantomData;

use tenant_shared::{Code, Role};
use uuid::Uuid;

use crate::{http::ApiError, identity::Caller};

/// Action: create a workspace of the caller's own.
#[derive(Debug)]
pub struct CreateWorkspace;
/// Action: see a workspace.
#[derive(Debug)]
pub struct ReadWorkspace;
/// Action: get credentials of a workspace.
#[derive(Debug)]
pub struct UseWorkspace;
/// Action: revoke a credential of a workspace.
#[derive(Debug)]
pub struct RevokeCredentials;
/// Action: suspend or resume any workspace.
#[derive(Debug)]
pub struct SuspendWorkspaces;
/// Action: see everybody's workspaces and audit rows.
#[derive(Debug)]
pub struct ReadEverything;
/// Action: see, suspend, resume and rename users and end their sessions.
#[derive(Debug)]
pub struct ManageUsers;

/// Proof that a caller may take action `A`, on one workspace or in general.
#[derive(Debug)]
pub struct Permit<A> {
    caller: Caller,
    workspace: Option<Uuid>,
    action: PhantomData<A>,
}

impl<A> Permit<A> {
    fn grant(caller: &Caller, workspace: Option<Uuid>) -> Self {
        Self { caller: caller.clone(), workspace, action: PhantomData }
    }

    /// The caller who has the permit.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The workspace that the permit is for, if it is for one.
    pub fn workspace(&self) -> Option<Uuid> {
        self.workspace
    }
}

/// A resource that belongs to a user.
pub trait Owned {
    /// Identifier of the resource.
    fn id(&self) -> Uuid;
    /// Identifier of the user who owns the resource.
    fn owner(&self) -> Uuid;
}

/// Every authenticated user may create a workspace of their own.
pub fn create_workspace(caller: &Caller) -> Permit<CreateWorkspace> {
    Permit::grant(caller, None)
}

/// The owner and administrators may see a workspace.
///
/// # Errors
/// 404 for everybody else.
pub fn read_workspace(
    caller: &Caller,
    resource: &impl Owned,
) -> Result<Permit<ReadWorkspace>, ApiError> {
    let is_visible = resource.owner() == caller.user_id() || caller.role() == Role::Admin;
    if is_visible && caller.is_scoped_to(resource.id()) {
        Ok(Permit::grant(caller, Some(resource.id())))
    } else {
        Err(workspace_not_found())
    }
}

/// Only the owner may get credentials of a workspace.
///
/// # Errors
/// 403 for administrators, 404 for everybody else.
pub fn use_workspace(
    caller: &Caller,
    resource: &impl Owned,
) -> Result<Permit<UseWorkspace>, ApiError> {
    read_workspace(caller, resource)?;
    if resource.owner() == caller.user_id() {
        Ok(Permit::grant(caller, Some(resource.id())))
    } else {
        Err(ApiError::new(Code::Forbidden, "only its owner gets credentials of a workspace"))
    }
}

/// The owner and administrators may revoke credentials of a workspace.
///
/// # Errors
/// 404 for everybody else.
pub fn revoke_credentials(
    caller: &Caller,
    resource: &impl Owned,
) -> Result<Permit<RevokeCredentials>, ApiError> {
    read_workspace(caller, resource)?;
    Ok(Permit::grant(caller, Some(resource.id())))
}

/// Administrators may suspend and resume.
///
/// # Errors
/// 403 for everybody else.
pub fn suspend_workspaces(caller: &Caller) -> Result<Permit<SuspendWorkspaces>, ApiError> {
    require_administrator(caller)
}

/// Administrators may see everything.
///
/// # Errors
/// 403 for everybody else.
pub fn read_everything(caller: &Caller) -> Result<Permit<ReadEverything>, ApiError> {
    require_administrator(caller)
}

/// Administrators may manage users.
///
/// # Errors
/// 403 for everybody else.
pub fn manage_users(caller: &Caller) -> Result<Permit<ManageUsers>, ApiError> {
    require_administrator(caller)
}

fn require_administrator<A>(caller: &Caller) -> Result<Permit<A>, ApiError> {
    match caller.role() {
        Role::Admin if caller.only_workspace().is_none() => Ok(Permit::grant(caller, None)),
        _ => Err(ApiError::new(Code::Forbidden, "only an administrator may do that")),
    }
}

/// The error for a name that does not exist, or that the caller must not learn about.
pub fn name_not_found() -> ApiError {
    ApiError::new(
        Code::NotFound,
        "nothing that you may see has this name: write the namespace (tenant-…), the identifier, or \
         the e-mail address or identifier of the owner",
    )
}

/// The error for a workspace that does not exist, or that the caller must not learn about.
pub fn workspace_not_found() -> ApiError {
    ApiError::new(
        Code::NotFound,
        "there is no such workspace; `kubectl tenant workspaces` lists yours",
    )
}
