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
//! | become a member of a tenant that names one | themselves | themselves | themselves |
//! | see the members of a tenant | yes | yes | members 403, others 404 |
//! | create a namespace of a tenant | yes | 403 | members 403, others 404 |
//! | see what was issued, revoke one credential | yes | yes | 404 |
//! | see a tenant and its namespaces | yes | yes | members yes, others 404 |
//! | suspend, resume a workspace or a tenant | 403 | yes | 403 |
//! | move a namespace into a tenant | 403 | yes | 403 |
//! | read, create, change and delete objects of the kind `Tenant` | 403 | yes | 403 |
//! | see everybody's workspaces and audit rows, and all tenants | 403 | yes | 403 |
//! | see, find, suspend, resume and rename users, give them groups, end their sessions | 403 | yes | 403 |
//!
//! A machine (its session is restricted to one workspace) sees and uses that workspace as its owner
//! does. It gets 404 for every other workspace and 403 for everything else, even if the owner is an
//! administrator.
//!
//! A refusal is 404 where even the existence must not be revealed, and 403 where the answer does
//! not depend on what exists.
//!
//! The owner and the members of a resource are read from its [`Grants`]. Those of a tenant are the
//! rights that the Tenant gives the caller, which `tenant` computes. Other modules pass grants on and
//! do not interpret them.

mod action;
mod examples;
mod permit;

use std::fmt;

use tenant_shared::Role;
use uuid::Uuid;

pub use action::{
    Action, CreateNamespace, CreateWorkspace, GeneralAction, JoinTenant, ListTenantMembers,
    ManageTenants, ManageUsers, MoveNamespaces, ReadEverything, ReadTenant, ReadWorkspace,
    ResourceAction, RevokeCredentials, Rule, SuspendTenants, SuspendWorkspaces, UseWorkspace,
};
pub use permit::{AllResources, Permit};

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

/// Roles on a resource: one owner and one member at most, because a resource that has more of them
/// is asked about one person at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grants {
    owner: Option<Uuid>,
    member: Option<Uuid>,
}

impl Grants {
    /// The grants of a resource with this one owner.
    pub fn owned_by(owner: Uuid) -> Self {
        Self { owner: Some(owner), member: None }
    }

    /// The grants of one person on a resource that has several owners and members.
    pub fn of_person(user: Uuid, is_owner: bool, is_member: bool) -> Self {
        Self { owner: is_owner.then_some(user), member: is_member.then_some(user) }
    }

    fn has_owner(self, caller: &Caller) -> bool {
        self.owner == Some(caller.user_id())
    }

    fn has_member(self, caller: &Caller) -> bool {
        self.has_owner(caller) || self.member == Some(caller.user_id())
    }
}

/// A resource that actions are authorized on.
pub trait Resource {
    /// Type of the identifier.
    type Id: fmt::Display;

    /// Identifier of the resource.
    fn id(&self) -> Self::Id;
    /// The workspace to which the session of a machine must be restricted for actions on the
    /// resource; `None`: no machine may take any.
    fn workspace(&self) -> Option<Uuid>;
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
    log_decision::<A>(caller, Some(&resource.id()), decision);
    decision.map(|()| Permit::grant(caller, resource))
}

/// Authorizes an action that concerns no resource, or every resource.
///
/// # Errors
/// The caller may not take the action.
pub fn authorize_all<A: GeneralAction>(caller: &Caller) -> Result<Permit<A>, AccessError> {
    let decision = match A::RULE {
        Rule::Everybody => Ok(()),
        Rule::Administrator
        | Rule::MemberOrAdministrator
        | Rule::OwnerOrAdministrator
        | Rule::Owner => require_administrator(caller),
    };
    log_decision::<A>(caller, None, decision);
    decision.map(|()| Permit::grant(caller, AllResources))
}

/// Checks before a resource is looked up whether the caller may take the action on any resource, so
/// that a refusal does not depend on what exists.
///
/// # Errors
/// The caller may take the action on no resource.
pub fn authorize_lookup<A: ResourceAction>(caller: &Caller) -> Result<(), AccessError> {
    let decision = match A::RULE {
        Rule::Administrator => require_administrator(caller),
        Rule::Everybody
        | Rule::MemberOrAdministrator
        | Rule::OwnerOrAdministrator
        | Rule::Owner => Ok(()),
    };
    log_decision::<A>(caller, None, decision);
    decision
}

/// Writes the debug line of a decision; `resource` is `None` if the decision is not about one
/// resource.
fn log_decision<A: Action>(
    caller: &Caller,
    resource: Option<&dyn fmt::Display>,
    decision: Result<(), AccessError>,
) {
    tracing::debug!(
        action = A::NAME,
        resource = resource.map(tracing::field::display),
        user_id = %caller.user_id(),
        allowed = decision.is_ok(),
        "authorization decision"
    );
}

/// The audit rows that the caller may read: their own, or all for an administrator. Rows of one
/// workspace need the permit to see it.
pub fn audit_scope(caller: &Caller) -> audit::Scope {
    match authorize_all::<ReadEverything>(caller) {
        Ok(_) => audit::Scope::for_administrator(),
        Err(_) => own_audit_scope(caller),
    }
}

/// Authorizes the export of the whole audit trail.
///
/// # Errors
/// The caller is no administrator.
pub fn whole_trail(caller: &Caller) -> Result<audit::WholeTrail, AccessError> {
    authorize_all::<ReadEverything>(caller).map(|_| audit::WholeTrail::for_administrator())
}

