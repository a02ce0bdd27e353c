//! Changes of who has which role in a tenant, until the RoleBindings follow them. Pure.
//!
//! The broker knows of a change before it has changed the RoleBindings, and the API server allows
//! requests by these meanwhile. So the streams that began since shortly before the change are closed
//! once, [`WITHDRAWAL_TIME`] after it, whatever roles their members had.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use uuid::Uuid;

use crate::tenant::{CachedTenant, TenantName};

/// How long the RoleBindings of a lost role may still be there. A run on a tenant with a hundred
/// namespaces takes a few seconds.
const WITHDRAWAL_TIME: Duration = Duration::from_secs(20);
/// How long before the broker noticed a change a stream may have begun with the new roles, because
/// the Tenants are compared every half a second, and principals are read before that.
const NOTICED_AFTER: Duration = Duration::from_secs(2);

/// Whose roles changed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    /// Anybody's in this tenant.
    Tenant(TenantName),
    /// Those of this user, in any tenant.
    User(Uuid),
}

/// Streams that are to be closed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change {
    subject: Subject,
    noticed_at: Instant,
}

impl Change {
    /// Whether a stream of this user in this tenant began in the time of the change.
    pub(super) fn concerns(&self, user: Uuid, tenant: &TenantName, began_at: Instant) -> bool {
        let is_its = match &self.subject {
            Subject::Tenant(name) => name == tenant,
            Subject::User(changed) => *changed == user,
        };
        is_its && began_at + NOTICED_AFTER >= self.noticed_at
    }
}

/// The changes that are noticed, and what they are noticed by.
#[derive(Debug, Default)]
pub(super) struct RoleChanges {
    /// The Tenants at their last revision.
    tenants: BTreeMap<TenantName, Arc<CachedTenant>>,
    revision: Option<u64>,
    /// When users changed, in milliseconds since 1970.
    users: BTreeMap<Uuid, i64>,
    /// In the order of time.
    changes: Vec<Change>,
}

impl RoleChanges {
    /// Takes over the Tenants of a revision. The first ones are no change.
    pub(super) fn tenants(
        &mut self,
        revision: u64,
        all: impl FnOnce() -> Vec<Arc<CachedTenant>>,
        now: Instant,
    ) {
        if self.revision == Some(revision) {
            return;
        }
        let all: BTreeMap<_, _> =
            all().into_iter().map(|cached| (cached.tenant.name.clone(), cached)).collect();
        let is_first = self.revision.replace(revision).is_none();
        let before = std::mem::replace(&mut self.tenants, all);
        for (name, was) in before.into_iter().filter(|_| !is_first) {
            let is_same = self.tenants.get(&name).is_some_and(|is| {
                is.tenant.owners == was.tenant.owners
                    && is.tenant.additional_role_bindings == was.tenant.additional_role_bindings
            });
            if !is_same {
                self.changes.push(Change { subject: Subject::Tenant(name), noticed_at: now });
            }
        }
    }

    /// Takes over when users changed, from a look back that has each of them several times. Returns
    /// these users.
    pub(super) fn users(&mut self, changed: BTreeMap<Uuid, i64>, now: Instant) -> BTreeSet<Uuid> {
        for (user, at) in &changed {
            if self.users.get(user) != Some(at) {
                self.changes.push(Change { subject: Subject::User(*user), noticed_at: now });
            }
        }
        let users = changed.keys().copied().collect();
        self.users = changed;
        users
    }

    /// Removes and returns the changes that the RoleBindings have followed by now.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Change> {
        let is_due = |change: &Change| change.noticed_at + WITHDRAWAL_TIME <= now;
        let due = self.changes.partition_point(is_due);
        self.changes.drain(..due).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::tenant::{ApiGroup, Tenant};

    fn tenants(owners: &[(&str, &str)], quota: u32) -> Vec<Arc<CachedTenant>> {
        let cached = |(name, owner): &(&str, &str)| {
            let spec: Value = json!({
                "owners": [{"kind": "User", "name": owner}],
                "namespaceOptions": {"quota": quota},
            });
            Arc::new(CachedTenant {
                group: ApiGroup::TenantBroker,
                tenant: Tenant::parse(name, &spec).unwrap(),
                state: String::new(),
                size: 0,
                conditions: Vec::new(),
            })
        };
        owners.iter().map(cached).collect()
    }

    #[test]
    fn a_change_of_owners_concerns_streams_that_began_around_it() {
        let (start, solar) = (Instant::now(), "solar".parse().unwrap());
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut changes = RoleChanges::default();
        changes.tenants(1, || tenants(&[("solar", "alice"), ("lunar", "carol")], 1), at(0));
        changes.tenants(2, || tenants(&[("solar", "alice"), ("lunar", "carol")], 2), at(5));
        assert!(changes.take_due(at(100)).is_empty(), "a quota is no role");
        changes.tenants(3, || tenants(&[("solar", "bob")], 2), at(10));
        changes.tenants(3, || unreachable!(), at(11));
        assert!(changes.take_due(at(29)).is_empty());
        let due = changes.take_due(at(30));
        assert_eq!(due.len(), 2, "that of lunar, which is gone, and of solar: {due:?}");
        let concerns = |began_at| due.iter().any(|it| it.concerns(Uuid::nil(), &solar, began_at));
        assert_eq!([7, 8, 10, 25].map(|it| concerns(at(it))), [false, true, true, true]);
        let other = "other".parse().unwrap();
        assert!(!due.iter().any(|it| it.concerns(Uuid::nil(), &other, at(10))));
        assert!(changes.take_due(at(100)).is_empty());
    }

    #[test]
    fn each_change_of_a_person_counts_once() {
        let (now, solar) = (Instant::now(), "solar".parse().unwrap());
        let (user, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut changes = RoleChanges::default();
        for time in [7, 7, 8] {
            assert_eq!(changes.users(BTreeMap::from([(user, time)]), now), BTreeSet::from([user]));
        }
        let due = changes.take_due(now + WITHDRAWAL_TIME);
        assert_eq!(due.len(), 2);
        assert!(due[0].concerns(user, &solar, now) && !due[0].concerns(other, &solar, now));
    }
}
