//! Changes of who has which role in a tenant, until the RoleBindings follow them. Pure.
//!
//! The broker knows of a change before it has changed the RoleBindings, and the API server allows
//! requests by these meanwhile. So the streams that began since shortly before the change are closed
//! [`WITHDRAWAL_TIMEOUT`] after it, whatever roles their members had, and again until the controller has
//! reconciled the Tenant. The controller does not record when it has followed a change of a person,
//! so those streams are closed once more after the longest time that it needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use uuid::Uuid;

use crate::tenant::{CachedTenant, TenantName};

/// How long the RoleBindings of a lost role may still be there. A run on a tenant with a hundred
/// namespaces takes a few seconds.
const WITHDRAWAL_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest time until the controller has reconciled after a change: the lease of a replica that was
/// killed, and a run.
pub(in crate::gateway) const MAX_WITHDRAWAL_TIMEOUT: Duration = Duration::from_secs(150);
/// Requests that began less than this before are spared: nearly all of them end by themselves.
pub(in crate::gateway) const MIN_AGE: Duration = Duration::from_secs(1);
/// How long after a change the streams of a Tenant that the controller does not reconcile are closed.
const MAX_CHANGE_AGE: Duration = Duration::from_mins(10);
/// How long before the last poll that did not find a change a stream may have begun with the new roles,
/// because principals are read at other times than polls.
const NOTICE_DELAY: Duration = Duration::from_secs(2);

/// Subject whose roles changed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    /// All roles in this tenant.
    Tenant(TenantName),
    /// All roles of this user, in any tenant.
    User(Uuid),
}

/// Streams that are to be closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct RoleChange {
    subject: Subject,
    noticed_at: Instant,
    /// When the last poll that did not find it began to read. Polls may be late, and streams that
    /// begin in between have the new roles already.
    not_known_since: Instant,
    /// When streams are closed.
    due_at: Instant,
    /// When they are closed for the last time, once that is known.
    last_at: Option<Instant>,
}

impl RoleChange {
    fn new(subject: Subject, not_known_since: Instant, now: Instant) -> Self {
        let due_at = now + WITHDRAWAL_TIMEOUT;
        Self { subject, noticed_at: now, not_known_since, due_at, last_at: None }
    }

    /// Schedules the next closing after one at this time; returns false if that was the last one.
    fn schedule_next(
        &mut self,
        now: Instant,
        is_reconciled: impl Fn(&TenantName) -> Option<bool>,
    ) -> bool {
        if self.last_at.is_none() {
            let is_reconciled = match &self.subject {
                Subject::Tenant(name) => is_reconciled(name),
                Subject::User(_) => None,
            };
            match is_reconciled {
                Some(false) if now < self.noticed_at + MAX_CHANGE_AGE => {
                    self.due_at = now + WITHDRAWAL_TIMEOUT;
                    return true;
                }
                // Once more for those that were too young.
                Some(_) => self.last_at = Some(now + 2 * MIN_AGE),
                None => self.last_at = Some(self.noticed_at + MAX_WITHDRAWAL_TIMEOUT),
            }
        }
        self.due_at = self.last_at.unwrap_or(now);
        now < self.due_at
    }

    /// Whether a stream of this user in this tenant began in the time of the change.
    pub(in crate::gateway) fn concerns(
        &self,
        user: Uuid,
        tenant: &TenantName,
        began_at: Instant,
    ) -> bool {
        let is_its = match &self.subject {
            Subject::Tenant(name) => name == tenant,
            Subject::User(changed) => *changed == user,
        };
        let is_old_enough = began_at + MIN_AGE <= self.due_at;
        is_its && is_old_enough && began_at + NOTICE_DELAY >= self.not_known_since
    }
}

/// The changes that are noticed, and what they are noticed by.
#[derive(Debug)]
pub(in crate::gateway) struct RoleChanges {
    /// The Tenants at their last revision.
    tenants: BTreeMap<TenantName, Arc<CachedTenant>>,
    revision: Option<u64>,
    /// When the last poll of the Tenants began to read them.
    tenants_read_at: Instant,
    /// When users changed, in milliseconds since 1970.
    users: BTreeMap<Uuid, i64>,
    /// When the last poll of the users that did not fail began to read them.
    users_read_at: Instant,
    changes: Vec<RoleChange>,
}

impl RoleChanges {
    /// No changes are known at the start of the broker.
    pub(in crate::gateway) fn new(start: Instant) -> Self {
        Self {
            tenants: BTreeMap::new(),
            revision: None,
            tenants_read_at: start,
            users: BTreeMap::new(),
            users_read_at: start,
            changes: Vec::new(),
        }
    }

