//! Closes lists and watches with the broker's own credential that show something else now, because
//! their caller lost or gained a tenant, or a Tenant grants other lists or selects other nodes. Clients
//! then list again. Also closes requests in namespaces that went to another tenant.
//!
//! Suspended memberships and ended sessions are noticed by [`super::watcher`]. This
//! compares by state, at once after a change that this replica knows of, and all watches from time to
//! time, so that it also finds what clocks of replicas that differ have hidden.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};
use uuid::Uuid;

use super::role_changes::MIN_AGE;
use crate::{
    base::{
        clock::ticks,
        db::{OPERATION_TIMEOUT, within},
    },
    gateway::{
        Gateway,
        in_flight::{BrokerReadView, CloseReason, MemberNamespace},
        kubernetes_api::path::Kind,
        principals::request_rights::CallerScope,
    },
    tenant_operations::TenantOperations,
};

/// How often the broker looks whether a Tenant or a person changed.
pub(in crate::gateway) const INTERVAL: Duration = Duration::from_millis(500);
/// How often all watches are compared.
const ALL_INTERVAL: Duration = Duration::from_secs(5);
/// How long watches are compared after a change of a Tenant: a request that begins after it may use
/// a principal that was read before it.
const COMPARE_WINDOW: Duration = Duration::from_secs(3);
/// How far each look back at changes of persons reaches, in milliseconds, because a change is stamped
/// before its transaction commits, and the clocks of replicas differ.
pub(in crate::gateway) const OVERLAP_MS: i64 = 10_000;

/// Persons who are compared at once, each with a connection to the database.
pub(in crate::gateway) const MAX_CONCURRENT_COMPARISONS: usize = 16;

/// How often the namespaces of requests are compared with the broker's copy of their labels.
const MOVES_INTERVAL: Duration = Duration::from_millis(250);

/// How long the broker may not know changes of Tenants and their namespaces until requests of members
/// end that may outlive their right, and how long streams last from then on.
pub(in crate::gateway) const MAX_OUT_OF_DATE: Duration = Duration::from_mins(1);

/// The watches that are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DueViews {
    All,
    /// Views of these users.
    Of(BTreeSet<Uuid>),
}

impl DueViews {
    fn includes(&self, view: &BrokerReadView) -> bool {
        match self {
            Self::All => true,
            Self::Of(users) => users.contains(&view.caller.user_id()),
        }
    }
}

/// When all watches are compared next.
#[derive(Debug)]
struct Schedule {
    revision: u64,
    /// End of the period in which every poll compares them.
    until: Instant,
    /// When they are compared, whatever changed.
    next_all: Instant,
}

impl Schedule {
    fn new(revision: u64, now: Instant) -> Self {
        Self { revision, until: now, next_all: now + ALL_INTERVAL }
    }

    /// Whether all watches are compared now, at this revision of the Tenants.
    fn are_all_due(&mut self, revision: u64, now: Instant) -> bool {
        if revision != self.revision {
            self.revision = revision;
            self.until = now + COMPARE_WINDOW;
        }
        let are_due = now < self.until || now >= self.next_all;
        if are_due {
            self.next_all = now + ALL_INTERVAL;
        }
        are_due
    }
}

impl Gateway {
    /// Compares until the task is aborted.
    pub(in crate::gateway) async fn watch_tenants(self, tenants: TenantOperations) {
        let mut ticks = ticks(INTERVAL);
        let mut schedule = Schedule::new(tenants.revision(), Instant::now());
        loop {
            ticks.tick().await;
            let due = if schedule.are_all_due(tenants.revision(), Instant::now()) {
                DueViews::All
            } else {
                self.changed_persons(&tenants).await
            };
            let closed = self.close_changed_views(&due).await;
            if closed > 0 {
                tracing::info!(
                    streams = closed,
                    "streams closed because the tenants of their users changed"
                );
            }
        }
    }

    /// Closes requests in namespaces that left the tenant of the membership, and those that may have
    /// lost their right while the broker does not know changes, until the task is aborted.
    pub(in crate::gateway) async fn watch_moves(self, tenants: TenantOperations) {
        let mut ticks = ticks(MOVES_INTERVAL);
        loop {
            ticks.tick().await;
            self.close_out_of_date();
            let closed = self.streams.close(CloseReason::NamespaceMoved, |info| {
                info.member_namespace.as_deref().is_some_and(|member_namespace| {
                    let MemberNamespace { namespace, tenant, began_at, .. } = member_namespace;
                    let has_left =
                        member_namespace.has_left(tenants.is_namespace_of(namespace, tenant));
                    // The API server decided about a young call, which ends by itself. Closed while its
                    // response begins, it would have none.
                    has_left && (info.kind != Kind::Call || began_at.elapsed() >= MIN_AGE)
                })
            });
            if closed > 0 {
                tracing::info!(
                    streams = closed,
                    "streams closed because their namespaces left the tenants of their users"
                );
            }
        }
    }

