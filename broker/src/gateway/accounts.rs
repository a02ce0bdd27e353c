//! Writes down what tenants used, and shows it.

use std::time::Duration;

use super::{Gateway, usage};
use crate::{
    access::{Permit, ReadWorkspace},
    clock::ticks,
    problem::chain,
};

/// How often it is written down.
const EVERY: Duration = Duration::from_secs(15);
/// How often old days are deleted, in rounds.
const ROUNDS_PER_LOOK: u64 = 240;

impl Gateway {
    /// Writes down what tenants used until it is dropped.
    pub(super) async fn keep_usage(self) {
        let mut ticks = ticks(EVERY);
        for round in 0_u64.. {
            ticks.tick().await;
            let written = self.write_usage().await;
            let forgotten = match round % ROUNDS_PER_LOOK {
                0 => self.forget_usage().await,
                _ => Ok(()),
            };
            if let Err(error) = written.and(forgotten) {
                tracing::warn!(
                    error = chain(&error),
                    "what went through the gateway cannot be written down; it is kept"
                );
            }
            self.shares.purge();
        }
    }

    /// Writes down what tenants used since the last time.
    ///
    /// # Errors
    /// The database's; nothing is lost then.
    pub(super) async fn write_usage(&self) -> sqlx::Result<()> {
        for (workspace, share) in self.shares.all() {
            let taken = share.usage.take();
            let written = async {
                if taken.is_empty() {
                    return Ok(());
                }
                let mut tx = self.db.begin().await?;
                for of in &taken {
                    usage::add(&mut tx, workspace, self.clock.now_ms(), of).await?;
                }
                tx.commit().await
            };
            if let Err(error) = written.await {
                share.usage.put_back(&taken);
                return Err(error);
            }
        }
        Ok(())
    }

    async fn forget_usage(&self) -> sqlx::Result<()> {
        let mut tx = self.db.begin().await?;
        usage::forget(&mut tx, self.clock.now_ms()).await?;
        tx.commit().await
    }

    /// What a workspace used in the last days, on all replicas; the last seconds may be missing.
    ///
    /// # Errors
    /// The database's.
    pub(super) async fn usage(
        &self,
        permit: &Permit<ReadWorkspace>,
        days: u32,
    ) -> sqlx::Result<tenant_shared::Usage> {
        let workspace_id = permit.workspace().unwrap_or_default();
        let items = usage::of(&self.db, workspace_id, self.clock.now_ms(), days.into()).await?;
        Ok(tenant_shared::Usage { workspace_id, items })
    }
}
