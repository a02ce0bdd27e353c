//! The sweep: finishes what a crash or a silent cluster left half done.
//!
//! Every replica sweeps. A workspace is one replica's at a time, by a claim in its row that ends by
//! itself; two at once would do no harm, for every step may be run again.

use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use tenant_shared::WorkspaceStatus;

use super::{
    Found, WorkspaceError, Workspaces,
    progress::Steps,
    store::{drift, work},
};
use crate::{problem::chain, telemetry::SweepOutcome};

/// Workspaces that one round takes up.
const MOST_A_ROUND: u32 = 500;
/// Workspaces at once: the API server has others to serve.
const AT_ONCE: usize = 4;
/// How long a round takes workspaces up: the next one begins with the suspensions that came meanwhile.
const ROUND_TIME_LIMIT: Duration = Duration::from_secs(30);
/// How long a workspace may take.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// For how long a workspace is claimed: whatever the replica that holds it does, it has ended.
const CLAIM_MS: i64 = 45_000;

impl Workspaces {
    /// One round over all half-done workspaces whose time has come. Returns how many it could not
    /// finish; they come again after a back-off.
    ///
    /// # Errors
    /// The database's.
    pub async fn sweep(&self) -> sqlx::Result<usize> {
        let due = work::due(&self.db, self.clock.now_ms(), MOST_A_ROUND).await?;
        let began = Instant::now();
        let results: Vec<_> = stream::iter(due)
            .take_while(|_| std::future::ready(began.elapsed() < ROUND_TIME_LIMIT))
            .map(|found| self.take_up(found))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let mut left = 0;
        for finished in results {
            left += usize::from(!finished?);
        }
        Ok(left)
    }

    /// Shows in the metrics how many workspaces are where, and what differs in the cluster.
    ///
    /// # Errors
    /// The database's.
    pub async fn take_stock(&self) -> sqlx::Result<()> {
        let now = self.clock.now_ms();
        let census = work::census(&self.db).await?;
        for status in WorkspaceStatus::ALL {
            let row = census.iter().find(|(name, ..)| name == status.as_str());
            let (count, since) = row.map_or((0, now), |(_, count, since)| (*count, *since));
            self.metrics.workspaces(status, count, (now - since).max(0) / 1000);
        }
        self.metrics.open_drift(&drift::counts(&self.db).await?);
        Ok(())
    }

    /// Works on one workspace, if no other replica does; false if it is not finished afterwards.
    async fn take_up(&self, found: Found) -> sqlx::Result<bool> {
        let until = self.clock.now_ms() + CLAIM_MS;
        let Some(found) = work::claim(&self.db, found, until).await? else { return Ok(true) };
        let (status, mut steps) = (found.status(), Steps::default());
        let work = Box::pin(self.finish(&found, &mut steps));
        let result = tokio::time::timeout(TIME_LIMIT, work).await;
        let (outcome, error) = match result {
            Ok(Ok(())) => {
                self.metrics.swept(status, SweepOutcome::Done);
                tracing::info!(workspace = %found.id, was = status.as_str(), "sweep finished a workspace");
                return Ok(true);
            }
            Ok(Err(error)) => (SweepOutcome::Failed, chain(&error)),
            Err(_) => (SweepOutcome::TimedOut, format!("not done in {TIME_LIMIT:?}")),
        };
        self.metrics.swept(status, outcome);
        let open_steps = steps.open_steps(status);
        let rest = work::back_off_ms(status, found.sweep_attempts);
        tracing::warn!(
            workspace = %found.id, status = status.as_str(), open_steps, error,
            attempts = found.sweep_attempts, again_in_ms = rest,
            "sweep could not finish a workspace"
        );
        work::postpone(&self.db, &found, self.clock.now_ms() + rest, &open_steps).await?;
        Ok(false)
    }

    async fn finish(&self, found: &Found, steps: &mut Steps) -> Result<(), WorkspaceError> {
        match found.status() {
            WorkspaceStatus::Suspending => self.take_rights(found, steps).await,
            WorkspaceStatus::Provisioned => self.rotate(found, steps).await,
            // The label first: what a request did not take off is in the way of everything else.
            WorkspaceStatus::Resuming => self.give_rights(found, steps).await,
            _ => {
                let made = Box::pin(self.finish_provisioning(found));
                steps.run("create_objects", async { made.await.map(drop) }).await
            }
        }
    }
}
