//! Table `tenant_deleted_bindings`: RoleBindings of others that the last suspension of a tenant deleted.

use sqlx::QueryBuilder;
use uuid::Uuid;

use super::{MAX_BATCH, Tenants};
use crate::{base::db::Tx, on_engine};

/// Names that are kept of one tenant. Owners may make any number of RoleBindings.
const MAX_DELETED_BINDINGS: i64 = 1_000;
/// Characters of a name. The policies refuse longer ones in namespaces of tenants, and an index of
/// PostgreSQL has room for about 2,700 bytes.
const MAX_NAME_CHARS: usize = 339;

const COUNT: &str = "SELECT COUNT(*) FROM tenant_deleted_bindings WHERE tenant_id = $1";

const INSERT: &str = "INSERT INTO tenant_deleted_bindings (tenant_id, namespace, name) ";

const SELECT: &str = "\
SELECT namespace, name FROM tenant_deleted_bindings WHERE tenant_id = $1 ORDER BY namespace, name \
  LIMIT $2";

/// Not if a resumption is interrupted: it has not restored everything yet.
const CLEAR_IF_ACTIVE: &str = "\
DELETE FROM tenant_deleted_bindings WHERE tenant_id = $1 AND EXISTS \
  (SELECT 1 FROM tenants WHERE id = $1 AND status = 'active')";

const CLEAR: &str = "DELETE FROM tenant_deleted_bindings WHERE tenant_id = $1";

impl Tenants {
    /// Records the names of RoleBindings that the suspension of a tenant deleted in a namespace, up to
    /// 1,000 of one tenant, without names that are longer than the policies allow or have a NUL. Idempotent.
    /// `false` if there was no room for another one.
    ///
    /// # Errors
    /// The database failed.
    pub async fn record_deleted_bindings(
        &self,
        tenant: Uuid,
        namespace: &str,
        names: &[String],
    ) -> sqlx::Result<bool> {
        let mut tx = self.db.begin().await?;
        let count: i64 = on_engine!(tx.connection(), c =>
            sqlx::query_scalar(COUNT).bind(tenant).fetch_one(c).await)?;
        let room = usize::try_from(MAX_DELETED_BINDINGS - count).unwrap_or(0);
        let is_kept =
            |name: &&String| name.chars().count() <= MAX_NAME_CHARS && !name.contains('\0');
        if room == 0 {
            return Ok(false);
        }
        let names: Vec<&String> = names.iter().filter(is_kept).take(room).collect();
        for batch in names.chunks(MAX_BATCH) {
            on_engine!(tx.connection(), c => {
                let mut statement = QueryBuilder::new(INSERT);
                statement.push_values(batch, |mut row, name| {
                    row.push_bind(tenant).push_bind(namespace.to_owned()).push_bind((*name).clone());
                });
                statement.push(" ON CONFLICT DO NOTHING");
                // Each number of names is a different statement.
                statement.build().persistent(false).execute(c).await.map(drop)
            })?;
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Namespaces and names of the RoleBindings of others that the last suspension of a tenant deleted, in
    /// this order, at most 1,000.
    ///
    /// # Errors
    /// The database failed.
    pub async fn deleted_bindings(&self, tenant: Uuid) -> sqlx::Result<Vec<(String, String)>> {
        on_engine!(self.db.reader(), pool =>
            sqlx::query_as(SELECT).bind(tenant).bind(MAX_DELETED_BINDINGS).fetch_all(pool).await)
    }
}

/// Deletes the names of an earlier suspension, if the tenant is active.
pub(super) async fn clear_if_active(tx: &mut Tx, tenant: Uuid) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c =>
        sqlx::query(CLEAR_IF_ACTIVE).bind(tenant).execute(c).await.map(drop))
}

/// Deletes the names of a tenant that is closed.
pub(super) async fn clear(tx: &mut Tx, tenant: Uuid) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(CLEAR).bind(tenant).execute(c).await.map(drop))
}
