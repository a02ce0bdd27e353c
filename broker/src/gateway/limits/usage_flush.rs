//! Flushes usage from memory to the database, and reads it for the API.

use std::time::Duration;

use super::usage;
use crate::{
    access::{Permit, ReadWorkspace, Resource as _},
    base::{clock::ticks, error_chain},
    gateway::Gateway,
    workspace::WorkspaceRow,
};

/// How often usage is flushed.
const INTERVAL: Duration = Duration::from_secs(15);
/// How often expired days are deleted, in flushes.
const ROUNDS_PER_CLEANUP: u64 = 240;

impl Gateway {
    /// Flushes usage until the task is aborted.
    pub(in crate::gateway) async fn flush_usage(self) {
        let mut ticks = ticks(INTERVAL);
        for round in 0_u64.. {
            ticks.tick().await;
            let flushed = self.flush_usage_once().await;
            let deleted = match round % ROUNDS_PER_CLEANUP {
                0 => self.delete_expired_usage().await,
                _ => Ok(()),
            };
            if let Err(error) = flushed.and(deleted) {
                tracing::warn!(
                    error = error_chain(&error),
                    "cannot store the usage of the gateway; it is kept for the next flush"
                );
            }
            self.limiters.evict_unused();
        }
    }

    /// Flushes the usage since the last flush.
    ///
    /// # Errors
    /// The database failed; the usage stays in memory.
    pub(in crate::gateway) async fn flush_usage_once(&self) -> sqlx::Result<()> {
        for (workspace, limiter) in self.limiters.all() {
            let deltas = limiter.usage.take();
            let flushed = async {
                if deltas.is_empty() {
                    return Ok(());
                }
                let mut tx = self.db.begin().await?;
                for delta in &deltas {
                    usage::add(&mut tx, workspace, self.clock.now_ms(), delta).await?;
                }
                tx.commit().await
            };
            if let Err(error) = flushed.await {
                limiter.usage.restore(&deltas);
                return Err(error);
            }
        }
        Ok(())
    }

    async fn delete_expired_usage(&self) -> sqlx::Result<()> {
        let mut tx = self.db.begin().await?;
        usage::delete_expired(&mut tx, self.clock.now_ms()).await?;
        tx.commit().await
    }

    /// Usage of a workspace in the last days on all replicas, without what is not yet flushed.
    ///
    /// # Errors
    /// The database failed.
    pub(in crate::gateway) async fn usage(
        &self,
        permit: &Permit<ReadWorkspace, WorkspaceRow>,
        days: u32,
    ) -> sqlx::Result<tenant_shared::Usage> {
        let workspace_id = permit.resource().id();
        let items =
            usage::recent_days(&self.db, workspace_id, self.clock.now_ms(), days.into()).await?;
        Ok(tenant_shared::Usage { workspace_id, items })
    }
}
