//! Claims of namespaces by tenants, counted exactly: a claim locks the row of its tenant, so two
//! claims of one tenant never count at the same time.

use sqlx::QueryBuilder;
use uuid::Uuid;

use super::{
    MAX_BATCH, NamespaceRow, NamespaceStatus, Tenants, lock_active_tenant,
    namespace_row::{StoredNamespace, select_namespace},
};
use crate::{audit, base::db::Tx, on_engine, tenant::limits::MAX_NAMESPACES};

/// Result of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The row is new, in the status `Creating`.
    Created,
    /// The tenant has the namespace already. A row in the status `OverQuota` is `Creating` now,
    /// because there is room for it; any other one is as it was.
    Exists(NamespaceRow),
    /// The tenant has as many namespaces as it may have. No row was changed.
    QuotaExceeded {
        /// Namespaces that are counted.
        used: u32,
        /// The limit.
        quota: u32,
    },
    /// The name is that of a namespace of another tenant, or of one that was closed.
    OtherTenant,
}

/// Locks an open tenant until the transaction ends.
const LOCK_TENANT: &str = "UPDATE tenants SET status = status WHERE id = $1 AND name IS NOT NULL";

const LOCK_NAMESPACE: &str = "UPDATE tenant_namespaces SET status = status WHERE name = $1";

/// The statuses that [`NamespaceStatus::counts`] names.
pub(super) const COUNT: &str = "\
SELECT COUNT(*) FROM tenant_namespaces \
WHERE tenant_id = $1 AND status IN ('creating', 'active', 'terminating')";

const COUNT_OVER_QUOTA: &str =
    "SELECT COUNT(*) FROM tenant_namespaces WHERE tenant_id = $1 AND status = 'over_quota'";

/// Takes the place of a row that is `Gone`, whosever it was.
const INSERT: &str = "\
INSERT INTO tenant_namespaces (name, tenant_id, status, made_by, created_at, change_at) \
VALUES ($1, $2, $3, $4, $5, $5) \
ON CONFLICT (name) DO UPDATE SET \
  tenant_id = $2, status = $3, made_by = $4, created_at = $5, change_at = $5 \
WHERE tenant_namespaces.status = 'gone'";

const RECOVER: &str =
    "INSERT INTO tenant_namespaces (name, tenant_id, status, created_at, change_at) ";

const REPLACE_GONE: &str = "\
 ON CONFLICT (name) DO UPDATE SET tenant_id = excluded.tenant_id, status = excluded.status, \
  made_by = NULL, created_at = excluded.created_at, change_at = excluded.change_at \
WHERE tenant_namespaces.status = 'gone'";

const PROMOTE: &str = "\
UPDATE tenant_namespaces SET status = 'creating', change_at = $2 \
WHERE name = $1 AND status = 'over_quota'";

impl Tenants {
    /// Claims a namespace for a tenant, and counts it. The caller checked that the name is a DNS
    /// label (RFC 1123) that the tenant may use, and makes the namespace after this. Without a quota
    /// the limit is 10,000. Exact under concurrency.
    ///
    /// # Errors
    /// [`sqlx::Error::RowNotFound`]: the tenant is closed, or there is none. Else the database
    /// failed, or a row has a value that this version does not know.
    pub async fn claim_namespace(
        &self,
        tenant: Uuid,
        name: &str,
        made_by: Option<Uuid>,
        quota: Option<u32>,
    ) -> sqlx::Result<Claim> {
        let mut tx = self.db.begin().await?;
        lock_tenant(&mut tx, tenant).await?;
        let claim = self.claim_in(&mut tx, tenant, name, made_by, quota).await?;
        tx.commit().await?;
        Ok(claim)
    }

    /// Like [`Self::claim_namespace`], for a user who asked for the namespace. `None` if the tenant
    /// is suspended or closed. A new row is recorded with this event in the same transaction.
    ///
    /// # Errors
    /// The database failed, or a row has a value that this version does not know.
    pub async fn claim_for_user(
        &self,
        tenant: Uuid,
        name: &str,
        user: Uuid,
        quota: Option<u32>,
        event: audit::Event,
    ) -> sqlx::Result<Option<Claim>> {
        let mut tx = self.db.begin().await?;
        if !lock_active_tenant(&mut tx, tenant).await? {
            return Ok(None);
        }
        let claim = self.claim_in(&mut tx, tenant, name, Some(user), quota).await?;
        if claim == Claim::Created {
            audit::record(&mut tx, &self.clock, event).await?;
        }
        tx.commit().await?;
        Ok(Some(claim))
    }

    /// Claims a namespace for a tenant whose row is locked.
    async fn claim_in(
        &self,
        tx: &mut Tx,
        tenant: Uuid,
        name: &str,
        made_by: Option<Uuid>,
        quota: Option<u32>,
    ) -> sqlx::Result<Claim> {
        let existing = match lock_namespace(tx, name).await? {
            Some(row) if row.status != NamespaceStatus::Gone && row.tenant_id != tenant => {
                return Ok(Claim::OtherTenant);
            }
            Some(row)
                if !matches!(row.status, NamespaceStatus::Gone | NamespaceStatus::OverQuota) =>
            {
                return Ok(Claim::Exists(row));
            }
            existing => existing,
        };
        let (used, quota) = quota_usage(tx, tenant, quota).await?;
        if used >= quota {
            return Ok(Claim::QuotaExceeded { used, quota });
        }
        if let Some(row) = existing.filter(|row| row.status == NamespaceStatus::OverQuota) {
            return Ok(Claim::Exists(self.count_namespace(tx, row).await?));
        }
        let creating = NamespaceStatus::Creating;
        let inserted = self.insert_namespace(tx, tenant, name, creating, made_by).await?;
        // Another tenant may have claimed the name since it was looked up.
        Ok(if inserted { Claim::Created } else { Claim::OtherTenant })
    }

