//! Closes watches of tenants' namespaces whose selection is out of date, because their caller lost or
//! gained a tenant. Clients then list again.
//!
//! Suspended memberships and ended sessions are noticed sooner ([`super::revocation_watcher`]). This
//! compares by state, so it also finds what clocks of replicas that differ have hidden.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::{Gateway, cancel::CloseReason, streams::NamespaceView};
use crate::base::{clock::ticks, db::OPERATION_TIMEOUT};

/// How often watches are compared.
const INTERVAL: Duration = Duration::from_secs(5);

impl Gateway {
    /// Compares until the task is aborted.
    pub(super) async fn watch_tenants(self) {
        let mut ticks = ticks(INTERVAL);
        loop {
            ticks.tick().await;
            let closed = self.close_changed_views().await;
            if closed > 0 {
                tracing::info!(
                    streams = closed,
                    "streams closed because the tenants of their users changed"
                );
            }
        }
    }

    /// Closes the watches whose selection is not that of a new one; returns their number.
    async fn close_changed_views(&self) -> usize {
        let views = self.streams.open().into_iter().filter_map(|info| info.view);
        let by_scope: HashMap<_, _> = views.map(|view| (view.scope(), view)).collect();
        let mut closed = 0;
        for (scope, view) in by_scope {
            let read = Box::pin(self.principals.read(view.caller.clone(), Instant::now()));
            // The next comparison asks again. Streams end if the database stays away.
            let Ok(Ok(principal)) = tokio::time::timeout(OPERATION_TIMEOUT, read).await else {
                continue;
            };
            if !principal.are_tenants_known() {
                continue;
            }
            let cluster = self.clusters.for_new_workspaces().name();
            let listed = principal.listed_tenants(cluster);
            let is_changed = |view: &NamespaceView| view.scope() == scope && view.tenants != listed;
            closed += self.streams.close(CloseReason::TenantsChanged, |info| {
                info.view.as_deref().is_some_and(is_changed)
            });
        }
        closed
    }
}
