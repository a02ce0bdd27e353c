//! Namespaces of tenants that were closed. Their rows keep a later tenant of the same name from
//! inheriting them, as long as they exist in the cluster with the label of the tenant.

use uuid::Uuid;

use super::Tenants;
use crate::on_engine;

/// A namespace whose tenant was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    pub namespace: String,
    pub tenant_id: Uuid,
    /// Name that the tenant had, which is the value of the label.
    pub tenant: String,
    /// When the tenant was closed, in milliseconds since 1970.
    pub orphaned_at: i64,
}

const ORPHANS: &str = "\
SELECT n.name, n.tenant_id, COALESCE(t.closed_name, t.name, ''), n.change_at \
FROM tenant_namespaces n JOIN tenants t ON t.id = n.tenant_id \
WHERE n.status = 'orphaned' ORDER BY n.name";

/// Another tenant may have the name by now.
const RELEASE_ORPHAN: &str = "\
DELETE FROM tenant_namespaces WHERE name = $1 AND tenant_id = $2 AND status = 'orphaned'";

impl Tenants {
    /// The namespaces of closed tenants.
    ///
    /// # Errors
    /// The database failed.
    pub async fn orphans(&self) -> sqlx::Result<Vec<Orphan>> {
        let rows: Vec<(String, Uuid, String, i64)> = on_engine!(self.db.reader(), pool =>
            sqlx::query_as(ORPHANS).fetch_all(pool).await)?;
        let orphan = |(namespace, tenant_id, tenant, orphaned_at)| Orphan {
            namespace,
            tenant_id,
            tenant,
            orphaned_at,
        };
        Ok(rows.into_iter().map(orphan).collect())
    }

    /// Deletes the row of an orphaned namespace, so that its name is free for every tenant; `false`
    /// if there is no such row any more.
    ///
    /// # Errors
    /// The database failed.
    pub async fn release_orphan(&self, orphan: &Orphan) -> sqlx::Result<bool> {
        let mut tx = self.db.begin().await?;
        let deleted = on_engine!(tx.connection(), c => sqlx::query(RELEASE_ORPHAN)
            .bind(&orphan.namespace).bind(orphan.tenant_id)
            .execute(c).await.map(|done| done.rows_affected()))?;
        tx.commit().await?;
        Ok(deleted == 1)
    }
}
