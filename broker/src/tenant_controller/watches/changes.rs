//! Changes in the database, by this replica and others, as names in the queue.
//!
//! A change is stamped before its transaction commits, and clocks of replicas differ, so each poll
//! also reads the changes of the last seconds. Those that the previous poll saw are left out, so
//! that each change causes one run.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError},
    time::Duration,
};

use uuid::Uuid;

use crate::{
    base::{
        clock::{Clock, ticks},
        error_chain,
    },
    identity,
    tenant::{TenantName, TenantStatus},
    tenant_controller::{TenantController, reconcile::suspend::is_suspension},
};

/// Interval at which the database is asked for changes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How far polls overlap, in milliseconds.
const POLL_OVERLAP_MS: i64 = 30_000;

/// A change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Changed {
    /// The status of a tenant.
    Status(TenantName),
    /// A namespace is to go to this tenant, or from it.
    Move { namespace: String, tenant: Uuid },
    /// A membership began, ended or got another status.
    Membership { tenant: Uuid, workspace: Uuid },
    /// The user name or the groups of a user.
    Person(Uuid),
}

/// The tenants that changes concern.
#[derive(Debug, Default)]
struct AffectedTenants {
    /// Those whose status changed, which may be being suspended.
    status_changed: BTreeSet<TenantName>,
    others: BTreeSet<TenantName>,
}

/// Changes with their times, in milliseconds since 1970.
type Changes = BTreeSet<(Changed, i64)>;

impl TenantController {
    /// Adds the tenants whose status changed, and those with a member whose name or groups changed
    /// or who joined or left. One that is being suspended or resumed is read by every poll, and the
    /// queue repeats a run that failed, at growing intervals.
    pub(in crate::tenant_controller) async fn poll_database(self: Arc<Self>) {
        let mut ticks = ticks(POLL_INTERVAL);
        let mut since = first_poll(&self.clock);
        let mut known = Changes::new();
        loop {
            ticks.tick().await;
            let now = self.clock.now_ms();
            let polled = async {
                let (affected, changes) = self.poll(since, &known).await?;
                Ok::<_, sqlx::Error>((affected, changes, self.tenants.not_active().await?))
            };
            match polled.await {
                Ok((AffectedTenants { status_changed, others }, changes, not_active)) => {
                    self.report_transitions(&not_active, now);
                    self.set_suspended(&not_active);
                    for name in others {
                        self.queue.add(name);
                    }
                    for name in status_changed {
                        self.queue.add_suspension(name);
                    }
                    known = changes;
                    since = now - POLL_OVERLAP_MS;
                }
                Err(error) => {
                    tracing::warn!(
                        error = error_chain(&error),
                        "cannot read which tenants changed; trying again"
                    );
                }
            }
        }
    }

    /// Sets the metrics of the decisions that are not carried out, as of this time.
    fn report_transitions(&self, not_active: &BTreeMap<TenantName, (TenantStatus, i64)>, now: i64) {
        for status in TenantStatus::TRANSITIONS {
            let times = not_active.values().filter(|(of, _)| *of == status).map(|(_, at)| *at);
            let seconds = times.min().map_or(0, |oldest| now.saturating_sub(oldest).max(0) / 1000);
            self.metrics.set_oldest_tenant(status.as_str(), seconds);
        }
    }

    /// Keeps the names of the tenants in which nobody may have rights, for the watch of RoleBindings.
    fn set_suspended(&self, not_active: &BTreeMap<TenantName, (TenantStatus, i64)>) {
        let suspended = not_active.iter().filter(|(_, (status, _))| is_suspension(*status));
        let names = suspended.map(|(name, _)| name.clone()).collect();
        *self.suspended.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// The tenants with changes that are not known, and all changes since this time.
    async fn poll(&self, since: i64, known: &Changes) -> sqlx::Result<(AffectedTenants, Changes)> {
        let changes = self.changes_since(since).await?;
        let (mut affected, mut tenants) = (AffectedTenants::default(), BTreeSet::new());
        for (changed, _) in changes.difference(known) {
            match changed {
                Changed::Status(name) => {
                    affected.status_changed.insert(name.clone());
                }
                Changed::Membership { tenant, .. } | Changed::Move { tenant, .. } => {
                    tenants.insert(*tenant);
                }
                Changed::Person(user) => {
                    let memberships = self.workspaces.memberships_of(*user).await?;
                    tenants.extend(memberships.into_iter().map(|membership| membership.tenant));
                }
            }
        }
        let tenants: Vec<Uuid> = tenants.into_iter().collect();
        affected.others.extend(self.tenants.names_of(&tenants).await?);
        Ok((affected, changes))
    }

    async fn changes_since(&self, since: i64) -> sqlx::Result<Changes> {
        let tenants = self.tenants.changed_since(since).await?;
        let tenants = tenants.into_iter().map(|(name, at)| (Changed::Status(name), at));
        let moves = self.tenants.moves_changed_since(since).await?;
        let moves = moves.into_iter().flat_map(|(namespace, tenants, at)| {
            tenants
                .into_iter()
                .map(move |tenant| (Changed::Move { namespace: namespace.clone(), tenant }, at))
        });
        let memberships = self.workspaces.changed_memberships(since).await?;
        let memberships = memberships.into_iter().map(|membership| {
            let (tenant, workspace) = (membership.tenant, membership.workspace);
            (Changed::Membership { tenant, workspace }, membership.changed_at)
        });
        let persons = identity::rbac_users_changed_since(&self.db, since).await?;
        let persons = persons.into_iter().map(|(user, at)| (Changed::Person(user), at));
        Ok(tenants.chain(moves).chain(memberships).chain(persons).collect())
    }
}

/// The beginning of the first poll. All tenants are reconciled at the start anyway.
fn first_poll(clock: &Clock) -> i64 {
    clock.now_ms() - POLL_OVERLAP_MS
}

#[cfg(test)]
mod tests {
    use tenant_shared::WorkspaceStatus;

