//! The sweep: it finishes the work on workspaces that a crash or an unavailable cluster left half
//! done.
//!
//! Every replica sweeps. A claim in the row of a workspace gives it to one replica at a time; the
//! claim expires by itself. Two replicas at once would do no harm, because every step is
//! idempotent.

use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use tenant_shared::WorkspaceStatus;

use super::{
    WorkspaceError, WorkspaceRow, Workspaces,
    progress::Steps,
    store::{drift, work},
};
use crate::base::{error_chain, telemetry::SweepOutcome};

/// Maximum number of workspaces in one round.
const MAX_BATCH: u32 = 500;
/// Workspaces that are processed concurrently. The limit leaves the API server to its other
/// clients.
const MAX_CONCURRENT: usize = 4;
/// How long a round starts work on further workspaces. The next round then begins with the
/// suspensions that were requested meanwhile.
const ROUND_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the work on one workspace may take.
const WORKSPACE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a claim is valid, in milliseconds. It is longer than [`WORKSPACE_TIMEOUT`], so the work
/// of the replica that holds it has ended by then.
const CLAIM_TTL_MS: i64 = 45_000;

impl Workspaces {
    /// Runs one round over all unfinished workspaces that are due. Returns how many it could not
    /// finish; they are retried after a backoff.
    ///
    /// # Errors
    /// The database failed.
    pub async fn sweep(&self) -> sqlx::Result<usize> {
        let due = work::due(&self.db, self.clock.now_ms(), MAX_BATCH).await?;
        let began = Instant::now();
        let results: Vec<_> = stream::iter(due)
            .take_while(|_| std::future::ready(began.elapsed() < ROUND_TIMEOUT))
            .map(|workspace| self.claim_and_finish(workspace))
            .buffer_unordered(MAX_CONCURRENT)
            .collect()
            .await;
        let mut left = 0;
        for finished in results {
            left += usize::from(!finished?);
        }
        self.metrics.sweep_completed(self.clock.now());
        Ok(left)
    }

    /// Sets the gauges of workspaces by status and of open drift.
    ///
    /// # Errors
    /// The database failed.
    pub async fn record_gauges(&self) -> sqlx::Result<()> {
        let now = self.clock.now_ms();
        let counts = work::count_by_status(&self.db).await?;
        for status in WorkspaceStatus::ALL {
            let row = counts.iter().find(|(name, ..)| name == status.as_str());
            let (count, since) = row.map_or((0, now), |(_, count, since)| (*count, *since));
            self.metrics.set_workspaces(status, count, (now - since).max(0) / 1000);
        }
        self.metrics.set_open_drift(&drift::counts(&self.db).await?);
        Ok(())
    }

    /// Claims a workspace and finishes its work, unless another replica has claimed it. Returns
    /// false if the work is not finished afterwards.
    async fn claim_and_finish(&self, workspace: WorkspaceRow) -> sqlx::Result<bool> {
        let until = self.clock.now_ms() + CLAIM_TTL_MS;
        let Some(workspace) = work::claim(&self.db, workspace, until).await? else {
            return Ok(true);
        };
        let (status, mut steps) = (workspace.status(), Steps::default());
        let work = Box::pin(self.finish(&workspace, &mut steps));
        let result = tokio::time::timeout(WORKSPACE_TIMEOUT, work).await;
        let (outcome, error) = match result {
            Ok(Ok(())) => {
                self.metrics.sweep_attempt(status, SweepOutcome::Done);
                tracing::info!(
                    workspace_id = %workspace.id, was = status.as_str(), "sweep finished a workspace"
                );
                return Ok(true);
            }
            Ok(Err(error)) => (SweepOutcome::Failed, error_chain(&error)),
            Err(_) => (SweepOutcome::TimedOut, format!("not done in {WORKSPACE_TIMEOUT:?}")),
        };
        self.metrics.sweep_attempt(status, outcome);
        let open_steps = steps.open_steps(workspace.kind(), status);
        let rest = work::backoff_ms(status, workspace.sweep_attempts);
        tracing::warn!(
            workspace_id = %workspace.id, status = status.as_str(), open_steps, error,
            attempts = workspace.sweep_attempts, again_in_ms = rest,
            "sweep could not finish a workspace"
        );
        work::postpone(&self.db, &workspace, self.clock.now_ms() + rest, &open_steps).await?;
        Ok(false)
    }

    async fn finish(
        &self,
        workspace: &WorkspaceRow,
        steps: &mut Steps,
    ) -> Result<(), WorkspaceError> {
        match workspace.status() {
            WorkspaceStatus::Suspending => self.revoke_access(workspace, steps).await,
            WorkspaceStatus::Provisioned => self.rotate(workspace, steps).await,
            // The label comes first, because a label that the request did not remove blocks all
            // else.
            WorkspaceStatus::Resuming => self.restore_access(workspace, steps).await,
            _ => {
                let made = Box::pin(self.finish_provisioning(workspace));
                steps.run("create_objects", async { made.await.map(drop) }).await
            }
        }
    }
}
