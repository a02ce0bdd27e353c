//! Rows of `tenants` after the restore of a backup. The cluster is newer than they are, so none of
//! them revives rights that ended since:
//!
//! | in the backup | after the restore |
//! |---|---|
//! | suspending, suspended, resuming | suspended again, with all steps |
//! | active | suspended if the exported trail says so, or by the controller if the home has the suspended label |
//! | closed, none | the next object of the name begins suspended if the exported trail says so |

use super::TenantName;
use crate::{
    audit::{self, Action},
    base::{clock::Clock, db::Tx},
    on_engine,
    tenant::{ApiGroup, decision_reason},
};

const SUSPEND_ALL: &str = "\
UPDATE tenants SET status = 'suspending', status_changed_at = $1 \
WHERE name IS NOT NULL AND status IN ('suspending', 'suspended', 'resuming')";

const SUSPEND: &str = "\
UPDATE tenants SET status = 'suspending', status_changed_at = $2 \
WHERE name = $1 AND status IN ('active', 'resuming')";

const IS_OPEN: &str = "SELECT COUNT(*) FROM tenants WHERE name = $1";

/// The same order as that of the suspension that an object inherits.
const LAST_CLOSED: &str = "\
SELECT status FROM tenants WHERE closed_name = $1 \
ORDER BY status_changed_at DESC, status DESC LIMIT 1";

/// No object has an empty uid.
const INSERT_CLOSED: &str = "\
INSERT INTO tenants (id, closed_name, object_group, object_uid, status, status_changed_at, created_at) \
VALUES ($1, $2, $3, '', 'closed_suspended', $4, $4)";

/// Schedules the suspension of every open tenant that was suspended, being suspended or being resumed
/// in the backup. Returns their number.
///
/// # Errors
/// The database failed.
pub(crate) async fn suspend_restored_tenants(tx: &mut Tx, clock: &Clock) -> sqlx::Result<u64> {
    on_engine!(tx.connection(), c => sqlx::query(SUSPEND_ALL)
        .bind(clock.now_ms()).execute(c).await.map(|done| done.rows_affected()))
}

/// Suspends a tenant that was suspended after the backup; `false` if it is suspended already. One that
/// has no open row begins suspended once its object is observed. The reason goes into the audit trail.
///
/// # Errors
/// The database failed.
pub(crate) async fn suspend_restored_tenant(
    tx: &mut Tx,
    clock: &Clock,
    name: &TenantName,
    reason: &str,
) -> sqlx::Result<bool> {
    let begun = on_engine!(tx.connection(), c => sqlx::query(SUSPEND)
        .bind(name.as_str()).bind(clock.now_ms())
        .execute(c).await.map(|done| done.rows_affected()))?;
    if begun == 0 && !insert_closed(tx, clock, name).await? {
        return Ok(false);
    }
    let event = audit::Event {
        reason: Some(decision_reason(name, Some(reason))),
        ..audit::Event::success(Action::SuspendTenant)
    };
    audit::record(tx, clock, event).await?;
    Ok(true)
}

/// Inserts the row of a tenant that was closed while it was suspended; `false` if the name is that of
/// an open tenant, or if the last closed one was suspended.
async fn insert_closed(tx: &mut Tx, clock: &Clock, name: &TenantName) -> sqlx::Result<bool> {
    let open: i64 = on_engine!(tx.connection(), c =>
        sqlx::query_scalar(IS_OPEN).bind(name.as_str()).fetch_one(c).await)?;
    let last: Option<String> = on_engine!(tx.connection(), c =>
        sqlx::query_scalar(LAST_CLOSED).bind(name.as_str()).fetch_optional(c).await)?;
    if open > 0 || last.as_deref() == Some(super::tenant_row::CLOSED_SUSPENDED) {
        return Ok(false);
    }
    on_engine!(tx.connection(), c => sqlx::query(INSERT_CLOSED)
        .bind(clock.random_id()).bind(name.as_str()).bind(ApiGroup::TenantBroker.name())
        .bind(clock.now_ms()).execute(c).await.map(drop))?;
    Ok(true)
}
