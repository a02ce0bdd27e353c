//! The roles that the member of a tenant has during a request.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use uuid::Uuid;

use crate::{identity::Caller, tenant::ClusterRoleName};

/// A user, and the only workspace of the session if it is restricted to one.
pub(in crate::gateway) type CallerScope = (Uuid, Option<Uuid>);

/// The scope of a caller.
pub(in crate::gateway) fn scope_of(caller: &Caller) -> CallerScope {
    (caller.user_id(), caller.only_workspace())
}

/// The roles that the member of a tenant had at any time since a request began. The API server may
/// have allowed the request by any of them.
#[derive(Debug)]
pub(in crate::gateway) struct RequestRights {
    caller: Caller,
    history: Mutex<RoleHistory>,
}

#[derive(Debug)]
struct RoleHistory {
    roles: Arc<BTreeSet<ClusterRoleName>>,
    /// The revision of the Tenants with which they were compared last.
    revision: u64,
    /// `None` after a comparison.
    due: Option<PendingComparison>,
}

/// A comparison that is to be made.
#[derive(Debug)]
struct PendingComparison {
    /// Time of the last comparison.
    since: Instant,
    /// When it was last found to be due. A comparison of what was read before does not count.
    latest: Instant,
    /// Whether the next poll makes it. Others are left to the sweep.
    is_urgent: bool,
}

impl RequestRights {
    /// The roles that the Tenants of a revision give a caller.
    pub(in crate::gateway) fn new(
        caller: Caller,
        (roles, revision): (Arc<BTreeSet<ClusterRoleName>>, u64),
    ) -> Self {
        Self { caller, history: Mutex::new(RoleHistory { roles, revision, due: None }) }
    }

    /// The member.
    pub(in crate::gateway) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Requests of the same scope are compared together.
    pub(in crate::gateway) fn scope(&self) -> CallerScope {
        scope_of(&self.caller)
    }

    /// Whether a Tenant or the person may have changed since the roles were compared.
    pub(in crate::gateway) fn is_due(&self, revision: u64, changed: &BTreeSet<Uuid>) -> bool {
        let history = self.history();
        history.revision != revision
            || history.due.as_ref().is_some_and(|due| due.is_urgent)
            || changed.contains(&self.caller.user_id())
    }

    /// Records that the roles are to be compared with what is read from now on.
    pub(in crate::gateway) fn set_due(&self, now: Instant, is_urgent: bool) {
        let mut history = self.history();
        let due =
            history.due.get_or_insert(PendingComparison { since: now, latest: now, is_urgent });
        due.latest = due.latest.max(now);
        due.is_urgent |= is_urgent;
    }

    /// Whether the roles have not been compared for `max_age` although that was due.
    pub(in crate::gateway) fn is_overdue(&self, max_age: Duration, now: Instant) -> bool {
        let history = self.history();
        history.due.as_ref().is_some_and(|due| now.saturating_duration_since(due.since) >= max_age)
    }

    /// Compares with the roles that the Tenants of a revision give, as read since `read_at`. Returns
    /// whether the member lost one. Others are added, because the request may have begun after the
    /// member had them.
    pub(in crate::gateway) fn compare(
        &self,
        roles: Option<&Arc<BTreeSet<ClusterRoleName>>>,
        (revision, read_at): (u64, Instant),
    ) -> bool {
        let mut history = self.history();
        // The sweep and the poll for changes overlap.
        if revision < history.revision {
            return false;
        }
        history.revision = revision;
        if history.due.as_ref().is_some_and(|due| due.latest <= read_at) {
            history.due = None;
        }
        let Some(roles) = roles else { return !history.roles.is_empty() };
        let is_lost = !history.roles.is_subset(roles);
        if !is_lost {
            history.roles = Arc::clone(roles);
        }
        is_lost
    }

    /// No code panics while it has the lock.
    fn history(&self) -> MutexGuard<'_, RoleHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn at(revision: u64) -> (u64, Instant) {
        (revision, Instant::now())
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
            assert_eq!(rights.compare(now.as_ref(), at(8)), expected, "{now:?}");
        }
        assert!(!rights(1, &[]).compare(None, at(8)), "owners of other objects may have given it");
    }

    /// The broker may have learned of a role after the API server.
    #[test]
    fn a_role_that_is_given_later_can_be_lost() {
        let rights = rights(1, &["view"]);
        assert!(!rights.compare(Some(&roles(&["admin", "view"])), at(8)));
        assert!(!rights.compare(Some(&roles(&["view"])), at(7)), "it was read before");
        assert!(rights.compare(Some(&roles(&["view"])), at(9)));
    }

    #[test]
    fn roles_are_compared_after_a_change_of_a_tenant_or_the_person() {
        let rights = rights(1, &["view"]);
        let users = |id| BTreeSet::from([Uuid::from_u128(id)]);
        assert!(!rights.is_due(7, &users(2)));
        assert!(rights.is_due(7, &users(1)));
        assert!(rights.is_due(8, &users(2)));
        rights.compare(Some(&roles(&["view"])), at(8));
        assert!(!rights.is_due(8, &users(2)));
    }

    #[test]
    fn a_comparison_is_due_until_roles_that_were_read_later_are_compared() {
        let (rights, start) = (rights(1, &["view"]), Instant::now());
        let (nobody, minute) = (BTreeSet::new(), Duration::from_mins(1));
        let after = |seconds| start + Duration::from_secs(seconds);
        let compare = |read_at| assert!(!rights.compare(Some(&roles(&["view"])), (7, read_at)));
        rights.set_due(after(0), false);
        assert!(!rights.is_due(7, &nobody), "that of the sweep");
        rights.set_due(after(10), true);
        compare(after(5));
        assert!(rights.is_due(7, &nobody), "the roles were read before the change");
        assert!(!rights.is_overdue(minute, after(59)) && rights.is_overdue(minute, after(60)));
        compare(after(10));
        assert!(!rights.is_due(7, &nobody) && !rights.is_overdue(minute, after(600)));
    }
}
