//! The roles that the member of a tenant has during a request.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use uuid::Uuid;

use crate::{identity::Caller, tenant::ClusterRoleName};

/// A user, and the only workspace of the session if it is restricted to one.
pub(super) type Scope = (Uuid, Option<Uuid>);

/// The scope of a caller.
pub(super) fn scope_of(caller: &Caller) -> Scope {
    (caller.user_id(), caller.only_workspace())
}

/// The roles that the member of a tenant had at any time since a request began. The API server may
/// have allowed the request by any of them.
#[derive(Debug)]
pub(super) struct RequestRights {
    caller: Caller,
    had: Mutex<Had>,
}

#[derive(Debug)]
struct Had {
    roles: Arc<BTreeSet<ClusterRoleName>>,
    /// The revision of the Tenants with which they were compared last.
    revision: u64,
}

impl RequestRights {
    /// The roles that the Tenants of a revision give a caller.
    pub(super) fn new(
        caller: Caller,
        (roles, revision): (Arc<BTreeSet<ClusterRoleName>>, u64),
    ) -> Self {
        Self { caller, had: Mutex::new(Had { roles, revision }) }
    }

    /// The member.
    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Requests of the same scope are compared together.
    pub(super) fn scope(&self) -> Scope {
        scope_of(&self.caller)
    }

    /// Whether a Tenant or the person may have changed since the roles were compared.
    pub(super) fn is_due(&self, revision: u64, changed: &BTreeSet<Uuid>) -> bool {
        self.had().revision != revision || changed.contains(&self.caller.user_id())
    }

    /// Compares with the roles that the Tenants of a revision give. Returns whether the member lost
    /// one. Others are added, because the request may have begun after the member had them.
    pub(super) fn compare(
        &self,
        roles: Option<&Arc<BTreeSet<ClusterRoleName>>>,
        revision: u64,
    ) -> bool {
        let mut had = self.had();
        had.revision = revision;
        let Some(roles) = roles else { return !had.roles.is_empty() };
        let is_lost = !had.roles.is_subset(roles);
        if !is_lost {
            had.roles = Arc::clone(roles);
        }
        is_lost
    }

    /// No code panics while it has the lock.
    fn had(&self) -> MutexGuard<'_, Had> {
        self.had.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tenant_shared::Role;

    use super::*;
    use crate::base::clock::Clock;

    fn roles(names: &[&str]) -> Arc<BTreeSet<ClusterRoleName>> {
        Arc::new(names.iter().map(|name| name.parse().unwrap()).collect())
    }

    fn rights(user: u128, names: &[&str]) -> RequestRights {
        let caller = Caller::for_tests(&Clock::system(), Uuid::from_u128(user), Role::User);
        RequestRights::new(caller, (roles(names), 7))
    }

    #[test]
    fn a_role_that_is_not_given_any_more_is_lost() {
        for (now, expected) in [
            (Some(roles(&["admin", "view"])), false),
            (Some(roles(&["admin", "edit", "view"])), false),
            (Some(roles(&["view"])), true),
            (Some(roles(&[])), true),
            (None, true),
        ] {
            let rights = rights(1, &["admin", "view"]);
            assert_eq!(rights.compare(now.as_ref(), 8), expected, "{now:?}");
        }
        assert!(!rights(1, &[]).compare(None, 8), "owners of other objects may have given it");
    }

    /// The broker may have learned of a role after the API server.
    #[test]
    fn a_role_that_is_given_later_can_be_lost() {
        let rights = rights(1, &["view"]);
        assert!(!rights.compare(Some(&roles(&["admin", "view"])), 8));
        assert!(rights.compare(Some(&roles(&["view"])), 9));
    }

    #[test]
    fn roles_are_compared_after_a_change_of_a_tenant_or_the_person() {
        let rights = rights(1, &["view"]);
        let users = |id| BTreeSet::from([Uuid::from_u128(id)]);
        assert!(!rights.is_due(7, &users(2)));
        assert!(rights.is_due(7, &users(1)));
        assert!(rights.is_due(8, &users(2)));
        rights.compare(Some(&roles(&["view"])), 8);
        assert!(!rights.is_due(8, &users(2)));
    }
}
