//! Reads and changes of the namespaces of tenants.

use std::collections::BTreeMap;

use sqlx::QueryBuilder;
use uuid::Uuid;

use super::{
    MAX_BATCH, NamespaceRow, NamespaceRows, NamespaceStatus, Tenants,
    claim::COUNT,
    namespace_row::{StoredNamespace, select_namespace},
};
use crate::{on_engine, tenant::limits::MAX_NAMESPACES};

/// How long the row of a namespace that is gone stays, in milliseconds.
const GONE_RETENTION_MS: i64 = 30 * 24 * 60 * 60 * 1000;

/// Rows of namespaces that are gone which a tenant keeps. Its owners may create and delete any number
/// of namespaces.
const MAX_GONE: i64 = 5_000;

/// Rows beyond [`MAX_GONE`] that one purge deletes, so that it ends in time.
const MAX_PURGED: i64 = 50_000;

const SET_STATUS: &str = "\
UPDATE tenant_namespaces SET status = $2, change_at = $3 \
WHERE name = $1 AND tenant_id = $10 AND status IN ($4, $5, $6, $7, $8, $9)";

/// The time differs from that of the claim, whatever the clocks of the replicas say.
const SET_SEEN: &str = "\
UPDATE tenant_namespaces SET \
  change_at = CASE WHEN created_at < $2 THEN $2 ELSE created_at + 1 END \
WHERE name = $1 AND tenant_id = $3 AND status = 'creating' AND change_at = created_at";

const RELEASE: &str = "DELETE FROM tenant_namespaces WHERE name = $1";

const RELEASE_CLAIM: &str = "\
DELETE FROM tenant_namespaces \
WHERE name = $1 AND tenant_id = $2 AND made_by = $3 AND status = 'creating'";

const DELETE_GONE: &str = "DELETE FROM tenant_namespaces WHERE status = 'gone' AND change_at <= $1";

/// The status is compared again, because a claim may have taken the row meanwhile.
const DELETE_EXCESS: &str = "\
DELETE FROM tenant_namespaces WHERE status = 'gone' AND name IN ( \
  SELECT name FROM ( \
    SELECT name, ROW_NUMBER() OVER (PARTITION BY tenant_id ORDER BY change_at DESC, name) AS place \
    FROM tenant_namespaces WHERE status = 'gone') AS gone \
  WHERE place > $1 LIMIT $2)";

/// Two ranges of the index by tenant and status, which skip the rows of namespaces that are gone.
const SELECT_OF_TENANT: &str = concat!(
    select_namespace!("WHERE tenant_id = $1 AND status < 'gone' UNION ALL "),
    select_namespace!("WHERE tenant_id = $1 AND status > 'gone' LIMIT $2"),
);

/// Those that are being deleted first.
const SELECT_CREATED: &str = "\
SELECT name, status FROM tenant_namespaces \
WHERE tenant_id = $1 AND status IN ('active', 'terminating') ORDER BY status DESC LIMIT $2";

const SELECT_HOLDERS: &str =
    "SELECT name, tenant_id FROM tenant_namespaces WHERE status <> 'gone' AND tenant_id <> ";

impl Tenants {
    /// The namespaces of a tenant, in any status that this version knows but `Gone`, by name.
    ///
    /// # Errors
    /// The database failed.
    pub async fn namespaces(&self, tenant: Uuid) -> sqlx::Result<Vec<NamespaceRow>> {
        Ok(self.namespace_rows(tenant).await?.rows)
    }

    /// The number of namespaces of a tenant that count for its quota.
    ///
    /// # Errors
    /// The database failed.
    pub async fn counted_namespaces(&self, tenant: Uuid) -> sqlx::Result<usize> {
        let counted: i64 = on_engine!(self.db.reader(), pool =>
            sqlx::query_scalar(COUNT).bind(tenant).fetch_one(pool).await)?;
        Ok(usize::try_from(counted).unwrap_or_default())
    }

    /// The namespaces of a tenant, in any status but `Gone`. At most 20,000: as many as a tenant can
    /// have, counted and beyond its quota.
    ///
    /// # Errors
    /// The database failed.
    pub async fn namespace_rows(&self, tenant: Uuid) -> sqlx::Result<NamespaceRows> {
        let most = i64::try_from(2 * MAX_NAMESPACES).unwrap_or(i64::MAX);
        let stored: Vec<StoredNamespace> = on_engine!(self.db.reader(), pool =>
            sqlx::query_as(SELECT_OF_TENANT)
                .bind(tenant).bind(most).fetch_all(pool).await)?;
        Ok(NamespaceRows::decode(stored))
    }

    /// Names of namespaces of a tenant that were created and count, and whether each is being deleted; those
    /// that are come first. At most this number.
    ///
    /// # Errors
    /// The database failed.
    pub async fn created_namespaces(
        &self,
        tenant: Uuid,
        most: i64,
    ) -> sqlx::Result<Vec<(String, bool)>> {
        let rows: Vec<(String, String)> = on_engine!(self.db.reader(), pool =>
            sqlx::query_as(SELECT_CREATED).bind(tenant).bind(most).fetch_all(pool).await)?;
        let is_terminating = |status: &str| status == NamespaceStatus::Terminating.as_str();
        Ok(rows.into_iter().map(|(name, status)| (name, is_terminating(&status))).collect())
    }