    /// Records a namespace that exists in the cluster with the label of the tenant, beyond the
    /// tenant's quota; `false` if a row has the name already, or if the tenant has 10,000 such
    /// namespaces. A later claim counts it if there is room.
    ///
    /// # Errors
    /// See [`Self::claim_namespace`].
    pub async fn record_over_quota(&self, tenant: Uuid, name: &str) -> sqlx::Result<bool> {
        let mut tx = self.db.begin().await?;
        lock_tenant(&mut tx, tenant).await?;
        let inserted = count(&mut tx, COUNT_OVER_QUOTA, tenant).await? < max_namespaces()
            && self
                .insert_namespace(&mut tx, tenant, name, NamespaceStatus::OverQuota, None)
                .await?;
        tx.commit().await?;
        Ok(inserted)
    }

    /// Writes the rows of namespaces that the tenant had before their rows were lost, whatever its quota
    /// is. Rows that exist, of this tenant or another one, stay as they are. `rows` is the number of the
    /// tenant's rows; beyond 20,000 none is written.
    ///
    /// # Errors
    /// See [`Self::claim_namespace`].
    pub async fn recover_namespaces(
        &self,
        tenant: Uuid,
        names: &[String],
        status: NamespaceStatus,
        rows: usize,
    ) -> sqlx::Result<()> {
        let now = self.clock.now_ms();
        let names = &names[..names.len().min((2 * MAX_NAMESPACES).saturating_sub(rows))];
        for batch in names.chunks(MAX_BATCH) {
            let mut tx = self.db.begin().await?;
            lock_tenant(&mut tx, tenant).await?;
            on_engine!(tx.connection(), c => {
                let mut statement = QueryBuilder::new(RECOVER);
                statement.push_values(batch, |mut row, name| {
                    row.push_bind(name.clone()).push_bind(tenant).push_bind(status.as_str());
                    row.push_bind(now).push_bind(now);
                });
                statement.push(REPLACE_GONE);
                // Each number of namespaces is a different statement.
                statement.build().persistent(false).execute(c).await.map(drop)
            })?;
            tx.commit().await?;
        }
        Ok(())
    }

    /// Inserts a row; `false` if there is one that is not `Gone`.
    async fn insert_namespace(
        &self,
        tx: &mut Tx,
        tenant: Uuid,
        name: &str,
        status: NamespaceStatus,
        made_by: Option<Uuid>,
    ) -> sqlx::Result<bool> {
        on_engine!(tx.connection(), c => sqlx::query(INSERT)
            .bind(name).bind(tenant).bind(status.as_str()).bind(made_by).bind(self.clock.now_ms())
            .execute(c).await.map(|done| done.rows_affected() == 1))
    }

    /// Counts a locked namespace that was beyond the quota.
    async fn count_namespace(&self, tx: &mut Tx, row: NamespaceRow) -> sqlx::Result<NamespaceRow> {
        let change_at = self.clock.now_ms();
        on_engine!(tx.connection(), c => sqlx::query(PROMOTE)
            .bind(&row.name).bind(change_at).execute(c).await.map(drop))?;
        Ok(NamespaceRow { status: NamespaceStatus::Creating, change_at, ..row })
    }
}

/// How many namespaces a tenant has at most.
fn max_namespaces() -> u32 {
    u32::try_from(MAX_NAMESPACES).unwrap_or(u32::MAX)
}

/// The namespaces of a tenant that are counted, and the limit. They stay like this until the
/// transaction ends if it has locked the row of the tenant.
pub(super) async fn quota_usage(
    tx: &mut Tx,
    tenant: Uuid,
    quota: Option<u32>,
) -> sqlx::Result<(u32, u32)> {
    let quota = quota.map_or(max_namespaces(), |quota| quota.min(max_namespaces()));
    Ok((count(tx, COUNT, tenant).await?, quota))
}

async fn lock_tenant(tx: &mut Tx, id: Uuid) -> sqlx::Result<()> {
    let locked = on_engine!(tx.connection(), c =>
        sqlx::query(LOCK_TENANT).bind(id).execute(c).await.map(|done| done.rows_affected()))?;
    if locked == 1 { Ok(()) } else { Err(sqlx::Error::RowNotFound) }
}

/// The row of a namespace, locked until the transaction ends.
pub(super) async fn lock_namespace(tx: &mut Tx, name: &str) -> sqlx::Result<Option<NamespaceRow>> {
    let locked = on_engine!(tx.connection(), c =>
        sqlx::query(LOCK_NAMESPACE).bind(name).execute(c).await.map(|done| done.rows_affected()))?;
    if locked == 0 {
        return Ok(None);
    }
    let stored: Option<StoredNamespace> = on_engine!(tx.connection(), c =>
        sqlx::query_as(select_namespace!("WHERE name = $1")).bind(name).fetch_optional(c).await)?;
    stored.map(NamespaceRow::try_from).transpose()
}

async fn count(tx: &mut Tx, statement: &'static str, tenant: Uuid) -> sqlx::Result<u32> {
    let rows: i64 = on_engine!(tx.connection(), c =>
        sqlx::query_scalar(statement).bind(tenant).fetch_one(c).await)?;
    Ok(u32::try_from(rows).unwrap_or(u32::MAX))
}
