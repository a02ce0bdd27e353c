//! The members of a tenant as persons, and the end of memberships whose persons the Tenant names no
//! more.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use crate::{
    base::{db::Db, error_chain},
    identity,
    tenant::{Member, Tenant, TenantRow, rights_of},
    tenant_controller::{
        TenantController, error::ReconcileError, objects::withdraw::MAX_IN_FLIGHT,
    },
    workspace::Workspaces,
};

/// How long a person stays a member whom the Tenant names no more. The person has no rights from the
/// beginning; a provider that does not say all groups for a moment must not end memberships.
const UNNAMED_GRACE: Duration = Duration::from_mins(1);
/// After this time without a run, the grace begins anew: another replica may have seen the person
/// named meanwhile.
const MAX_RUN_GAP: Duration = Duration::from_mins(2);
/// Memberships that a run ends at most.
const MAX_ENDED: usize = 20;
/// Pause before the run that ends the others.
const ENDING_INTERVAL: Duration = Duration::from_secs(1);

/// Tenant and user of a membership.
type MemberKey = (Uuid, Uuid);

/// The members whom their Tenants did not name when this process looked last.
#[derive(Debug, Default)]
pub(in crate::tenant_controller) struct UnnamedMembers(Mutex<BTreeMap<MemberKey, UnnamedPeriod>>);

/// The first and the last run in which a member was not named, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
struct UnnamedPeriod {
    first_ms: i64,
    last_ms: i64,
}

impl UnnamedMembers {
    /// Takes down which members of a tenant are named now. Returns those to be ended, which are
    /// forgotten.
    fn observe(&self, tenant: Uuid, members: &[(Uuid, bool)], now: i64) -> BTreeSet<Uuid> {
        let is_within = |since: i64, limit: Duration| {
            // A clock that was set back makes no time.
            let age = u64::try_from(now.saturating_sub(since)).unwrap_or_default();
            Duration::from_millis(age) < limit
        };
        // No code panics while it has the lock.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, period| is_within(period.last_ms, MAX_RUN_GAP));
        let mut due = BTreeSet::new();
        for (user, is_named) in members {
            let key = (tenant, *user);
            if *is_named {
                all.remove(&key);
                continue;
            }
            let period = all.entry(key).or_insert(UnnamedPeriod { first_ms: now, last_ms: now });
            period.last_ms = now;
            if !is_within(period.first_ms, UNNAMED_GRACE) && due.len() < MAX_ENDED {
                all.remove(&key);
                due.insert(*user);
            }
        }
        due
    }
}

impl TenantController {
    /// Ends the memberships of persons to whom the Tenant has given no right for a minute. They
    /// become members again with their next credential, if the Tenant names them then. The tenant's
    /// lease is held, and its bindings do not name these persons any more. A failure is logged only,
    /// because nobody has rights by such a membership, and the next runs try again.
    pub(in crate::tenant_controller) async fn end_unnamed_memberships(
        &self,
        row: &TenantRow,
        tenant: &Tenant,
        members: &[Member],
    ) {
        let is_named =
            |member: &Member| rights_of(tenant, &member.person, &self.settings).is_member();
        let members: Vec<(Uuid, bool)> =
            members.iter().map(|member| (member.user, is_named(member))).collect();
        let due = self.unnamed_members.observe(row.id, &members, self.clock.now_ms());
        let unnamed = members.iter().filter(|(_, is_named)| !is_named).count();
        if unnamed > due.len() {
            let pause = if due.len() == MAX_ENDED { ENDING_INTERVAL } else { UNNAMED_GRACE };
            self.queue.add_after(row.name.clone(), pause);
        }
        if due.is_empty() {
            return;
        }
        let memberships = match self.workspaces.members_of(row.id).await {
            Ok(memberships) => memberships,
            Err(error) => {
                tracing::warn!(
                    tenant = %row.name, error = error_chain(&error),
                    "cannot read the memberships that are to be ended"
                );
                return;
            }
        };
        let requests: Vec<_> = memberships
            .into_iter()
            .filter(|membership| due.contains(&membership.user))
            .map(|membership| self.end_unnamed_membership(row, membership.workspace))
            .collect();
        stream::iter(requests).buffer_unordered(MAX_IN_FLIGHT).collect::<()>().await;
    }

    async fn end_unnamed_membership(&self, row: &TenantRow, membership: Uuid) {
        let reason = Some(format!("tenant {} no longer names them", row.name));
        match Box::pin(self.workspaces.leave(membership, reason)).await {
            Ok(_) => tracing::info!(
                tenant = %row.name, workspace_id = %membership,
                "membership ended, because the Tenant no longer names the person"
            ),
            Err(error) => tracing::warn!(
                tenant = %row.name, workspace_id = %membership, error = error_chain(&error),
                "a membership whose person the Tenant no longer names could not be ended"
            ),
        }
    }

    /// The members of a tenant with their names in Kubernetes. A member who is in none of the groups
    /// that may be members (`tenants.groups`) is suspended. One who may not sign in is left out.
    ///
    /// # Errors
    /// The database failed.
    pub(in crate::tenant_controller) async fn members(
        &self,
        row: &TenantRow,
    ) -> Result<Vec<Member>, ReconcileError> {
        self.read_members(row, (&self.db, &self.workspaces)).await
    }

