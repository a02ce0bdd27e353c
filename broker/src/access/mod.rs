//! Authorization: decides whether a caller may take an action, and returns a [`Permit`] or a
//! refusal.
//!
//! Only this module makes a [`Permit`], and each protected function takes one for its action and
//! its resource, so a forgotten check does not compile. The rules:
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
//!
//! The owner of a resource is read from its [`Grants`]. Other modules pass them on and do not
//! interpret them.

mod action;
mod examples;
mod permit;

use tenant_shared::Role;
use uuid::Uuid;

pub use action::{
    Action, CreateWorkspace, GeneralAction, ManageUsers, ReadEverything, ReadWorkspace,
    ResourceAction, RevokeCredentials, Rule, SuspendWorkspaces, UseWorkspace,
};
pub use permit::{Everything, Permit};

use crate::{audit, identity::Caller};

/// A refused action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The workspace does not exist, or the caller must not learn about it.
    #[error("there is no such workspace; `kubectl tenant workspaces` lists yours")]
    WorkspaceNotFound,
    /// Nothing with this name exists, or the caller must not learn about it.
    #[error(
        "nothing that you may see has this name: write the namespace (tenant-…), the identifier, or \
         the e-mail address or identifier of the owner"
    )]
    NameNotFound,
    /// The caller may see the workspace, but only its owner may do this.
    #[error("only its owner gets credentials of a workspace")]
    NotOwner,
    /// The caller is no administrator.
    #[error("only an administrator may do that")]
    NotAdministrator,
}

/// Roles on a resource. Today there is one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grants {
    owner: Uuid,
}

impl Grants {
    /// The grants of a resource with this one owner.
    pub fn owned_by(owner: Uuid) -> Self {
        Self { owner }
    }

    fn has_owner(self, caller: &Caller) -> bool {
        self.owner == caller.user_id()
    }
}

/// A resource that actions are authorized on.
pub trait Resource {
    /// Identifier of the resource.
    fn id(&self) -> Uuid;
    /// Roles on the resource.
    fn grants(&self) -> Grants;
}

/// Authorizes an action on a resource. The permit contains the resource.
///
/// # Errors
/// The caller may not take the action, or must not learn about the resource.
pub fn authorize<A: ResourceAction, R: Resource>(
    caller: &Caller,
    resource: R,
) -> Result<Permit<A, R>, AccessError> {
    let decision = decide(caller, A::RULE, &resource);
    tracing::debug!(
        action = A::NAME,
        resource = %resource.id(),
        user_id = %caller.user_id(),
        allowed = decision.is_ok(),
        "authorization decision"
    );
    decision.map(|()| Permit::grant(caller, resource))
}

/// Authorizes an action that concerns no resource, or every resource.
///
/// # Errors
/// The caller may not take the action.
pub fn authorize_all<A: GeneralAction>(caller: &Caller) -> Result<Permit<A>, AccessError> {
    let decision = match A::RULE {
        Rule::Everybody => Ok(()),
        Rule::Administrator | Rule::OwnerOrAdministrator | Rule::Owner => {
            require_administrator(caller)
        }
    };
    tracing::debug!(
        action = A::NAME,
        user_id = %caller.user_id(),
        allowed = decision.is_ok(),
        "authorization decision"
    );
    decision.map(|()| Permit::grant(caller, Everything))
}

/// Checks before a resource is looked up whether the caller may take the action on any resource, so
/// that a refusal does not depend on what exists.
///
/// # Errors
/// The caller may take the action on no resource.
pub fn authorize_lookup<A: ResourceAction>(caller: &Caller) -> Result<(), AccessError> {
    match A::RULE {
        Rule::Administrator => require_administrator(caller),
        Rule::Everybody | Rule::OwnerOrAdministrator | Rule::Owner => Ok(()),
    }
}

/// The audit rows that the caller may read: their own, or all for an administrator. Rows of one
/// workspace need the permit to see it.
pub fn audit_scope(caller: &Caller) -> audit::Scope {
    match require_administrator(caller) {
        Ok(()) => audit::Scope::all(),
        Err(_) => own_audit_scope(caller),
    }
}

/// Authorizes the export of the whole audit trail.
///
/// # Errors
/// The caller is no administrator.
pub fn whole_trail(caller: &Caller) -> Result<audit::WholeTrail, AccessError> {
    authorize_all::<ReadEverything>(caller).map(|_| audit::WholeTrail::authorized())
}

/// The audit rows of the caller: their own actions, and what happened to them and their workspaces.
pub fn own_audit_scope(caller: &Caller) -> audit::Scope {
    audit::Scope::of_user(caller.user_id())
}

/// The rules of the table in the module documentation.
fn decide(caller: &Caller, rule: Rule, resource: &impl Resource) -> Result<(), AccessError> {
    let is_owner = resource.grants().has_owner(caller);
    let is_visible = is_owner || caller.role() == Role::Admin;
    let sees = if is_visible && caller.is_scoped_to(resource.id()) {
        Ok(())
    } else {
        Err(AccessError::WorkspaceNotFound)
    };
    match rule {
        Rule::Everybody | Rule::OwnerOrAdministrator => sees,
        Rule::Owner => sees.and(if is_owner { Ok(()) } else { Err(AccessError::NotOwner) }),
        Rule::Administrator => require_administrator(caller),
    }
}

fn require_administrator(caller: &Caller) -> Result<(), AccessError> {
    match caller.role() {
        Role::Admin if caller.only_workspace().is_none() => Ok(()),
        _ => Err(AccessError::NotAdministrator),
    }
}