    /// Takes over the Tenants of a revision. One that the broker did not know has changed if its status
    /// is that of an earlier generation, because it may have changed while no broker ran. `now` is the
    /// time from before the revision was read.
    pub(in crate::gateway) fn tenants(
        &mut self,
        revision: u64,
        all: impl FnOnce() -> Vec<Arc<CachedTenant>>,
        now: Instant,
    ) {
        let not_known_since = std::mem::replace(&mut self.tenants_read_at, now);
        if self.revision == Some(revision) {
            return;
        }
        let all: BTreeMap<_, _> =
            all().into_iter().map(|cached| (cached.tenant.name.clone(), cached)).collect();
        self.revision = Some(revision);
        let before = std::mem::replace(&mut self.tenants, all);
        for (name, is) in self.tenants.iter().filter(|(name, _)| !before.contains_key(*name)) {
            if !is.is_observed && !is.state.is_empty() {
                self.changes.push(RoleChange::new(
                    Subject::Tenant(name.clone()),
                    not_known_since,
                    now,
                ));
            }
        }
        for (name, was) in before {
            let is_same = self.tenants.get(&name).is_some_and(|is| {
                is.tenant.owners == was.tenant.owners
                    && is.tenant.additional_role_bindings == was.tenant.additional_role_bindings
            });
            if !is_same {
                self.changes.push(RoleChange::new(Subject::Tenant(name), not_known_since, now));
            }
        }
    }

    /// Takes over when users changed, from a look back that has each of them several times. It
    /// began at `read_at`. Returns these users.
    pub(in crate::gateway) fn users(
        &mut self,
        changed: BTreeMap<Uuid, i64>,
        (read_at, now): (Instant, Instant),
    ) -> BTreeSet<Uuid> {
        let not_known_since = std::mem::replace(&mut self.users_read_at, read_at);
        for (user, at) in &changed {
            if self.users.get(user) != Some(at) {
                self.changes.push(RoleChange::new(Subject::User(*user), not_known_since, now));
            }
        }
        let users = changed.keys().copied().collect();
        self.users = changed;
        users
    }

    /// The changes whose streams are closed now. `is_reconciled` says whether the controller has
    /// reconciled a Tenant; `None` if there is none of this name.
    pub(in crate::gateway) fn drain_due(
        &mut self,
        now: Instant,
        is_reconciled: impl Fn(&TenantName) -> Option<bool>,
    ) -> Vec<RoleChange> {
        let mut due = Vec::new();
        self.changes.retain_mut(|change| {
            if now < change.due_at {
                return true;
            }
            due.push(RoleChange { due_at: now, ..change.clone() });
            change.schedule_next(now, &is_reconciled)
        });
        due
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
                state: "Active".to_owned(),
                is_observed: true,
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
        let mut changes = RoleChanges::new(at(0));
        changes.tenants(1, || tenants(&[("solar", "alice"), ("lunar", "carol")], 1), at(0));
        changes.tenants(2, || tenants(&[("solar", "alice"), ("lunar", "carol")], 2), at(5));
        assert!(changes.drain_due(at(100), |_| Some(true)).is_empty(), "a quota is no role");
        changes.tenants(2, || unreachable!(), at(9));
        changes.tenants(3, || tenants(&[("solar", "bob")], 2), at(10));
        changes.tenants(3, || unreachable!(), at(11));
        let reconciled = |name: &TenantName| (*name == solar).then_some(true);
        assert!(changes.drain_due(at(29), reconciled).is_empty());
        let due = changes.drain_due(at(30), reconciled);
        assert_eq!(due.len(), 2, "that of lunar, which is gone, and of solar: {due:?}");
        let concerns = |began_at| due.iter().any(|it| it.concerns(Uuid::nil(), &solar, began_at));
        assert_eq!([6, 7, 10, 25].map(|it| concerns(at(it))), [false, true, true, true]);
        assert!(!concerns(at(30)), "a young one is spared, and closed next time");
        assert_eq!(changes.drain_due(at(32), reconciled).len(), 1, "that of solar");
        let other = "other".parse().unwrap();
        assert!(!due.iter().any(|it| it.concerns(Uuid::nil(), &other, at(10))));
        let due = changes.drain_due(at(160), reconciled);
        assert_eq!(due.len(), 1, "that of lunar, which is gone: {due:?}");
        assert!(changes.drain_due(at(1000), reconciled).is_empty());
    }

