//! Drift: differences between the objects of a workspace in the cluster and their desired state.
//!
//! A round lists each kind of object of each cluster once for all its workspaces, in pages, and
//! compares the objects with their desired state ([`suspects`]). A difference only makes the
//! workspace a suspect. [`examine`] reads a suspect's objects again and acts on what it finds,
//! provided that the workspace's row did not change meanwhile. The admission policies keep tenants
//! from causing drift, so its causes are an administrator, a restored backup or somebody who
//! bypassed the policies.

mod examine;
mod membership;
mod record;
mod repair;
mod suspects;

use std::collections::BTreeSet;

use futures_util::{StreamExt as _, stream};

use super::{WorkspaceError, Workspaces, store::drift};
use crate::base::{error_chain, lease};

/// Maximum number of recorded drifts that a round examines again. There are few of them.
const MAX_KNOWN_DRIFTS: u32 = 10_000;
/// Suspects that are examined concurrently. The limit leaves the API server to its other clients.
const MAX_CONCURRENT: usize = 4;
/// Name of the lease that one replica holds during a round.
const LEASE_NAME: &str = "drift";
/// TTL of the lease in milliseconds, in addition to the interval between rounds.
const LEASE_TTL_MS: i64 = 60_000;

impl Workspaces {
    /// Runs one round, unless another replica holds the lease; returns whether it ran. The caller
    /// starts the next round after `pause_seconds`.
    ///
    /// # Errors
    /// The cluster or the database failed. Drift that was found until then is recorded.
    pub async fn detect_drift(&self, pause_seconds: u32) -> Result<bool, WorkspaceError> {
        let lease_ms = LEASE_TTL_MS + i64::from(pause_seconds) * 1000;
        if !self.acquire_drift_lease(lease_ms).await? {
            return Ok(false);
        }
        let result = self.drift_round(lease_ms).await;
        self.metrics.drift_round(result.is_ok());
        result.map(|()| true)
    }

    async fn acquire_drift_lease(&self, milliseconds: i64) -> sqlx::Result<bool> {
        lease::acquire_lease(&self.db, &self.clock, LEASE_NAME, self.replica, milliseconds).await
    }

    async fn drift_round(&self, lease_ms: i64) -> Result<(), WorkspaceError> {
        let mut steady = self.steady().await?;
        let known = drift::all(&self.db, MAX_KNOWN_DRIFTS).await?;
        let mut suspects: BTreeSet<_> = known.iter().map(|row| row.workspace_id).collect();
        for cluster in self.clusters.iter() {
            let steady = steady.remove(cluster.name()).unwrap_or_default();
            suspects.extend(self.suspects(cluster, &steady).await?);
        }
        let mut examined = stream::iter(suspects)
            .map(|id| async move { (id, self.examine(id).await) })
            .buffer_unordered(MAX_CONCURRENT);
        let mut since = self.clock.now_ms();
        let mut failed = None;
        while let Some((id, result)) = examined.next().await {
            if let Err(error) = result {
                tracing::warn!(
                    workspace_id = %id, error = error_chain(&error), "drift detection failed"
                );
                failed = Some(error);
            }
            // A long round renews its lease, and ends if the lease was lost.
            if self.clock.now_ms() - since > LEASE_TTL_MS / 2 {
                since = self.clock.now_ms();
                if !self.acquire_drift_lease(lease_ms).await? {
                    break;
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }
}