    /// Whether the broker has not known changes of Tenants and their namespaces for so long that
    /// nothing is shown by its copy.
    pub(in crate::gateway) fn are_tenants_out_of_date(&self) -> bool {
        let since = self.tenants.as_ref().and_then(TenantOperations::out_of_date_since);
        is_out_of_date(since, Instant::now())
    }

    fn close_out_of_date(&self) {
        if !self.are_tenants_out_of_date() {
            return;
        }
        let now = Instant::now();
        let closed = self.streams.close(CloseReason::TenantsOutOfDate, |info| {
            info.may_outlive_its_right(MAX_OUT_OF_DATE, now)
        });
        if closed > 0 {
            tracing::warn!(
                streams = closed,
                "streams of members closed because the broker cannot watch Tenants or namespaces"
            );
        }
    }

    /// The users of open watches whose user name or groups changed. None if the database fails,
    /// because all watches are compared soon.
    async fn changed_persons(&self, tenants: &TenantOperations) -> DueViews {
        if self.streams.views().is_empty() {
            return DueViews::Of(BTreeSet::new());
        }
        let since = self.clock.now_ms() - OVERLAP_MS;
        let changed = within(OPERATION_TIMEOUT, tenants.rbac_users_changed_since(since)).await;
        DueViews::Of(changed.unwrap_or_default().into_keys().collect())
    }

    /// A watch of each scope.
    fn open_views(&self, due: &DueViews) -> HashMap<CallerScope, Arc<BrokerReadView>> {
        let views = self.streams.views().into_iter();
        views.filter(|view| due.includes(view)).map(|view| (view.scope(), view)).collect()
    }

    /// Closes the watches that do not show what a new one shows; returns their number.
    async fn close_changed_views(&self, due: &DueViews) -> usize {
        let comparisons: Vec<_> = self
            .open_views(due)
            .into_iter()
            .map(|(scope, view)| self.close_changed_views_of(scope, view))
            .collect();
        let closed: Vec<usize> =
            stream::iter(comparisons).buffer_unordered(MAX_CONCURRENT_COMPARISONS).collect().await;
        closed.into_iter().sum()
    }

    /// Like [`Self::close_changed_views`], for one scope, of which this is a view.
    async fn close_changed_views_of(&self, scope: CallerScope, view: Arc<BrokerReadView>) -> usize {
        let read = Box::pin(self.principals.read(view.caller.clone(), Instant::now()));
        // The next comparison asks again. Streams end if the database stays away.
        let Ok(Ok(principal)) = tokio::time::timeout(OPERATION_TIMEOUT, read).await else {
            return 0;
        };
        if !principal.are_tenants_known() {
            return 0;
        }
        let cluster = self.clusters.for_new_workspaces().name();
        let is_changed = |view: &BrokerReadView| {
            view.scope() == scope && view.shown != principal.shown(cluster, view.shown.resource())
        };
        self.streams
            .close(CloseReason::TenantsChanged, |info| info.view.as_deref().is_some_and(is_changed))
    }
}

fn is_out_of_date(since: Option<Instant>, now: Instant) -> bool {
    since.is_some_and(|since| now.saturating_duration_since(since) >= MAX_OUT_OF_DATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_interruption_of_a_watch_ends_nothing() {
        let since = Instant::now();
        assert!(!is_out_of_date(None, since));
        assert!(!is_out_of_date(Some(since), since + Duration::from_secs(59)));
        assert!(is_out_of_date(Some(since), since + MAX_OUT_OF_DATE));
    }

    #[test]
    fn all_watches_are_compared_after_a_change_and_from_time_to_time() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut schedule = Schedule::new(7, start);
        for (seconds, revision, expected) in [
            (1, 7, false),
            (4, 7, false),
            (5, 7, true),
            (6, 7, false),
            // A change, and requests that began before they could know of it.
            (7, 8, true),
            (9, 8, true),
            (10, 8, false),
            (13, 8, false),
            (14, 8, true),
        ] {
            let are_due = schedule.are_all_due(revision, at(seconds));
            assert_eq!(are_due, expected, "after {seconds} s");
        }
    }
}
