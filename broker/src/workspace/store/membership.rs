//! Rows of `workspaces` that are memberships in tenants with a name: those with a home.

use sqlx::FromRow;
use tenant_shared::WorkspaceStatus as Status;
use uuid::Uuid;

use super::{WorkspaceRow, row::NEVER_MS, select, work};
use crate::{
    base::{
        clock::Clock,
        db::{Db, Tx},
    },
    on_engine,
};

/// The values of a new row.
pub(in crate::workspace) struct NewMembership<'a> {
    pub(in crate::workspace) id: Uuid,
    pub(in crate::workspace) tenant_id: Uuid,
    pub(in crate::workspace) user_id: Uuid,
    pub(in crate::workspace) cluster: &'a str,
    /// Namespace of the ServiceAccount.
    pub(in crate::workspace) home: &'a str,
    /// Name of the ServiceAccount.
    pub(in crate::workspace) account: &'a str,
    pub(in crate::workspace) tier: &'a str,
    /// `provisioning` or `suspended`.
    pub(in crate::workspace) status: Status,
}

const INSERT: &str = "\
INSERT INTO workspaces (id, tenant_id, user_id, cluster, k8s_namespace, home_namespace, \
  k8s_sa_name, tier, quota_cpu, quota_memory, status, status_changed_at, created_at, sweep_at) \
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '', '', $9, $10, $10, $11) \
ON CONFLICT (tenant_id, user_id) DO NOTHING";

/// Inserts a row; false if the user has one in the tenant already.
pub(in crate::workspace) async fn insert(
    tx: &mut Tx,
    clock: &Clock,
    new: NewMembership<'_>,
) -> sqlx::Result<bool> {
    // Unique, and no name of a namespace (migration 0019).
    let key = format!("{} {}", new.home, new.id);
    on_engine!(tx.connection(), c => sqlx::query(INSERT)
        .bind(new.id).bind(new.tenant_id).bind(new.user_id).bind(new.cluster).bind(&key)
        .bind(new.home).bind(new.account).bind(new.tier).bind(new.status.as_str())
        .bind(clock.now_ms()).bind(clock.now_ms() + work::GRACE_MS)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

const PREDECESSOR: &str = select!(
    "WHERE home_namespace = $1 AND k8s_sa_name = $2 AND tenant_id <> $3 \
     ORDER BY created_at DESC, id DESC LIMIT 1"
);

/// The latest row of another tenant whose ServiceAccount has the same name: one of an earlier
/// tenant of the same name.
pub(in crate::workspace) async fn predecessor(
    tx: &mut Tx,
    (home, account): (&str, &str),
    tenant: Uuid,
) -> sqlx::Result<Option<WorkspaceRow>> {
    on_engine!(tx.connection(), c => sqlx::query_as(PREDECESSOR)
        .bind(home).bind(account).bind(tenant).fetch_optional(c).await)
}

const IS_SUCCEEDED: &str = "\
SELECT COUNT(*) FROM workspaces \
WHERE home_namespace = $1 AND k8s_sa_name = $2 AND (created_at, id) > ($3, $4)";

/// Whether the name of its ServiceAccount is that of a later membership by now, in a tenant that
/// was made again.
pub(in crate::workspace) async fn is_succeeded(
    db: &Db,
    workspace: &WorkspaceRow,
) -> sqlx::Result<bool> {
    let count: i64 = on_engine!(db.reader(), pool => sqlx::query_scalar(IS_SUCCEEDED)
        .bind(&workspace.k8s_namespace).bind(&workspace.k8s_sa_name)
        .bind(workspace.created_at).bind(workspace.id)
        .fetch_one(pool).await)?;
    Ok(count > 0)
}

const SET_FORMER_STATUS: &str = "\
UPDATE workspaces SET left_status = status \
WHERE id = $1 AND home_namespace IS NOT NULL AND left_status IS NULL";

/// Records that the user left, with the status until then; false if the user left before, or if it
/// is no membership.
pub(in crate::workspace) async fn set_former_status(tx: &mut Tx, id: Uuid) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(SET_FORMER_STATUS)
        .bind(id).execute(c).await.map(|done| done.rows_affected() == 1))
}

const CLEAR_FORMER_STATUS: &str =
    "UPDATE workspaces SET left_status = NULL WHERE id = $1 AND left_status IS NOT NULL";

/// Records that the user joined again.
pub(in crate::workspace) async fn clear_former_status(tx: &mut Tx, id: Uuid) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(CLEAR_FORMER_STATUS).bind(id).execute(c).await.map(drop))
}

const MARK_SUSPENDED_ON_REJOIN: &str = "\
UPDATE workspaces SET left_status = 'suspended' \
WHERE id = $1 AND left_status NOT IN ('suspending', 'suspended')";

