//! Tables `tenants` and `tenant_namespaces`: the rows behind the objects of the kind `Tenant`, and
//! the namespaces that belong to them.
//!
//! A transaction that changes both locks the row of the tenant first and then those of namespaces,
//! so that two of them never wait for each other. `UPDATE … SET status = status` locks a row on both
//! engines.

mod claim;
mod namespace_row;
mod namespaces;
mod observe;
mod personal;
mod status;
mod tenant_row;
#[cfg(test)]
mod tests;

use uuid::Uuid;

pub use claim::Claim;
pub use namespace_row::{NamespaceRow, NamespaceStatus};
pub use observe::Observed;
pub(crate) use personal::get_or_create_personal;
pub(crate) use tenant_row::lock_active_tenant;
pub use tenant_row::{TenantRow, TenantStatus};

use super::{TenantName, limits::MAX_TENANTS};
use crate::{
    base::{clock::Clock, db::Db},
    on_engine,
};
use tenant_row::{StoredTenant, select_tenant};

/// The rows of tenants and of their namespaces. Clones share everything.
#[derive(Clone, Debug)]
pub struct Tenants {
    db: Db,
    clock: Clock,
}

impl Tenants {
    /// The rows of this database.
    pub fn new(db: Db, clock: Clock) -> Self {
        Self { db, clock }
    }

    /// The open tenants, by name. At most 10,000 of them.
    ///
    /// # Errors
    /// The database failed, or a row has a value that this version does not know.
    pub async fn list(&self) -> sqlx::Result<Vec<TenantRow>> {
        let stored: Vec<StoredTenant> = on_engine!(self.db.reader(), pool =>
            sqlx::query_as(select_tenant!("WHERE name IS NOT NULL ORDER BY name LIMIT $1"))
                .bind(i64::from(MAX_TENANTS)).fetch_all(pool).await)?;
        let mut rows: Vec<TenantRow> =
            stored.into_iter().map(TenantRow::try_from).collect::<sqlx::Result<_>>()?;
        // PostgreSQL orders texts by its locale.
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(rows)
    }

    /// The open tenant of this name.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub async fn by_name(&self, name: &TenantName) -> sqlx::Result<Option<TenantRow>> {
        let stored: Option<StoredTenant> = on_engine!(self.db.reader(), pool =>
            sqlx::query_as(select_tenant!("WHERE name = $1"))
                .bind(name.as_str()).fetch_optional(pool).await)?;
        stored.map(TenantRow::try_from).transpose()
    }

    /// The tenant with this identifier, open or closed; `None` also for a personal one.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub async fn by_id(&self, id: Uuid) -> sqlx::Result<Option<TenantRow>> {
        let stored: Option<StoredTenant> = on_engine!(self.db.reader(), pool =>
            sqlx::query_as(select_tenant!("WHERE id = $1 AND object_uid IS NOT NULL"))
                .bind(id).fetch_optional(pool).await)?;
        stored.map(TenantRow::try_from).transpose()
    }
}

/// The error of a column with a value that this version does not know.
fn undecodable(column: &str, value: &str) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: format!("{value:?} is unknown; a newer version, or somebody by hand, wrote it")
            .into(),
    }
}
