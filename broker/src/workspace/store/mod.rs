//! Table `workspaces`: its rows, and the statements that read and change them.

pub(super) mod drift;
pub(super) mod list;
pub(super) mod membership;
pub(super) mod restored;
mod row;
#[cfg(test)]
mod tests;
pub(super) mod work;

use tenant_shared::Quota;
use uuid::Uuid;

pub use row::{WorkspaceRow, WorkspaceStatusRow};

use super::state::{Event, transition};
use crate::{
    base::{
        clock::Clock,
        db::{Db, Tx},
    },
    on_engine,
};

const CHANGED: &str = "\
SELECT id, status, k8s_sa_uid FROM workspaces WHERE status_changed_at > $1";

/// The workspaces whose status changed after this time, in milliseconds since 1970.
pub(super) async fn changed_since(db: &Db, since: i64) -> sqlx::Result<Vec<WorkspaceStatusRow>> {
    on_engine!(db.reader(), pool => sqlx::query_as(CHANGED).bind(since).fetch_all(pool).await)
}

const CURRENT_STATUS: &str = "SELECT id, status, k8s_sa_uid FROM workspaces WHERE id = $1";

/// The current status of a workspace.
pub(super) async fn current_status(db: &Db, id: Uuid) -> sqlx::Result<Option<WorkspaceStatusRow>> {
    on_engine!(db.reader(), pool =>
        sqlx::query_as(CURRENT_STATUS).bind(id).fetch_optional(pool).await)
}

/// The values of a new row: the membership of a user in a tenant.
pub(super) struct NewWorkspace<'a> {
    pub(super) id: Uuid,
    pub(super) tenant_id: Uuid,
    pub(super) user_id: Uuid,
    pub(super) cluster: &'a str,
    pub(super) namespace: &'a str,
    pub(super) tier: &'a str,
    pub(super) quota: Quota,
}

const INSERT: &str = "\
INSERT INTO workspaces (id, tenant_id, user_id, cluster, k8s_namespace, k8s_sa_name, tier, \
  quota_cpu, quota_memory, status, status_changed_at, created_at, sweep_at) \
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'provisioning', $10, $10, $11) \
ON CONFLICT (tenant_id, user_id) DO NOTHING";

/// Inserts a row; false if the user is a member of the tenant already.
pub(super) async fn insert(
    tx: &mut Tx,
    clock: &Clock,
    new: NewWorkspace<'_>,
) -> sqlx::Result<bool> {
    let result = on_engine!(tx.connection(), c => sqlx::query(INSERT)
        .bind(new.id).bind(new.tenant_id).bind(new.user_id).bind(new.cluster).bind(new.namespace)
        .bind(tenant_shared::SERVICE_ACCOUNT_NAME).bind(new.tier)
        .bind(new.quota.cpu).bind(new.quota.memory)
        .bind(clock.now_ms()).bind(clock.now_ms() + work::GRACE_MS)
        .execute(c).await.map(|done| done.rows_affected()))?;
    Ok(result == 1)
}

/// SQL: the columns of a [`WorkspaceRow`].
macro_rules! columns {
    () => {
        "id, tenant_id, user_id, cluster, \
         COALESCE(home_namespace, k8s_namespace) AS k8s_namespace, home_namespace, \
         k8s_namespace_uid, k8s_sa_name, k8s_sa_uid, retired_sa_uid, tier, quota_cpu, \
         quota_memory, status, status_changed_at, created_at, sweep_at, sweep_attempts, open_step, \
         left_status"
    };
}
use columns;

macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT ", $crate::workspace::store::columns!(), " FROM workspaces ", $rest)
    };
}
use select;

/// The workspace with this identifier.
pub(super) async fn by_id(db: &Db, id: Uuid) -> sqlx::Result<Option<WorkspaceRow>> {
    on_engine!(db.reader(), pool =>
        sqlx::query_as(select!("WHERE id = $1")).bind(id).fetch_optional(pool).await)
}

/// The workspace of a user in a tenant, as the transaction sees it.
pub(super) async fn by_membership(
    tx: &mut Tx,
    tenant: Uuid,
    user: Uuid,
) -> sqlx::Result<Option<WorkspaceRow>> {
    on_engine!(tx.connection(), c =>
        sqlx::query_as(select!("WHERE tenant_id = $1 AND user_id = $2"))
            .bind(tenant).bind(user).fetch_optional(c).await)
}

/// The workspaces of a user, oldest first, without memberships that ended.
pub(super) async fn for_user(db: &Db, user: Uuid) -> sqlx::Result<Vec<WorkspaceRow>> {
    on_engine!(db.reader(), pool =>
        sqlx::query_as(select!(
            "WHERE user_id = $1 AND left_status IS NULL ORDER BY created_at, id"
        ))
            .bind(user).fetch_all(pool).await)
}

/// The workspaces of a user as this transaction sees them, oldest first, with memberships that
/// ended.
pub(super) async fn for_user_in(tx: &mut Tx, user: Uuid) -> sqlx::Result<Vec<WorkspaceRow>> {
    on_engine!(tx.connection(), c =>
        sqlx::query_as(select!("WHERE user_id = $1 ORDER BY created_at, id"))
            .bind(user).fetch_all(c).await)
}