/// The audit rows of the caller: their own actions, and what happened to them and their workspaces.
pub fn own_audit_scope(caller: &Caller) -> audit::Scope {
    audit::Scope::about_user(caller.user_id())
}

/// The rules of the table in the module documentation.
fn decide(caller: &Caller, rule: Rule, resource: &impl Resource) -> Result<(), AccessError> {
    let grants = resource.grants();
    let (is_owner, is_administrator) = (grants.has_owner(caller), caller.role() == Role::Admin);
    let is_visible = grants.has_member(caller) || is_administrator;
    let is_in_scope = caller.only_workspace().is_none_or(|only| resource.workspace() == Some(only));
    let sees = if is_visible && is_in_scope { Ok(()) } else { Err(AccessError::WorkspaceNotFound) };
    let require = |holds: bool| if holds { Ok(()) } else { Err(AccessError::NotOwner) };
    match rule {
        Rule::Everybody | Rule::MemberOrAdministrator => sees,
        Rule::OwnerOrAdministrator => sees.and(require(is_owner || is_administrator)),
        Rule::Owner => sees.and(require(is_owner)),
        Rule::Administrator => require_administrator(caller),
    }
}

fn require_administrator(caller: &Caller) -> Result<(), AccessError> {
    match caller.role() {
        Role::Admin if caller.only_workspace().is_none() => Ok(()),
        _ => Err(AccessError::NotAdministrator),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use serde_json::Value;

    use super::*;
    use crate::base::clock::Clock;

    struct TestResource {
        id: Uuid,
        owner: Uuid,
    }

    impl Resource for TestResource {
        type Id = Uuid;

        fn id(&self) -> Uuid {
            self.id
        }

        fn workspace(&self) -> Option<Uuid> {
            Some(self.id)
        }

        fn grants(&self) -> Grants {
            Grants::owned_by(self.owner)
        }
    }

    /// Log lines. Clones share them.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A tenant as a person sees it.
    struct TestTenant {
        user: Uuid,
        is_owner: bool,
        is_member: bool,
    }

    impl Resource for TestTenant {
        type Id = &'static str;

        fn id(&self) -> &'static str {
            "solar"
        }

        fn workspace(&self) -> Option<Uuid> {
            None
        }

        fn grants(&self) -> Grants {
            Grants::of_person(self.user, self.is_owner, self.is_member)
        }
    }

    #[test]
    fn tenants_have_rules_for_owners_members_and_administrators() {
        let clock = Clock::manual("2026-01-02T03:04:05Z".parse().unwrap());
        let (user, other) = (clock.random_id(), clock.random_id());
        let of = |role, grantee, is_owner, is_member| {
            let caller = Caller::for_tests(&clock, user, role);
            let tenant = || TestTenant { user: grantee, is_owner, is_member };
            [
                authorize::<ReadTenant, _>(&caller, tenant()).err(),
                authorize::<ListTenantMembers, _>(&caller, tenant()).err(),
                authorize::<CreateNamespace, _>(&caller, tenant()).err(),
            ]
        };
        let (hidden, not_owner) =
            (Some(AccessError::WorkspaceNotFound), Some(AccessError::NotOwner));
        assert_eq!(of(Role::User, user, true, true), [None; 3]);
        assert_eq!(of(Role::User, user, false, true), [None, not_owner, not_owner]);
        assert_eq!(of(Role::User, user, false, false), [hidden; 3]);
        assert_eq!(of(Role::User, other, true, true), [hidden; 3], "grants of somebody else");
        assert_eq!(of(Role::Admin, user, false, false), [None, None, not_owner]);
    }

    #[test]
    fn each_decision_writes_one_debug_line() {
        let clock = Clock::manual("2026-01-02T03:04:05Z".parse().unwrap());
        let (id, user) = (clock.random_id(), clock.random_id());
        let caller = Caller::for_tests(&clock, user, Role::User);
        let decide = || {
            assert!(authorize_lookup::<SuspendWorkspaces>(&caller).is_err());
            assert!(authorize_lookup::<ReadWorkspace>(&caller).is_ok());
            assert!(authorize_all::<ManageUsers>(&caller).is_err());
            let (own, other) = (TestResource { id, owner: user }, TestResource { id, owner: id });
            assert!(authorize::<ReadWorkspace, _>(&caller, own).is_ok());
            assert!(authorize::<UseWorkspace, _>(&caller, other).is_err());
        };
        // Without a subscriber, because tracing registers the line's callsite at its first use, and
        // a concurrent test on another thread could register it as disabled.
        decide();
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, decide);
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let user_id = user.to_string();
        let same = |line: &Value| {
            line["message"] == "authorization decision"
                && line["level"] == "DEBUG"
                && line["user_id"] == user_id
        };
        assert!(lines.iter().all(same), "{text}");
        let decisions: Vec<(&str, Option<&str>, bool)> = lines
            .iter()
            .map(|line| {
                let action = line["action"].as_str().unwrap();
                (action, line["resource"].as_str(), line["allowed"].as_bool().unwrap())
            })
            .collect();
        let id = id.to_string();
        let expected = [
            ("SuspendWorkspaces", None, false),
            ("ReadWorkspace", None, true),
            ("ManageUsers", None, false),
            ("ReadWorkspace", Some(id.as_str()), true),
            ("UseWorkspace", Some(id.as_str()), false),
        ];
        assert_eq!(decisions, expected);
    }
}
