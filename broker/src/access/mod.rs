//! May they: a person and an action give a permit, or a refusal.
//!
//! A [`Permit`] can only be made here, and what it allows takes one: a forgotten check does not
//! compile. Who may do what:
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
//! A machine (a session for one workspace) sees and uses that workspace as its owner does, gets 404
//! for every other and 403 for everything else, also where the owner is an administrator.
//!
//! 404 where even the existence is nobody else's business, 403 where the answer does not depend on
//! what exists.

use std::marker::PhantomData;

use tenant_shared::{Code, Role};
use uuid::Uuid;

use crate::{identity::Caller, problem::Failure};

/// Make a workspace of one's own.
#[derive(Debug)]
pub struct CreateWorkspace;
/// See a workspace.
#[derive(Debug)]
pub struct ReadWorkspace;
/// Get credentials of a workspace.
#[derive(Debug)]
pub struct UseWorkspace;
/// Revoke a credential of a workspace.
#[derive(Debug)]
pub struct RevokeCredentials;
/// Suspend or resume any workspace.
#[derive(Debug)]
pub struct SuspendWorkspaces;
/// See what everybody has and did.
#[derive(Debug)]
pub struct ReadEverything;

/// See, suspend, resume and rename users and end their sessions.
#[derive(Debug)]
pub struct ManageUsers;

/// Proof that a person may do `A`, on one workspace or in general.
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

    /// Who holds it.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The workspace it is for, if it is for one.
    pub fn workspace(&self) -> Option<Uuid> {
        self.workspace
    }
}

/// Something that belongs to a person.
pub trait Owned {
    /// Its identifier.
    fn id(&self) -> Uuid;
    /// Whose it is.
    fn owner(&self) -> Uuid;
}

/// Anyone signed in may make a workspace of their own.
pub fn create_workspace(caller: &Caller) -> Permit<CreateWorkspace> {
    Permit::grant(caller, None)
}

/// The owner and administrators may see a workspace.
///
/// # Errors
/// 404 for everybody else.
pub fn read_workspace(caller: &Caller, of: &impl Owned) -> Result<Permit<ReadWorkspace>, Failure> {
    let is_theirs = of.owner() == caller.user_id() || caller.role() == Role::Admin;
    if is_theirs && caller.may_know(of.id()) {
        Ok(Permit::grant(caller, Some(of.id())))
    } else {
        Err(no_such_workspace())
    }
}

/// Only the owner may get credentials of a workspace.
///
/// # Errors
/// 403 for administrators, 404 for everybody else.
pub fn use_workspace(caller: &Caller, of: &impl Owned) -> Result<Permit<UseWorkspace>, Failure> {
    read_workspace(caller, of)?;
    if of.owner() == caller.user_id() {
        Ok(Permit::grant(caller, Some(of.id())))
    } else {
        Err(Failure::new(Code::Forbidden, "only its owner gets credentials of a workspace"))
    }
}

/// The owner and administrators may revoke credentials of a workspace.
///
/// # Errors
/// 404 for everybody else.
pub fn revoke_credentials(
    caller: &Caller,
    of: &impl Owned,
) -> Result<Permit<RevokeCredentials>, Failure> {
    read_workspace(caller, of)?;
    Ok(Permit::grant(caller, Some(of.id())))
}

/// Administrators may suspend and resume.
///
/// # Errors
/// 403 for everybody else.
pub fn suspend_workspaces(caller: &Caller) -> Result<Permit<SuspendWorkspaces>, Failure> {
    administrator(caller)
}

/// Administrators may see everything.
///
/// # Errors
/// 403 for everybody else.
pub fn read_everything(caller: &Caller) -> Result<Permit<ReadEverything>, Failure> {
    administrator(caller)
}

/// Administrators may manage users.
///
/// # Errors
/// 403 for everybody else.
pub fn manage_users(caller: &Caller) -> Result<Permit<ManageUsers>, Failure> {
    administrator(caller)
}

fn administrator<A>(caller: &Caller) -> Result<Permit<A>, Failure> {
    match caller.role() {
        Role::Admin if caller.only_workspace().is_none() => Ok(Permit::grant(caller, None)),
        _ => Err(Failure::new(Code::Forbidden, "only an administrator may do that")),
    }
}

/// What is said of a name that nothing has, or nothing that this person may know of.
pub fn nothing_of_this_name() -> Failure {
    Failure::new(
        Code::NotFound,
        "nothing that you may see has this name: write the namespace (tenant-…), the identifier, or \
         the e-mail address or identifier of the owner",
    )
}

/// What is said of a workspace that does not exist, or that this person may not know of.
pub fn no_such_workspace() -> Failure {
    Failure::new(
        Code::NotFound,
        "there is no such workspace; `kubectl tenant workspaces` lists yours",
    )
}
