//! Changes of the status of tenants.

use std::collections::BTreeMap;

use super::{TenantRow, TenantStatus, Tenants};
use crate::{on_engine, tenant::TenantName};

const ADVANCE: &str = "\
UPDATE tenants SET status = $3, status_changed_at = $4 \
WHERE id = $1 AND status = $2 AND status_changed_at = $5 AND name IS NOT NULL";

const CHANGED: &str = "\
SELECT name, status_changed_at FROM tenants WHERE name IS NOT NULL AND \
  (status IN ('suspending', 'resuming') OR status_changed_at > $1)";

const NOT_ACTIVE: &str = "\
SELECT name, status, status_changed_at FROM tenants WHERE name IS NOT NULL AND status <> 'active'";

impl Tenants {
    /// Changes the status of an open tenant, and returns the changed row. `None` if the status was
    /// changed since this row was read, also if it is the same again: a suspension that a later one
    /// followed is not complete because the earlier one is.
    ///
    /// # Errors
    /// The database failed.
    pub async fn advance(
        &self,
        row: &TenantRow,
        to: TenantStatus,
    ) -> sqlx::Result<Option<TenantRow>> {
        let now = self.clock.now_ms();
        let mut tx = self.db.begin().await?;
        let changed = on_engine!(tx.connection(), c => sqlx::query(ADVANCE)
            .bind(row.id).bind(row.status.as_str()).bind(to.as_str()).bind(now)
            .bind(row.status_changed_at)
            .execute(c).await.map(|done| done.rows_affected()))?;
        tx.commit().await?;
        let advanced = || TenantRow { status: to, status_changed_at: now, ..row.clone() };
        Ok((changed == 1).then(advanced))
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

    /// The open tenants that are suspended, or whose suspension or resumption is not complete, with their
    /// statuses and the times of the last changes, in milliseconds since 1970. Names and statuses that this
    /// version cannot read are left out.
    ///
    /// # Errors
    /// The database failed.
    pub async fn not_active(&self) -> sqlx::Result<BTreeMap<TenantName, (TenantStatus, i64)>> {
        let rows: Vec<(String, String, i64)> = on_engine!(self.db.reader(), pool =>
            sqlx::query_as(NOT_ACTIVE).fetch_all(pool).await)?;
        let parse = |(name, status, at): (String, String, i64)| {
            Some((name.parse().ok()?, (TenantStatus::parse(&status)?, at)))
        };
        Ok(rows.into_iter().filter_map(parse).collect())
    }
}
