//! Closes requests and streams of members who lost a role in the tenant of the namespace. The API
//! server decides about a request when it begins, and does not end it with the right.
//!
//! The roles that a member had are compared with those that the Tenant gives now, after each change
//! of a Tenant or of the person ([`super::request_rights`]). Requests that begin before the
//! RoleBindings follow a change are closed after that ([`super::role_changes`]).

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Gateway,
    cancel::CloseReason,
    principals::tenants_of,
    request_rights::{RequestRights, Scope},
    role_changes::{MAX_WITHDRAWAL_TIMEOUT, RoleChanges},
    streams::{MemberNamespace, StreamInfo},
    tenant_watcher::{INTERVAL, MAX_COMPARED_AT_ONCE, OVERLAP_MS},
};
use crate::{
    base::{
        clock::ticks,
        db::{OPERATION_TIMEOUT, within},
    },
    identity::Caller,
    tenant::TenantName,
    tenant_operations::{CallerTenants, TenantOperations},
};
use futures_util::{StreamExt as _, stream};

/// How often the roles of all members with open requests are compared. The clock of a replica may be
/// so far from this one's that a look back misses the change of a person.
const ALL_INTERVAL: Duration = Duration::from_secs(30);

impl Gateway {
    /// Closes requests of members who lost a role, until the task is aborted.
    pub(super) async fn watch_member_rights(self, tenants: TenantOperations) {
        let mut ticks = ticks(INTERVAL);
        let mut role_changes = RoleChanges::default();
        // The RoleBindings may not have followed a change from before the start.
        let look_back = i64::try_from(MAX_WITHDRAWAL_TIMEOUT.as_millis()).unwrap_or(i64::MAX);
        let mut looked_at = self.clock.now_ms().saturating_sub(look_back);
        let mut next_all = Instant::now() + ALL_INTERVAL;
        loop {
            ticks.tick().await;
            let (now_ms, now) = (self.clock.now_ms(), Instant::now());
            role_changes.tenants(tenants.revision(), || tenants.all(), now);
            // After an outage of the database the look reaches back to the last one.
            let since = looked_at - OVERLAP_MS;
            let changed = within(OPERATION_TIMEOUT, tenants.persons_changed_since(since)).await;
            let changed = match changed {
                Ok(changed) => {
                    looked_at = now_ms;
                    role_changes.users(changed, now)
                }
                Err(_) => BTreeSet::new(),
            };
            let is_all = now >= next_all;
            if is_all {
                next_all = now + ALL_INTERVAL;
            }
            let is_due =
                |rights: &RequestRights, revision| is_all || rights.is_due(revision, &changed);
            let mut closed = self.close_reduced(&tenants, is_due).await;
            let is_reconciled = |name: &TenantName| tenants.cached(name).map(|it| it.is_observed);
            let due = role_changes.take_due(Instant::now(), is_reconciled);
            if !due.is_empty() {
                closed += self.close_requests_of_members(|info, member| {
                    let MemberNamespace { tenant, began_at, .. } = &**member;
                    due.iter().any(|change| change.concerns(info.user, tenant, *began_at))
                });
            }
            if closed > 0 {
                tracing::info!(
                    streams = closed,
                    "streams closed because members of tenants lost roles"
                );
            }
        }
    }

    /// Closes the requests whose members lost a role; returns their number.
    async fn close_reduced(
        &self,
        tenants: &TenantOperations,
        is_due: impl Fn(&RequestRights, u64) -> bool,
    ) -> usize {
        let members = self.streams.members();
        let revision = tenants.revision();
        let due: HashMap<Scope, Caller> = members
            .iter()
            .map(|member| &member.rights)
            .filter(|rights| is_due(rights, revision))
            .map(|rights| (rights.scope(), rights.caller().clone()))
            .collect();
        let reads: Vec<_> = due
            .into_iter()
            .map(|(scope, caller)| async move {
                let read = Box::pin(tenants_of(tenants, &caller));
                let result = tokio::time::timeout(OPERATION_TIMEOUT, read).await;
                // The next look asks again. Streams end if the database stays away.
                Some((scope, result.ok()?.ok()??))
            })
            .collect();
        let now: HashMap<Scope, CallerTenants> = stream::iter(reads)
            .buffer_unordered(MAX_COMPARED_AT_ONCE)
            .filter_map(std::future::ready)
            .collect()
            .await;
        let mut reduced = HashSet::new();
        for member in &members {
            let Some(now) = now.get(&member.rights.scope()) else { continue };
            if member.rights.compare(now.roles.get(&member.tenant), now.revision) {
                reduced.insert(Arc::as_ptr(member));
            }
        }
        if reduced.is_empty() {
            return 0;
        }
        self.close_requests_of_members(|_, member| reduced.contains(&Arc::as_ptr(member)))
    }

    fn close_requests_of_members(
        &self,
        is_lost: impl Fn(&StreamInfo, &Arc<MemberNamespace>) -> bool,
    ) -> usize {
        self.streams.close(CloseReason::RoleLost, |info| {
            info.member_namespace.as_ref().is_some_and(|member| is_lost(info, member))
        })
    }
}
