//! Mapping of objects of the kind `Tenant` to rows, and the row after its object is deleted.
//!
//! The row of a deleted object stays and is closed, because memberships, the ledger and namespaces
//! refer to it. It gives its name up: `name` is NULL then, and `closed_name` has it. `name` stays
//! unique this way, and a closed row is told from that of a personal tenant, which has neither.
//!
//! A suspension outlives the object: a tenant that was suspended when it was closed has the status
//! `closed_suspended`, and the next object of that name, in whichever API group, is suspended at once.
//! Otherwise whoever may delete and create Tenants could end a suspension.

use uuid::Uuid;

use super::{TenantRow, TenantStatus, Tenants, deleted_bindings};
use crate::{
    base::db::Tx,
    on_engine,
    tenant::{ApiGroup, TenantName},
};

/// How often an observation begins anew, because other replicas changed the row meanwhile.
const MAX_ATTEMPTS: u32 = 5;

/// Result of an observation: the owner of the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// The row of the object.
    Current(TenantRow),
    /// The row of another object: one of the other API group, or a later one of the same group. In
    /// the second case the observed object was deleted before, so read it again. If it still has
    /// this uid, because the cluster was restored from a backup, [`Tenants::close`] the row first.
    NameTaken(TenantRow),
    /// The new row of an object that was made again. That of the earlier object is closed, and its
    /// namespaces are orphaned.
    Recreated(TenantRow),
}

const INSERT: &str = "\
INSERT INTO tenants (id, name, object_group, object_uid, status, status_changed_at, created_at) \
VALUES ($1, $2, $3, $4, $5, $6, $6) ON CONFLICT (name) DO NOTHING";

/// Begins suspended if the last tenant that had the name was closed so. All steps are done again, because
/// after a restore the suspension may be known from the audit trail alone.
const INHERIT_SUSPENSION: &str = "\
UPDATE tenants SET status = 'suspending' WHERE id = $1 AND 'closed_suspended' = \
  (SELECT c.status FROM tenants c WHERE c.closed_name = $2 \
   ORDER BY c.status_changed_at DESC, c.status DESC LIMIT 1)";

const CLOSE: &str = "\
UPDATE tenants SET name = NULL, closed_name = name, status_changed_at = $2, \
  status = CASE WHEN status IN ('suspending', 'suspended') THEN 'closed_suspended' \
           ELSE 'closed' END \
WHERE id = $1 AND name IS NOT NULL";

const ORPHAN: &str = "\
UPDATE tenant_namespaces SET status = 'orphaned', change_at = $2 \
WHERE tenant_id = $1 AND status NOT IN ('gone', 'orphaned')";

const WAS_CLOSED: &str = "\
SELECT COUNT(*) FROM tenants \
WHERE object_uid = $1 AND status IN ('closed', 'closed_suspended')";

impl Tenants {
    /// The row of the object with this name, API group and uid (`metadata.uid`); inserts it if the
    /// name is free. If the name is that of another object of the group, that one was deleted: its
    /// row is closed in the same transaction. Idempotent.
    ///
    /// A new row is `Active`, or `Suspending` if the last tenant of the name was suspended when its
    /// object went. An administrator resumes it.
    ///
    /// The object has to be one that the API server returned just now. A cache may have it although
    /// it was deleted and made again. An object whose row is closed already replaces no other, so an
    /// outdated cache does not undo the observation of a later object.
    ///
    /// # Errors
    /// The database failed, a row has a value that this version does not know, or
    /// [`sqlx::Error::RowNotFound`]: other replicas changed the row during every attempt.
    pub async fn observe(
        &self,
        name: &TenantName,
        group: ApiGroup,
        uid: &str,
    ) -> sqlx::Result<Observed> {
        for _ in 0..MAX_ATTEMPTS {
            let replaced = match self.by_name(name).await? {
                None => None,
                Some(row) if row.is_of(group, uid) => return Ok(Observed::Current(row)),
                Some(row) if row.group != group => return Ok(Observed::NameTaken(row)),
                Some(row) => {
                    if self.was_closed(uid).await? {
                        return Ok(Observed::NameTaken(row));
                    }
                    Some(row.id)
                }
            };
            if let Some(row) = self.insert(name, group, uid, replaced).await? {
                return Ok(match replaced {
                    None => Observed::Current(row),
                    Some(_) => Observed::Recreated(row),
                });
            }
        }
        Err(sqlx::Error::RowNotFound)
    }

    /// Closes a tenant whose object is gone: its name is free, and its namespaces are orphaned. Does
    /// nothing if it is closed. Access that its members still have is the caller's to revoke.
    ///
    /// # Errors
    /// The database failed.
    pub async fn close(&self, id: Uuid) -> sqlx::Result<()> {
        let mut tx = self.db.begin().await?;
        self.close_in(&mut tx, id).await?;
        tx.commit().await
    }

    /// Inserts the row of an object, and closes the replaced one; `None` if another replica changed
    /// one of the two meanwhile.
    async fn insert(
        &self,
        name: &TenantName,
        group: ApiGroup,
        uid: &str,
        replaced: Option<Uuid>,
    ) -> sqlx::Result<Option<TenantRow>> {
        let now = self.clock.now_ms();
        let mut row = TenantRow {
            id: self.clock.random_id(),
            name: name.clone(),
            group,
            object_uid: uid.to_owned(),
            status: TenantStatus::Active,
            status_changed_at: now,
            created_at: now,
        };
        let mut tx = self.db.begin().await?;
        if let Some(id) = replaced
            && !self.close_in(&mut tx, id).await?
        {
            return Ok(None);
        }
        let inserted = on_engine!(tx.connection(), c => sqlx::query(INSERT)
            .bind(row.id).bind(row.name.as_str()).bind(group.name()).bind(uid)
            .bind(row.status.as_str()).bind(now)
            .execute(c).await.map(|done| done.rows_affected()))?;
        if inserted != 1 {
            return Ok(None);
        }
        // After the insertion, because that waits for a transaction that closes the earlier tenant.
        let suspended = on_engine!(tx.connection(), c => sqlx::query(INHERIT_SUSPENSION)
            .bind(row.id).bind(row.name.as_str())
            .execute(c).await.map(|done| done.rows_affected()))?;
        if suspended == 1 {
            row.status = TenantStatus::Suspending;
        }
        tx.commit().await?;
        Ok(Some(row))
    }

    /// Closes a tenant in this transaction; `false` if it is not open.
    async fn close_in(&self, tx: &mut Tx, id: Uuid) -> sqlx::Result<bool> {
        let now = self.clock.now_ms();
        let closed = on_engine!(tx.connection(), c => sqlx::query(CLOSE)
            .bind(id).bind(now)
            .execute(c).await.map(|done| done.rows_affected()))?;
        if closed != 1 {
            return Ok(false);
        }
        on_engine!(tx.connection(), c =>
            sqlx::query(ORPHAN).bind(id).bind(now).execute(c).await.map(drop))?;
        deleted_bindings::clear(tx, id).await?;
        Ok(true)
    }

    /// Whether the object with this uid had a row that is closed now.
    async fn was_closed(&self, uid: &str) -> sqlx::Result<bool> {
        let closed: i64 = on_engine!(self.db.reader(), pool =>
            sqlx::query_scalar(WAS_CLOSED).bind(uid).fetch_one(pool).await)?;
        Ok(closed > 0)
    }
}