    /// The other tenants that have some of these namespaces, open or closed ones, by namespace. One
    /// statement reads up to 500 of them.
    ///
    /// # Errors
    /// The database failed.
    pub async fn held_by_others(
        &self,
        tenant: Uuid,
        namespaces: &[String],
    ) -> sqlx::Result<BTreeMap<String, Uuid>> {
        let mut held = BTreeMap::new();
        for batch in namespaces.chunks(MAX_BATCH) {
            let rows: Vec<(String, Uuid)> = on_engine!(self.db.reader(), pool => {
                let mut statement = QueryBuilder::new(SELECT_HOLDERS);
                statement.push_bind(tenant).push(" AND name IN (");
                let mut names = statement.separated(", ");
                for name in batch {
                    names.push_bind(name.clone());
                }
                statement.push(")");
                // Each number of namespaces is a different statement.
                statement.build_query_as().persistent(false).fetch_all(pool).await
            })?;
            held.extend(rows);
        }
        Ok(held)
    }

    /// The row of a namespace, whosever it is.
    ///
    /// # Errors
    /// The database failed, or the row has a value that this version does not know.
    pub async fn namespace_row(&self, name: &str) -> sqlx::Result<Option<NamespaceRow>> {
        let stored: Option<StoredNamespace> = on_engine!(self.db.reader(), pool =>
            sqlx::query_as(select_namespace!("WHERE name = $1"))
                .bind(name).fetch_optional(pool).await)?;
        stored.map(NamespaceRow::try_from).transpose()
    }

    /// Records that a namespace of a tenant which is being created exists in the cluster. If it
    /// disappears, it was deleted, and is not created again. Does nothing if that is recorded
    /// already, or if another tenant has the namespace.
    ///
    /// # Errors
    /// The database failed.
    pub async fn record_namespace_seen(&self, tenant: Uuid, name: &str) -> sqlx::Result<()> {
        let now = self.clock.now_ms();
        let mut tx = self.db.begin().await?;
        on_engine!(tx.connection(), c => sqlx::query(SET_SEEN)
            .bind(name).bind(now).bind(tenant)
            .execute(c).await.map(drop))?;
        tx.commit().await
    }

    /// Sets the status of a namespace of a tenant that is in one of these; `false` if it is in none
    /// of them, or if the tenant has no such row. A namespace that is not counted becomes one that is counted by a claim only, so
    /// `from` statuses that are not counted are ignored if `to` is.
    ///
    /// # Errors
    /// The database failed.
    pub async fn set_namespace_status(
        &self,
        tenant: Uuid,
        name: &str,
        from: &[NamespaceStatus],
        to: NamespaceStatus,
    ) -> sqlx::Result<bool> {
        let allowed: Vec<&'static str> = NamespaceStatus::ALL
            .into_iter()
            .filter(|status| from.contains(status) && (status.counts() || !to.counts()))
            .map(NamespaceStatus::as_str)
            .collect();
        let Some(first) = allowed.first() else { return Ok(false) };
        // The statement has a place for each status. Unused ones repeat the first.
        let from = |index: usize| *allowed.get(index).unwrap_or(first);
        let mut tx = self.db.begin().await?;
        let changed = on_engine!(tx.connection(), c => sqlx::query(SET_STATUS)
            .bind(name).bind(to.as_str()).bind(self.clock.now_ms())
            .bind(from(0)).bind(from(1)).bind(from(2)).bind(from(3)).bind(from(4)).bind(from(5))
            .bind(tenant)
            .execute(c).await.map(|done| done.rows_affected()))?;
        tx.commit().await?;
        Ok(changed == 1)
    }

    /// Deletes the row of a namespace that does not exist: its creation was refused, or it was
    /// deleted by somebody who may do so. Its name is free for every tenant.
    ///
    /// # Errors
    /// The database failed.
    pub async fn release_namespace(&self, name: &str) -> sqlx::Result<()> {
        let mut tx = self.db.begin().await?;
        on_engine!(tx.connection(), c =>
            sqlx::query(RELEASE).bind(name).execute(c).await.map(drop))?;
        tx.commit().await
    }

    /// Deletes the row of a namespace that this user claimed for the tenant and that was not created;
    /// `false` if the row is another one by now, or its namespace became active.
    ///
    /// # Errors
    /// The database failed.
    pub async fn release_claim(&self, tenant: Uuid, name: &str, user: Uuid) -> sqlx::Result<bool> {
        let mut tx = self.db.begin().await?;
        let released = on_engine!(tx.connection(), c => sqlx::query(RELEASE_CLAIM)
            .bind(name).bind(tenant).bind(user)
            .execute(c).await.map(|done| done.rows_affected() == 1))?;
        tx.commit().await?;
        Ok(released)
    }

    /// Deletes the rows of namespaces that have been gone for 30 days, and of each tenant all but the
    /// latest 5,000 of them, so that their number is bounded. A background task calls it at an
    /// interval.
    ///
    /// # Errors
    /// The database failed.
    pub async fn purge(&self) -> sqlx::Result<()> {
        let before = self.clock.now_ms() - GONE_RETENTION_MS;
        let mut tx = self.db.begin().await?;
        on_engine!(tx.connection(), c =>
            sqlx::query(DELETE_GONE).bind(before).execute(c).await.map(drop))?;
        tx.commit().await?;
        let mut tx = self.db.begin().await?;
        on_engine!(tx.connection(), c => sqlx::query(DELETE_EXCESS)
            .bind(MAX_GONE).bind(MAX_PURGED)
            .execute(c).await.map(drop))?;
        tx.commit().await
    }
}