    /// Like [`Self::members`], for requests.
    ///
    /// # Errors
    /// The database failed.
    pub(in crate::tenant_controller) async fn members_for_request(
        &self,
        row: &TenantRow,
    ) -> Result<Vec<Member>, ReconcileError> {
        self.read_members(row, (&self.requests.db, &self.requests.workspaces)).await
    }

    async fn read_members(
        &self,
        row: &TenantRow,
        (db, workspaces): (&Db, &Workspaces),
    ) -> Result<Vec<Member>, ReconcileError> {
        let memberships = workspaces.members_of(row.id).await?;
        let users: Vec<Uuid> = memberships.iter().map(|membership| membership.user).collect();
        let mut persons = identity::rbac_users(db, &self.rbac_user_rules, &users).await?;
        let members = memberships.into_iter().filter_map(|membership| {
            let person = persons.remove(&membership.user)?;
            // Only a provisioned member has a ServiceAccount that may be bound.
            let suspended = membership.status != WorkspaceStatus::Provisioned
                || !person.is_in_scope(&self.settings.groups);
            Some(Member { user: membership.user, person, suspended })
        });
        Ok(members.collect())
    }

    /// Ends all memberships of a tenant whose object is gone. Members get no credential from then
    /// on; the sweep finishes what fails in the cluster.
    ///
    /// # Errors
    /// The database failed.
    pub(in crate::tenant_controller) async fn end_memberships(
        &self,
        row: &TenantRow,
    ) -> Result<(), ReconcileError> {
        for membership in self.workspaces.members_of(row.id).await? {
            let reason = Some(format!("the Tenant {} is gone", row.name));
            Box::pin(self.workspaces.leave(membership.workspace, reason)).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        tenant_controller::testing::Fixture,
        testing::{On, on_both_engines},
    };

    on_both_engines!(
        a_person_whom_the_tenant_no_longer_names_leaves_after_a_minute,
        a_person_who_is_named_again_stays_a_member,
    );

    const GRACE_MS: i64 = 60_000;
    const LEFT: &str = "SELECT COUNT(*) FROM audit_logs WHERE action = 'LeaveTenant' \
                        AND reason = 'tenant solar no longer names them'";

    /// A Tenant with this group as its owner.
    fn owned_by(group: &str) -> Tenant {
        let owners = json!([{"kind": "Group", "name": group}]);
        Tenant::parse("solar", &json!({"owners": owners})).unwrap()
    }

    async fn run(fixture: &Fixture, row: &TenantRow, tenant: &Tenant) -> usize {
        let members = fixture.controller.members(row).await.unwrap();
        fixture.controller.end_unnamed_memberships(row, tenant, &members).await;
        fixture.controller.workspaces.members_of(row.id).await.unwrap().len()
    }

    async fn a_person_whom_the_tenant_no_longer_names_leaves_after_a_minute(on: On) {
        let fixture = Fixture::new(on).await;
        let row = fixture.tenant("solar").await;
        fixture.member(&row).await;
        let (named, unnamed) = (owned_by("projectcapsule.dev"), owned_by("others"));
        let clock = &fixture.storage.clock;
        assert_eq!(run(&fixture, &row, &named).await, 1);
        clock.advance(GRACE_MS);
        assert_eq!(run(&fixture, &row, &unnamed).await, 1);
        assert_eq!(fixture.controller.queue.len(), 1, "another run follows");
        clock.advance(GRACE_MS - 1);
        assert_eq!(run(&fixture, &row, &unnamed).await, 1);
        clock.advance(1);
        assert_eq!(run(&fixture, &row, &unnamed).await, 0);
        assert_eq!(fixture.storage.number(LEFT).await, 1);
        assert_eq!(run(&fixture, &row, &unnamed).await, 0);
        assert_eq!(fixture.storage.number(LEFT).await, 1);
    }

    async fn a_person_who_is_named_again_stays_a_member(on: On) {
        let fixture = Fixture::new(on).await;
        let row = fixture.tenant("solar").await;
        fixture.member(&row).await;
        let (named, unnamed) = (owned_by("projectcapsule.dev"), owned_by("others"));
        for tenant in [&unnamed, &named, &unnamed] {
            assert_eq!(run(&fixture, &row, tenant).await, 1);
            fixture.storage.clock.advance(GRACE_MS - 1);
        }
        assert_eq!(run(&fixture, &row, &unnamed).await, 1, "the grace began anew");
        fixture.storage.clock.advance(2 * GRACE_MS);
        assert_eq!(run(&fixture, &row, &unnamed).await, 1, "others may have seen them named");
    }

    #[test]
    fn a_run_ends_a_limited_number_of_memberships() {
        let unnamed = UnnamedMembers::default();
        let members: Vec<_> = (0..30).map(|number| (Uuid::from_u128(number), false)).collect();
        let observe = |now| unnamed.observe(Uuid::nil(), &members, now).len();
        assert_eq!((observe(0), observe(GRACE_MS)), (0, MAX_ENDED));
        assert_eq!(observe(GRACE_MS + 1), 10);
    }
}
