//! Pauses and log lines of a watch that fails.

use std::time::Duration;

use tokio::time::Instant;

use crate::{base::error_chain, cluster::ClusterError, tenant::ApiGroup};

/// Pause before a watch begins anew; it doubles with each failure.
const MIN_RETRY: Duration = Duration::from_secs(1);
/// Longest pause before a watch begins anew.
const MAX_RETRY: Duration = Duration::from_mins(1);
/// How long a watch has to last after its list, so that the pauses begin anew. One that may list and
/// not watch would otherwise list all objects every second.
const MIN_LIFETIME: Duration = Duration::from_mins(1);

/// Reason for the end of a watch.
#[derive(Debug)]
pub(in crate::tenant_controller) enum WatchEnd {
    /// The definition does not exist, or the broker may not read its objects.
    NotServed,
    Failed(ClusterError),
}

impl From<ClusterError> for WatchEnd {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::NotFound(_) => Self::NotServed,
            error => Self::Failed(error),
        }
    }
}

/// The watch of one kind, over its attempts.
#[derive(Debug)]
pub(in crate::tenant_controller) struct WatchRetry {
    kind: &'static str,
    /// API group of the kind; empty for a kind of Kubernetes.
    group: &'static str,
    /// Attempts since the last watch that lasted.
    failures: u32,
    /// The last log line said that the watch failed.
    is_reported: bool,
    /// When the present watch had listed all objects.
    listed_at: Option<Instant>,
}

impl WatchRetry {
    /// The watch of a kind of Kubernetes.
    pub(in crate::tenant_controller) fn new(kind: &'static str) -> Self {
        Self { kind, group: "", failures: 0, is_reported: false, listed_at: None }
    }

    /// The watch of the Tenants of a group.
    pub(in crate::tenant_controller) fn of_tenants(group: ApiGroup) -> Self {
        Self { group: group.name(), ..Self::new("Tenant") }
    }

    /// The watch has listed all objects.
    pub(in crate::tenant_controller) fn listed(&mut self) {
        if self.is_reported {
            tracing::info!(kind = self.kind, group = self.group, "watch for tenants continues");
            self.is_reported = false;
        }
        self.listed_at.get_or_insert_with(Instant::now);
    }

    /// Logs the first of several failures, and waits.
    pub(in crate::tenant_controller) async fn wait(&mut self, end: WatchEnd) {
        if !self.is_reported {
            self.is_reported = true;
            match end {
                WatchEnd::NotServed => tracing::info!(
                    kind = self.kind,
                    group = self.group,
                    "the API server does not serve this kind to the broker; tenant-broker install \
                     --apply makes the definition of Tenants, with --capsule-api that of \
                     capsule.clastix.io"
                ),
                WatchEnd::Failed(error) => tracing::warn!(
                    kind = self.kind,
                    group = self.group,
                    error = error_chain(&error),
                    "watch for tenants failed; it is tried again"
                ),
            }
        }
        let lifetime = self.listed_at.take().map(|listed_at| listed_at.elapsed());
        tokio::time::sleep(self.next_pause(lifetime.unwrap_or_default())).await;
    }

    /// The pause after a watch that lasted so long.
    fn next_pause(&mut self, lifetime: Duration) -> Duration {
        if lifetime >= MIN_LIFETIME {
            self.failures = 0;
        }
        let pause = MIN_RETRY.saturating_mul(2_u32.saturating_pow(self.failures)).min(MAX_RETRY);
        self.failures = self.failures.saturating_add(1);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_watch_lasts() {
        let mut retry = WatchRetry::new("Namespace");
        let short = Duration::from_secs(59);
        for (lifetime, seconds) in [
            (Duration::ZERO, 1),
            // Watches that list and are refused then.
            (short, 2),
            (short, 4),
            (Duration::ZERO, 8),
            (short, 16),
            (short, 32),
            (short, 60),
            (short, 60),
            (MIN_LIFETIME, 1),
            (short, 2),
        ] {
            assert_eq!(retry.next_pause(lifetime), Duration::from_secs(seconds), "{lifetime:?}");
        }
    }

    #[test]
    fn the_lifetime_of_a_watch_begins_with_its_first_list() {
        let mut retry = WatchRetry::new("Namespace");
        retry.listed();
        let listed_at = retry.listed_at;
        assert!(listed_at.is_some());
        // The API server had forgotten the events, so the watch lists again.
        retry.listed();
        assert_eq!(retry.listed_at, listed_at);
    }
}