const ADVANCE: &str = "\
UPDATE workspaces SET status = $1, status_changed_at = $2, sweep_at = $8, sweep_attempts = 0, \
  open_step = NULL \
WHERE id = $3 AND status IN ($4, $5, $6, $7) \
  AND status_changed_at = COALESCE($9, status_changed_at) \
  AND (left_status IS NULL OR $1 <> 'resuming')";

/// Applies an event to a workspace; false if its status is not a source state of the event, or if
/// it would resume a membership whose user left.
pub(super) async fn advance(
    tx: &mut Tx,
    clock: &Clock,
    id: Uuid,
    event: Event,
) -> sqlx::Result<bool> {
    advance_since(tx, clock, id, event, None).await
}

/// Applies an event to a workspace whose status last changed at `since`; false also if it changed
/// later. This way a run finishes only the operation that it began, not a later one of the same
/// kind.
pub(super) async fn advance_since(
    tx: &mut Tx,
    clock: &Clock,
    id: Uuid,
    event: Event,
    since: Option<i64>,
) -> sqlx::Result<bool> {
    let (from, to) = transition(event);
    // The statement has four source states, so that it serves every event. Unused ones repeat the
    // first.
    let from = |index: usize| from.get(index).unwrap_or(&from[0]).as_str();
    let moved = on_engine!(tx.connection(), c => sqlx::query(ADVANCE)
        .bind(to.as_str()).bind(clock.now_ms()).bind(id)
        .bind(from(0)).bind(from(1)).bind(from(2)).bind(from(3))
        .bind(clock.now_ms() + work::GRACE_MS).bind(since)
        .execute(c).await.map(|done| done.rows_affected()))?;
    Ok(moved == 1)
}

const REPLACE_LOST: &str = "\
UPDATE workspaces SET k8s_sa_uid = $1 WHERE id = $2 AND status = 'provisioned' AND k8s_sa_uid = $3";

/// Stores the uid of a ServiceAccount that was created in place of a lost one; false if the
/// workspace changed meanwhile.
pub(super) async fn replace_lost_service_account(
    tx: &mut Tx,
    id: Uuid,
    old: &str,
    new: &str,
) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(REPLACE_LOST)
        .bind(new).bind(id).bind(old).execute(c).await.map(|done| done.rows_affected() == 1))
}

/// Uids of the objects that were created for a workspace.
#[derive(Clone, Debug, Default)]
pub(super) struct ObjectUids {
    pub(super) namespace: String,
    pub(super) service_account: String,
}

const SET_UIDS: &str = "\
UPDATE workspaces SET k8s_namespace_uid = $1, k8s_sa_uid = $2, retired_sa_uid = NULL, \
  sa_retired_at = NULL \
WHERE id = $3";

/// Stores the uids of the namespace and of the ServiceAccount that tokens are requested for.
pub(super) async fn set_uids(tx: &mut Tx, id: Uuid, made: &ObjectUids) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(SET_UIDS)
        .bind(&made.namespace).bind(&made.service_account).bind(id).execute(c).await.map(drop))
}

const SET_NAMESPACE_UID: &str = "\
UPDATE workspaces SET k8s_namespace_uid = $1 \
WHERE id = $2 AND status = $3 AND status_changed_at = $4";

/// Stores the uid of the namespace, unless the workspace changed its status meanwhile.
pub(super) async fn set_namespace_uid(
    db: &Db,
    workspace: &WorkspaceRow,
    uid: &str,
) -> sqlx::Result<()> {
    let mut tx = db.begin().await?;
    on_engine!(tx.connection(), c => sqlx::query(SET_NAMESPACE_UID)
        .bind(uid).bind(workspace.id).bind(&workspace.status).bind(workspace.status_changed_at)
        .execute(c).await.map(drop))?;
    tx.commit().await
}

const RETIRE: &str = "\
UPDATE workspaces SET retired_sa_uid = k8s_sa_uid, k8s_sa_uid = NULL, sa_retired_at = $3, \
  sweep_at = $4, sweep_attempts = 0 \
WHERE id = $1 AND k8s_sa_uid = $2 AND status = 'provisioned'";

/// Marks the ServiceAccount with this uid for deletion, so that no more tokens are requested for
/// it; `false` if it is not the current one.
pub(super) async fn retire_service_account(
    tx: &mut Tx,
    clock: &Clock,
    id: Uuid,
    uid: &str,
) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(RETIRE)
        .bind(id).bind(uid).bind(clock.now_ms()).bind(clock.now_ms() + work::GRACE_MS)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

const REPLACE: &str = "\
UPDATE workspaces SET k8s_sa_uid = $3, retired_sa_uid = NULL, sa_retired_at = NULL \
WHERE id = $1 AND retired_sa_uid = $2 AND status = 'provisioned'";

/// Stores the uid of the ServiceAccount that replaces a retired one; `false` if another replica did
/// so, or the workspace is no longer provisioned.
pub(super) async fn replace_service_account(
    tx: &mut Tx,
    id: Uuid,
    retired: &str,
    uid: &str,
) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(REPLACE)
        .bind(id).bind(retired).bind(uid)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}
