//! Closes requests and streams of members who lost a role in the tenant of the namespace. The API
//! server decides about a request when it begins, and does not end it with the right.
//!
//! The roles that a member had are compared with those that the Tenant gives now, after each change
//! of a Tenant or of the person ([`crate::gateway::principals::request_rights`]). Requests that begin before the
//! RoleBindings follow a change are closed after that ([`super::role_changes`]).

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};

use super::{
    role_changes::{MAX_WITHDRAWAL_TIMEOUT, RoleChanges},
    tenant_watcher::{INTERVAL, MAX_OUT_OF_DATE, OVERLAP_MS},
};
use crate::{
    base::{
        clock::ticks,
        db::{OPERATION_TIMEOUT, within},
    },
    gateway::{
        Gateway,
        in_flight::{CloseReason, MemberNamespace, StreamInfo},
        principals::{
            request_rights::{CallerScope, RequestRights},
            tenants_of,
        },
    },
    tenant::TenantName,
    tenant_operations::{CallerTenants, TenantOperations},
};

/// How often the roles of all members with open requests are compared. The clock of a replica may be
/// so far from this one's that a look back misses the change of a person.
const ALL_INTERVAL: Duration = Duration::from_secs(30);

/// Time limit of the comparisons of one poll. The next poll makes the others.
const POLL_TIMEOUT: Duration = Duration::from_secs(5);

/// Members who are compared at once. Each uses a connection of those for suspensions, of which there
/// are few.
const MAX_CONCURRENT_COMPARISONS: usize = 2;

impl Gateway {
    /// Closes requests of members who lost a role, until the task is aborted.
    pub(in crate::gateway) async fn watch_member_rights(self, tenants: TenantOperations) {
        let tenants = tenants.on_authority();
        let role_changes = Mutex::new(RoleChanges::new(Instant::now()));
        tokio::join!(
            self.watch_role_changes(&tenants, &role_changes),
            self.compare_changed(&tenants, &role_changes),
        );
    }