    use super::*;
    use crate::{
        on_engine,
        tenant::{ApiGroup, Observed, TenantRow, TenantStatus},
        testing::{On, Storage, on_both_engines},
    };

    on_both_engines!(
        each_change_of_a_status_is_new_once,
        a_change_that_becomes_visible_late_is_new,
        a_change_of_a_person_concerns_their_tenants,
    );

    async fn open(controller: &TenantController, name: &str) -> TenantRow {
        let name = name.parse().unwrap();
        match controller.tenants.observe(&name, ApiGroup::TenantBroker, "uid").await.unwrap() {
            Observed::Current(row) => row,
            other => panic!("{other:?}"),
        }
    }

    /// A member of a tenant whose membership changed at this time.
    async fn member(storage: &Storage, tenant: &TenantRow, changed_at: i64) -> Uuid {
        let user = storage.user().await;
        let workspace = storage.workspace(user, WorkspaceStatus::Provisioned).await;
        let mut tx = storage.db.begin().await.unwrap();
        on_engine!(tx.connection(), c => sqlx::query(
            "UPDATE workspaces SET tenant_id = $2, home_namespace = 'tenant-solar', \
               status_changed_at = $3 WHERE id = $1")
            .bind(workspace).bind(tenant.id).bind(changed_at).execute(c).await.map(drop))
        .unwrap();
        tx.commit().await.unwrap();
        user
    }

    /// Polls, and returns the names; the changes are known afterwards.
    async fn poll(controller: &TenantController, known: &mut Changes) -> Vec<String> {
        let since = controller.clock.now_ms() - POLL_OVERLAP_MS;
        let (AffectedTenants { status_changed, others }, changes) =
            controller.poll(since, known).await.unwrap();
        *known = changes;
        status_changed.union(&others).map(ToString::to_string).collect()
    }

    async fn each_change_of_a_status_is_new_once(on: On) {
        let storage = Storage::new(on).await;
        let (controller, mut known) = (TenantController::for_tests(&storage).await, Changes::new());
        let solar = open(&controller, "solar").await;
        assert_eq!(poll(&controller, &mut known).await, ["solar"]);
        assert!(poll(&controller, &mut known).await.is_empty());
        storage.clock.advance(1);
        let advanced = controller.tenants.advance(&solar, TenantStatus::Suspending).await;
        let solar = advanced.unwrap().unwrap();
        assert_eq!(poll(&controller, &mut known).await, ["solar"]);
        storage.clock.advance(POLL_OVERLAP_MS + 1);
        assert!(poll(&controller, &mut known).await.is_empty(), "the queue repeats what failed");
        storage.clock.advance(1);
        let advanced = controller.tenants.advance(&solar, TenantStatus::Suspended).await;
        advanced.unwrap().unwrap();
        assert_eq!(poll(&controller, &mut known).await, ["solar"]);
        assert!(poll(&controller, &mut known).await.is_empty());
        storage.clock.advance(POLL_OVERLAP_MS + 1);
        assert!(poll(&controller, &mut known).await.is_empty());
        assert!(known.is_empty(), "earlier changes are forgotten");
    }

    /// Another replica may have stamped it before a change that was seen already.
    async fn a_change_that_becomes_visible_late_is_new(on: On) {
        let storage = Storage::new(on).await;
        let (controller, mut known) = (TenantController::for_tests(&storage).await, Changes::new());
        let solar = open(&controller, "solar").await;
        let now = storage.clock.now_ms();
        member(&storage, &solar, now).await;
        assert_eq!(poll(&controller, &mut known).await, ["solar"]);
        assert!(poll(&controller, &mut known).await.is_empty());
        member(&storage, &solar, now - 10_000).await;
        assert_eq!(poll(&controller, &mut known).await, ["solar"]);
        assert!(poll(&controller, &mut known).await.is_empty());
    }

    async fn a_change_of_a_person_concerns_their_tenants(on: On) {
        let storage = Storage::new(on).await;
        let (controller, mut known) = (TenantController::for_tests(&storage).await, Changes::new());
        let solar = open(&controller, "solar").await;
        let user = member(&storage, &solar, storage.clock.now_ms()).await;
        poll(&controller, &mut known).await;
        assert!(poll(&controller, &mut known).await.is_empty());
        let mut tx = storage.db.begin().await.unwrap();
        on_engine!(tx.connection(), c => sqlx::query(
            "UPDATE users SET person_changed_at = $2 WHERE id = $1")
            .bind(user).bind(storage.clock.now_ms()).execute(c).await.map(drop))
        .unwrap();
        tx.commit().await.unwrap();
        assert_eq!(poll(&controller, &mut known).await, ["solar"]);
        assert!(poll(&controller, &mut known).await.is_empty());
    }
}