/// Keeps a membership suspended when its user, who left, joins again; false if it would stay so
/// anyway, or if the user did not leave.
pub(in crate::workspace) async fn mark_suspended_on_rejoin(
    tx: &mut Tx,
    id: Uuid,
) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(MARK_SUSPENDED_ON_REJOIN)
        .bind(id).execute(c).await.map(|done| done.rows_affected() == 1))
}

/// One member of a tenant, or one membership of a user.
#[derive(Debug, FromRow)]
pub(in crate::workspace) struct MembershipColumns {
    pub(in crate::workspace) id: Uuid,
    pub(in crate::workspace) tenant_id: Uuid,
    pub(in crate::workspace) user_id: Uuid,
    pub(in crate::workspace) status: String,
}

const MEMBERS: &str = "\
SELECT id, tenant_id, user_id, status FROM workspaces \
WHERE tenant_id = $1 AND home_namespace IS NOT NULL AND left_status IS NULL ORDER BY user_id";

/// The members of a tenant, by user.
pub(in crate::workspace) async fn members(
    db: &Db,
    tenant: Uuid,
) -> sqlx::Result<Vec<MembershipColumns>> {
    on_engine!(db.reader(), pool =>
        sqlx::query_as(MEMBERS).bind(tenant).fetch_all(pool).await)
}

const TENANTS_WITH_MEMBERS: &str = "\
SELECT DISTINCT tenant_id FROM workspaces \
WHERE home_namespace IS NOT NULL AND left_status IS NULL";

/// The tenants that have members.
pub(in crate::workspace) async fn tenants_with_members(db: &Db) -> sqlx::Result<Vec<Uuid>> {
    on_engine!(db.reader(), pool =>
        sqlx::query_scalar(TENANTS_WITH_MEMBERS).fetch_all(pool).await)
}

const OF_USER: &str = "\
SELECT id, tenant_id, user_id, status FROM workspaces \
WHERE user_id = $1 AND home_namespace IS NOT NULL AND left_status IS NULL ORDER BY created_at, id";

/// The memberships of a user, oldest first.
pub(in crate::workspace) async fn of_user(
    db: &Db,
    user: Uuid,
) -> sqlx::Result<Vec<MembershipColumns>> {
    on_engine!(db.reader(), pool =>
        sqlx::query_as(OF_USER).bind(user).fetch_all(pool).await)
}

const CHANGED: &str = "\
SELECT tenant_id, id, status_changed_at FROM workspaces \
WHERE status_changed_at > $1 AND home_namespace IS NOT NULL";

/// Tenant, identifier and time of the memberships that changed after this time.
pub(in crate::workspace) async fn changed(
    db: &Db,
    since: i64,
) -> sqlx::Result<Vec<(Uuid, Uuid, i64)>> {
    on_engine!(db.reader(), pool =>
        sqlx::query_as(CHANGED).bind(since).fetch_all(pool).await)
}

const RETIRE: &str = "\
UPDATE workspaces SET retired_sa_uid = k8s_sa_uid, k8s_sa_uid = NULL, sa_retired_at = $2, \
  status_changed_at = $2 \
WHERE tenant_id = $1 AND home_namespace IS NOT NULL AND status = 'provisioned' \
  AND k8s_sa_uid IS NOT NULL";

const SET_SWEEP_AT: &str = "\
UPDATE workspaces SET sweep_at = $2, sweep_attempts = 0 \
WHERE tenant_id = $1 AND home_namespace IS NOT NULL AND status = 'provisioned' \
  AND retired_sa_uid IS NOT NULL";

/// Marks the ServiceAccounts of all members for deletion. Neither tokens are requested for them,
/// nor does the sweep replace them before [`replace_accounts`].
pub(in crate::workspace) async fn retire_accounts(
    tx: &mut Tx,
    clock: &Clock,
    tenant: Uuid,
) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(RETIRE)
        .bind(tenant).bind(clock.now_ms()).execute(c).await.map(drop))?;
    on_engine!(tx.connection(), c => sqlx::query(SET_SWEEP_AT)
        .bind(tenant).bind(NEVER_MS).execute(c).await.map(drop))
}

/// Schedules the replacement of the retired ServiceAccounts of all members.
pub(in crate::workspace) async fn replace_accounts(
    tx: &mut Tx,
    clock: &Clock,
    tenant: Uuid,
) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(SET_SWEEP_AT)
        .bind(tenant).bind(clock.now_ms()).execute(c).await.map(drop))
}

/// The rows of a tenant's members, by identifier.
pub(in crate::workspace) async fn rows_of(
    db: &Db,
    tenant: Uuid,
) -> sqlx::Result<Vec<WorkspaceRow>> {
    on_engine!(db.reader(), pool => sqlx::query_as(select!(
        "WHERE tenant_id = $1 AND home_namespace IS NOT NULL AND left_status IS NULL ORDER BY id"
    ))
        .bind(tenant).fetch_all(pool).await)
}