    /// The database may be slow, and a stream begins with the new roles meanwhile.
    #[test]
    fn a_poll_that_takes_five_seconds_spares_no_stream_that_begins_meanwhile() {
        let (start, solar) = (Instant::now(), "solar".parse().unwrap());
        let (at, user) = (|seconds| start + Duration::from_secs(seconds), Uuid::from_u128(1));
        let mut changes = RoleChanges::new(at(0));
        changes.tenants(1, || tenants(&[("solar", "alice")], 1), at(10));
        changes.users(BTreeMap::new(), (at(10), at(15)));
        // The next poll begins after that.
        changes.tenants(2, || tenants(&[("solar", "bob")], 1), at(15));
        changes.users(BTreeMap::from([(user, 7)]), (at(15), at(20)));
        for (seconds, someone) in [(35, Uuid::nil()), (40, user)] {
            let due = changes.drain_due(at(seconds), |_| Some(true));
            let other = "lunar".parse().unwrap();
            let of = if someone == user { &other } else { &solar };
            let concerns = |began_at| due.iter().any(|it| it.concerns(someone, of, began_at));
            let began = [7, 8, 11, 14, 18].map(|it| concerns(at(it)));
            assert_eq!(began, [false, true, true, true, true], "{someone}");
        }
        // A poll that failed found nothing, and does not count as one.
        changes.users(BTreeMap::from([(user, 8)]), (at(50), at(50)));
        let due = changes.drain_due(at(70), |_| Some(true));
        assert!(due.iter().any(|it| it.concerns(user, &solar, at(16))));
    }

    #[test]
    fn streams_are_closed_until_the_controller_has_reconciled_the_tenant() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut changes = RoleChanges::new(at(0));
        changes.tenants(1, || tenants(&[("solar", "alice")], 1), at(0));
        changes.tenants(2, || tenants(&[("solar", "bob")], 1), at(10));
        for seconds in [30, 50, 70] {
            assert_eq!(changes.drain_due(at(seconds), |_| Some(false)).len(), 1, "{seconds}");
            assert!(changes.drain_due(at(seconds + 19), |_| Some(false)).is_empty());
        }
        for seconds in [90, 92] {
            assert_eq!(changes.drain_due(at(seconds), |_| Some(true)).len(), 1, "{seconds}");
        }
        assert!(changes.drain_due(at(1000), |_| Some(false)).is_empty());
    }

    #[test]
    fn streams_of_a_tenant_that_is_never_reconciled_are_closed_for_ten_minutes() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut changes = RoleChanges::new(at(0));
        changes.tenants(1, || tenants(&[("solar", "alice")], 1), at(0));
        changes.tenants(2, || tenants(&[("solar", "bob")], 1), at(0));
        let closed: Vec<u64> = (0..1000)
            .filter(|seconds| !changes.drain_due(at(*seconds), |_| Some(false)).is_empty())
            .collect();
        let expected: Vec<u64> = (20..=600).step_by(20).chain([602]).collect();
        assert_eq!(closed, expected);
    }

    #[test]
    fn a_tenant_that_changed_while_no_broker_ran_has_changed() {
        let now = Instant::now();
        for (state, is_observed, expected) in
            [("Active", false, 1), ("Active", true, 0), ("", false, 0)]
        {
            let mut all = tenants(&[("solar", "alice")], 1);
            let cached = Arc::get_mut(&mut all[0]).unwrap();
            (cached.state, cached.is_observed) = (state.to_owned(), is_observed);
            let mut changes = RoleChanges::new(now);
            changes.tenants(1, Vec::new, now);
            changes.tenants(2, || all, now);
            let due = changes.drain_due(now + WITHDRAWAL_TIMEOUT, |_| Some(true));
            assert_eq!(due.len(), expected, "{state:?}, observed: {is_observed}");
        }
    }

    #[test]
    fn each_change_of_a_person_counts_once() {
        let (now, solar) = (Instant::now(), "solar".parse().unwrap());
        let (user, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut changes = RoleChanges::new(now);
        for time in [7, 7, 8] {
            assert_eq!(
                changes.users(BTreeMap::from([(user, time)]), (now, now)),
                BTreeSet::from([user])
            );
        }
        let due = changes.drain_due(now + WITHDRAWAL_TIMEOUT, |_| None);
        assert_eq!(due.len(), 2);
        let again = changes.drain_due(now + MAX_WITHDRAWAL_TIMEOUT, |_| None);
        assert_eq!(again.len(), 2);
        assert!(changes.drain_due(now + MAX_CHANGE_AGE, |_| None).is_empty());
        assert!(due[0].concerns(user, &solar, now) && !due[0].concerns(other, &solar, now));
    }
}