    /// Notices changes of Tenants, and closes what is due. It awaits nothing but the interval, so a
    /// slow database does not delay it.
    async fn watch_role_changes(
        &self,
        tenants: &TenantOperations,
        role_changes: &Mutex<RoleChanges>,
    ) {
        let mut ticks = ticks(INTERVAL);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            {
                let mut role_changes = role_changes.lock().unwrap_or_else(PoisonError::into_inner);
                role_changes.tenants(tenants.revision(), || tenants.all(), now);
                self.close_due(&mut role_changes, tenants, now);
            }
            self.close_overdue(now);
        }
    }

    /// Notices changes of persons, and compares the roles of members after each change.
    async fn compare_changed(&self, tenants: &TenantOperations, role_changes: &Mutex<RoleChanges>) {
        let mut ticks = ticks(INTERVAL);
        // The RoleBindings may not have followed a change from before the start.
        let look_back = i64::try_from(MAX_WITHDRAWAL_TIMEOUT.as_millis()).unwrap_or(i64::MAX);
        let mut looked_at = self.clock.now_ms().saturating_sub(look_back);
        loop {
            ticks.tick().await;
            let (now_ms, read_at) = (self.clock.now_ms(), Instant::now());
            // After an outage of the database the poll reaches back to the last one.
            let since = looked_at - OVERLAP_MS;
            let changed = within(OPERATION_TIMEOUT, tenants.rbac_users_changed_since(since)).await;
            let changed = match changed {
                Ok(changed) => {
                    looked_at = now_ms;
                    let mut role_changes =
                        role_changes.lock().unwrap_or_else(PoisonError::into_inner);
                    role_changes.users(changed, (read_at, Instant::now()))
                }
                Err(_) => BTreeSet::new(),
            };
            let (revision, found_at) = (tenants.revision(), Instant::now());
            let is_due = |rights: &RequestRights| {
                let is_due = rights.is_due(revision, &changed);
                if is_due {
                    rights.set_due(found_at, true);
                }
                is_due
            };
            let comparisons = self.close_reduced(tenants, is_due);
            let _ = tokio::time::timeout(POLL_TIMEOUT, comparisons).await;
        }
    }

    /// Compares the roles of all members with open requests at an interval, until the task is aborted.
    /// It is a task of its own, because the polls for changes must not wait for it.
    pub(in crate::gateway) async fn sweep_member_rights(self, tenants: TenantOperations) {
        let tenants = tenants.on_authority();
        let mut ticks = ticks(ALL_INTERVAL);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            let comparisons = self.close_reduced(&tenants, |rights| {
                rights.set_due(now, false);
                true
            });
            let _ = tokio::time::timeout(MAX_OUT_OF_DATE, comparisons).await;
        }
    }

    /// Closes the requests that began before the RoleBindings followed a change.
    fn close_due(&self, role_changes: &mut RoleChanges, tenants: &TenantOperations, now: Instant) {
        let is_reconciled = |name: &TenantName| tenants.cached(name).map(|it| it.is_observed);
        let due = role_changes.drain_due(now, is_reconciled);
        if due.is_empty() {
            return;
        }
        self.close_requests_of_members(|info, member| {
            let MemberNamespace { tenant, began_at, .. } = &**member;
            due.iter().any(|change| change.concerns(info.user, tenant, *began_at))
        });
    }

    /// Closes the requests of members whose roles could not be compared for a minute; returns their
    /// number.
    fn close_overdue(&self, now: Instant) -> usize {
        let closed = self.streams.close(CloseReason::TenantsOutOfDate, |info| {
            let member = info.member_namespace.as_ref();
            member.is_some_and(|member| member.rights.is_overdue(MAX_OUT_OF_DATE, now))
        });
        if closed > 0 {
            tracing::warn!(
                streams = closed,
                "streams of members closed because the broker cannot read their roles"
            );
        }
        closed
    }

    /// Compares the roles of members, and closes the requests of those who lost one as soon as that is
    /// known. A comparison that fails stays due.
    async fn close_reduced(
        &self,
        tenants: &TenantOperations,
        is_due: impl Fn(&RequestRights) -> bool,
    ) {
        let (mut scopes, mut due) = (HashMap::<CallerScope, Vec<_>>::new(), HashSet::new());
        for member in self.streams.members() {
            let scope = member.rights.scope();
            if is_due(&member.rights) {
                due.insert(scope);
            }
            scopes.entry(scope).or_default().push(member);
        }
        let comparisons: Vec<_> = scopes
            .into_iter()
            .filter(|(scope, _)| due.contains(scope))
            .map(|(_, members)| async move {
                let caller = members.first()?.rights.caller().clone();
                let read_at = Instant::now();
                let read = Box::pin(tenants_of(tenants, &caller));
                let now = tokio::time::timeout(OPERATION_TIMEOUT, read).await.ok()?.ok()??;
                self.close_reduced_of(&members, &now, read_at);
                Some(())
            })
            .collect();
        stream::iter(comparisons)
            .buffer_unordered(MAX_CONCURRENT_COMPARISONS)
            .for_each(|_| std::future::ready(()))
            .await;
    }

    /// Closes those of the requests of one scope whose member lost a role.
    fn close_reduced_of(
        &self,
        members: &[Arc<MemberNamespace>],
        now: &CallerTenants,
        read_at: Instant,
    ) {
        let reduced: HashSet<_> = members
            .iter()
            .filter(|member| {
                let roles = now.roles.get(&member.tenant);
                member.rights.compare(roles, (now.revision, read_at))
            })
            .map(Arc::as_ptr)
            .collect();
        if !reduced.is_empty() {
            self.close_requests_of_members(|_, member| reduced.contains(&Arc::as_ptr(member)));
        }
    }

    /// Closes requests of members who lost a role.
    fn close_requests_of_members(
        &self,
        is_lost: impl Fn(&StreamInfo, &Arc<MemberNamespace>) -> bool,
    ) {
        let closed = self.streams.close(CloseReason::RoleLost, |info| {
            info.member_namespace.as_ref().is_some_and(|member| is_lost(info, member))
        });
        if closed > 0 {
            tracing::info!(
                streams = closed,
                "streams closed because members of tenants lost roles"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::atomic::AtomicBool};

    use tenant_shared::Role;

    use super::*;
    use crate::{
        base::{db::ConnectionPools, telemetry::Metrics},
        cluster::WatchEvent,
        gateway::tests::{gateway, stream_info},
        identity::{Caller, RbacUserRules},
        tenant::{ApiGroup, NamespaceReflector, TenantCache, TenantReflector, TenantSettings},
        tenant_controller::{self, TenantController},
        tenant_operations,
        testing::{On, Storage, on_both_engines},
        tier::Tiers,
    };

    on_both_engines!(
        roles_are_compared_without_the_connections_of_requests,
        a_stream_ends_if_its_roles_cannot_be_compared_for_a_minute,
    );

    /// Operations on the Tenants of a cluster without any.
    async fn operations(
        storage: &Storage,
        gateway: &Gateway,
        pools: &ConnectionPools,
    ) -> TenantOperations {
        let cache = TenantCache::default();
        for group in ApiGroup::ALL {
            TenantReflector::new(cache.clone(), group).not_served();
        }
        let mut namespaces = NamespaceReflector::new(cache.clone());
        namespaces.apply_event(&WatchEvent::Init);
        namespaces.apply_event(&WatchEvent::InitDone);
        let (cluster, workspaces) = (storage.no_cluster().await, storage.workspaces().await);
        let (clock, metrics) = (storage.clock.clone(), Metrics::default());
        let (rbac_user_rules, settings) = (RbacUserRules::default(), TenantSettings::default());
        let tiers = Tiers::new(BTreeMap::new());
        let controller = TenantController::new(tenant_controller::Dependencies {
            db: pools.authority.clone(),
            requests: pools.signed_in.clone(),
            clock: clock.clone(),
            cluster: cluster.clone(),
            cache: cache.clone(),
            workspaces: workspaces.with_db(&pools.authority),
            rbac_user_rules: rbac_user_rules.clone(),
            settings: settings.clone(),
            tiers: tiers.clone(),
            metrics: metrics.clone(),
            resync_interval: Duration::from_mins(1),
        });
        TenantOperations::new(tenant_operations::Dependencies {
            db: pools.signed_in.clone(),
            authority: pools.authority.clone(),
            clock,
            metrics,
            cluster,
            controller: Arc::new(controller),
            cache,
            workspaces: workspaces.with_db(&pools.signed_in),
            tokens: gateway.tokens.clone(),
            rbac_user_rules,
            settings,
            default_tier: "basic".to_owned(),
            tiers,
        })
    }

    /// A stream of a member who had a role in a tenant.
    fn stream_of_member(storage: &Storage) -> StreamInfo {
        let caller = Caller::for_tests(&storage.clock, stream_info().user, Role::User);
        let roles = Arc::new(BTreeSet::from(["admin".parse().unwrap()]));
        let member = MemberNamespace {
            namespace: "solar-a".to_owned(),
            tenant: "solar".parse().unwrap(),
            was_known: AtomicBool::new(true),
            began_at: Instant::now(),
            rights: RequestRights::new(caller, (roles, 0)),
        };
        StreamInfo { member_namespace: Some(Arc::new(member)), ..stream_info() }
    }

    async fn roles_are_compared_without_the_connections_of_requests(on: On) {
        let storage = Storage::new(on).await;
        let gateway = gateway(&storage).await;
        let pools = storage.database.pools().await;
        let tenants = operations(&storage, &gateway, &pools).await;
        let stream = gateway.streams.register(stream_of_member(&storage));
        pools.signed_in.close().await;
        tenants.rbac_users_changed_since(0).await.unwrap_err();
        gateway.close_reduced(&tenants, |_| true).await;
        assert_eq!(stream.cancel_handle().reason(), None, "the roles could not be read");
        let tenants = tenants.on_authority();
        tenants.rbac_users_changed_since(0).await.unwrap();
        gateway.close_reduced(&tenants, |_| false).await;
        assert_eq!(stream.cancel_handle().reason(), None, "it was not due");
        gateway.close_reduced(&tenants, |_| true).await;
        assert_eq!(stream.cancel_handle().reason(), Some(CloseReason::RoleLost));
        pools.close().await;
    }

    async fn a_stream_ends_if_its_roles_cannot_be_compared_for_a_minute(on: On) {
        let storage = Storage::new(on).await;
        let gateway = gateway(&storage).await;
        let pools = storage.database.pools().await;
        let tenants = operations(&storage, &gateway, &pools).await;
        let stream = gateway.streams.register(stream_of_member(&storage));
        let personal = gateway.streams.register(stream_info());
        pools.close().await;
        let start = Instant::now();
        assert_eq!(gateway.close_overdue(start + 2 * MAX_OUT_OF_DATE), 0, "nothing is due");
        let set_due = |rights: &RequestRights| {
            rights.set_due(start, true);
            true
        };
        gateway.close_reduced(&tenants.on_authority(), set_due).await;
        let almost = MAX_OUT_OF_DATE.saturating_sub(Duration::from_secs(1));
        assert_eq!(gateway.close_overdue(start + almost), 0);
        assert_eq!(gateway.close_overdue(start + MAX_OUT_OF_DATE), 1);
        let reason = stream.cancel_handle().reason();
        assert_eq!(reason, Some(CloseReason::TenantsOutOfDate));
        assert_eq!(personal.cancel_handle().reason(), None);
    }
}
