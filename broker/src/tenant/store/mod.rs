//! Tables `tenants`, `tenant_namespaces`, `namespace_moves` and `tenant_deleted_bindings`: the rows behind
//! the objects of the kind `Tenant`, the namespaces that belong to them, announced moves of namespaces, and
//! what a suspension deleted.
//!
//! A transaction that changes both locks the row of the tenant first and then those of namespaces,
//! so that two of them never wait for each other. `UPDATE … SET status = status` locks a row on both
//! engines.

mod claim;
mod deleted_bindings;
mod moves;
mod namespace_row;
mod namespaces;
mod observe;
mod orphans;
mod personal;
mod restored;
mod status;
mod suspension;
mod tenant_row;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use sqlx::QueryBuilder;
use uuid::Uuid;

pub use claim::Claim;
pub use moves::{Announcement, MoveRefusal, MoveState, NamespaceMove};
pub use namespace_row::{NamespaceRow, NamespaceRows, NamespaceStatus};
pub use observe::Observed;
pub use orphans::Orphan;
pub(crate) use personal::get_or_create_personal;
pub(crate) use restored::{suspend_restored_tenant, suspend_restored_tenants};
pub(crate) use tenant_row::lock_active_tenant;
pub use tenant_row::{TenantRow, TenantStatus};

use super::{TenantName, limits::MAX_TENANTS};
use crate::{
    base::{clock::Clock, db::Db},
    on_engine,
};
use tenant_row::{StoredTenant, select_tenant};

/// Maximum identifiers of one statement; far below the limits of both engines on parameters.
const MAX_BATCH: usize = 500;

const NAMES: &str = "SELECT name FROM tenants WHERE name IS NOT NULL AND id IN (";
const OPEN_NAMES: &str = "SELECT name FROM tenants WHERE name IS NOT NULL";

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

    /// The open tenants, by name. At most 10,000 of them. A row with a value that this version does
    /// not know is logged and left out.
    ///
    /// # Errors
    /// The database failed.
    pub async fn list(&self) -> sqlx::Result<Vec<TenantRow>> {
        let stored: Vec<StoredTenant> = on_engine!(self.db.reader(), pool =>
            sqlx::query_as(select_tenant!("WHERE name IS NOT NULL ORDER BY name LIMIT $1"))
                .bind(i64::from(MAX_TENANTS)).fetch_all(pool).await)?;
        let mut rows: Vec<TenantRow> =
            stored.into_iter().filter_map(StoredTenant::readable).collect();
        // PostgreSQL orders texts by its locale.
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(rows)
    }

    /// The names of all open tenants, also of those whose rows have other values that this version
    /// does not know.
    ///
    /// # Errors
    /// The database failed.
    pub async fn open_names(&self) -> sqlx::Result<BTreeSet<TenantName>> {
        let names: Vec<String> = on_engine!(self.db.reader(), pool =>
            sqlx::query_scalar(OPEN_NAMES).fetch_all(pool).await)?;
        Ok(names.into_iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// The open tenant of this name.
    ///
    /// # Errors
    /// The database failed, or the row has a value that this version does not know.
    pub async fn by_name(&self, name: &TenantName) -> sqlx::Result<Option<TenantRow>> {
        let stored: Option<StoredTenant> = on_engine!(self.db.reader(), pool =>
            sqlx::query_as(select_tenant!("WHERE name = $1"))
                .bind(name.as_str()).fetch_optional(pool).await)?;
        stored.map(TenantRow::try_from).transpose()
    }

    /// The tenant with this identifier, open or closed; `None` also for a personal one.
    ///
    /// # Errors
    /// See [`Self::by_name`].
    pub async fn by_id(&self, id: Uuid) -> sqlx::Result<Option<TenantRow>> {
        let stored: Option<StoredTenant> = on_engine!(self.db.reader(), pool =>
            sqlx::query_as(select_tenant!("WHERE id = $1 AND object_uid IS NOT NULL"))
                .bind(id).fetch_optional(pool).await)?;
        stored.map(TenantRow::try_from).transpose()
    }

    /// Names of the open tenants with these identifiers. One statement reads up to 500 of them. A
    /// name that this version does not know is left out, because nothing can be done with it.
    ///
    /// # Errors
    /// The database failed.
    pub async fn names_of(&self, ids: &[Uuid]) -> sqlx::Result<BTreeSet<TenantName>> {
        let mut names = BTreeSet::new();
        for batch in ids.chunks(MAX_BATCH) {
            let stored = select_names(&self.db, batch).await?;
            names.extend(stored.iter().filter_map(|name| name.parse::<TenantName>().ok()));
        }
        Ok(names)
    }
}

async fn select_names(db: &Db, ids: &[Uuid]) -> sqlx::Result<Vec<String>> {
    on_engine!(db.reader(), pool => {
        let mut statement = QueryBuilder::new(NAMES);
        let mut identifiers = statement.separated(", ");
        for id in ids {
            identifiers.push_bind(*id);
        }
        statement.push(")");
        // Each number of tenants is a different statement; caching them would evict others.
        statement.build_query_scalar().persistent(false).fetch_all(pool).await
    })
}

/// The error of a column with a value that this version does not know.
fn undecodable(column: &str, value: &str) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: format!("{value:?} is unknown; a newer version, or somebody by hand, wrote it")
            .into(),
    }
}
