//! Changes of the status of tenants.

use uuid::Uuid;

use super::{TenantStatus, Tenants};
use crate::{on_engine, tenant::TenantName};

const ADVANCE: &str = "\
UPDATE tenants SET status = $3, status_changed_at = $4 \
WHERE id = $1 AND status = $2 AND name IS NOT NULL";

const CHANGED: &str = "\
SELECT name, status_changed_at FROM tenants WHERE name IS NOT NULL AND \
  (status IN ('suspending', 'resuming') OR status_changed_at > $1)";

impl Tenants {
    /// Changes the status of an open tenant; `false` if it does not have the status `from`.
    ///
    /// # Errors
    /// The database failed.
    pub async fn advance(
        &self,
        id: Uuid,
        from: TenantStatus,
        to: TenantStatus,
    ) -> sqlx::Result<bool> {
        let mut tx = self.db.begin().await?;
        let changed = on_engine!(tx.connection(), c => sqlx::query(ADVANCE)
            .bind(id).bind(from.as_str()).bind(to.as_str()).bind(self.clock.now_ms())
            .execute(c).await.map(|done| done.rows_affected()))?;
        tx.commit().await?;
        Ok(changed == 1)
    }

    /// The open tenants whose status changed after this time, in milliseconds since 1970, or that
    /// are being suspended or resumed, each with the time of its change. A change is stamped before
    /// its transaction commits, so polls have to overlap. Names that this version cannot read are
    /// left out; [`Tenants::list`] logs them.
    ///
    /// # Errors
    /// The database failed.
    pub async fn changed_since(&self, since: i64) -> sqlx::Result<Vec<(TenantName, i64)>> {
        let changes: Vec<(String, i64)> = on_engine!(self.db.reader(), pool =>
            sqlx::query_as(CHANGED).bind(since).fetch_all(pool).await)?;
        let parse = |(name, at): (String, i64)| Some((name.parse::<TenantName>().ok()?, at));
        Ok(changes.into_iter().filter_map(parse).collect())
    }
}
