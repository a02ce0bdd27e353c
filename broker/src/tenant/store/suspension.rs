//! Decisions of administrators to suspend and to resume a tenant, each with its audit row. The
//! controller carries them out.

use uuid::Uuid;

use super::{TenantRow, Tenants, deleted_bindings::clear_if_active};
use crate::{audit, on_engine};

const SUSPEND: &str = "\
UPDATE tenants SET status = 'suspending', status_changed_at = $2 \
WHERE id = $1 AND name IS NOT NULL AND status IN ('active', 'resuming')";

/// Not after another decision on the tenant.
const KEEP_SUSPENDED: &str = "\
UPDATE tenants SET status = 'suspending', status_changed_at = $2 \
WHERE id = $1 AND name IS NOT NULL AND status = 'active' AND status_changed_at = $3";

const RESUME: &str = "\
UPDATE tenants SET status = 'resuming', status_changed_at = $2 \
WHERE id = $1 AND name IS NOT NULL AND status = 'suspended' AND status_changed_at <= $3";

impl Tenants {
    /// Records that an open tenant is to be suspended, also one that is being resumed, with this
    /// event in the same transaction. `false` if it is suspended, or being suspended, already, or if
    /// it is closed; no event is recorded then.
    ///
    /// # Errors
    /// The database failed.
    pub async fn begin_suspension(&self, id: Uuid, event: audit::Event) -> sqlx::Result<bool> {
        let mut tx = self.db.begin().await?;
        clear_if_active(&mut tx, id).await?;
        let changed = on_engine!(tx.connection(), c => sqlx::query(SUSPEND)
            .bind(id).bind(self.clock.now_ms())
            .execute(c).await.map(|done| done.rows_affected() == 1))?;
        if changed {
            audit::record(&mut tx, &self.clock, event).await?;
        }
        tx.commit().await?;
        Ok(changed)
    }

    /// Records that a tenant is to be suspended whose row is active although the cluster has it as
    /// suspended, with this event in the same transaction. `false` if the status changed since the row
    /// was read; no event is recorded then.
    ///
    /// # Errors
    /// The database failed.
    pub async fn keep_suspended(&self, row: &TenantRow, event: audit::Event) -> sqlx::Result<bool> {
        let mut tx = self.db.begin().await?;
        clear_if_active(&mut tx, row.id).await?;
        let changed = on_engine!(tx.connection(), c => sqlx::query(KEEP_SUSPENDED)
            .bind(row.id).bind(self.clock.now_ms()).bind(row.status_changed_at)
            .execute(c).await.map(|done| done.rows_affected() == 1))?;
        if changed {
            audit::record(&mut tx, &self.clock, event).await?;
        }
        tx.commit().await?;
        Ok(changed)
    }

    /// Records that an open tenant is to be resumed whose suspension was complete at this time, in
    /// milliseconds since 1970, with this event in the same transaction. `false` if it was not; no
    /// event is recorded then.
    ///
    /// # Errors
    /// The database failed.
    pub async fn begin_resumption(
        &self,
        id: Uuid,
        suspended_at: i64,
        event: audit::Event,
    ) -> sqlx::Result<bool> {
        let mut tx = self.db.begin().await?;
        let changed = on_engine!(tx.connection(), c => sqlx::query(RESUME)
            .bind(id).bind(self.clock.now_ms()).bind(suspended_at)
            .execute(c).await.map(|done| done.rows_affected() == 1))?;
        if changed {
            audit::record(&mut tx, &self.clock, event).await?;
        }
        tx.commit().await?;
        Ok(changed)
    }
}
