//! Rows of workspaces.

pub(super) mod drift;
pub(super) mod list;
#[cfg(test)]
mod tests;
pub(super) mod work;

use sqlx::FromRow;
use tenant_shared::{Quota, Workspace, WorkspaceStatus};
use uuid::Uuid;

use super::{
    progress,
    state::{Event, transition},
};
use crate::{
    access::Owned,
    clock::{Clock, timestamp},
    cluster::RecordedUids,
    db::{Db, Tx},
    on_engine,
};

/// A workspace as the database knows it. Holding one allows nothing.
#[derive(Clone, Debug, FromRow)]
pub struct Found {
    pub(super) id: Uuid,
    pub(super) user_id: Uuid,
    pub(super) cluster: String,
    pub(super) k8s_namespace: String,
    pub(super) k8s_namespace_uid: Option<String>,
    pub(super) k8s_sa_uid: Option<String>,
    pub(super) retired_sa_uid: Option<String>,
    pub(super) tier: String,
    quota_cpu: String,
    quota_memory: String,
    status: String,
    pub(super) status_changed_at: i64,
    created_at: i64,
    pub(super) sweep_at: i64,
    pub(super) sweep_attempts: i64,
    pub(super) open_step: Option<String>,
}

/// A workspace whose status changed lately.
#[derive(Clone, Debug, FromRow)]
pub struct Changed {
    /// Which.
    pub id: Uuid,
    status: String,
    /// The uid of the ServiceAccount that it has now.
    #[sqlx(rename = "k8s_sa_uid")]
    pub service_account_uid: Option<String>,
}

impl Changed {
    /// Its status now. One that this version does not know counts as failed.
    pub fn status(&self) -> WorkspaceStatus {
        WorkspaceStatus::parse(&self.status).unwrap_or(WorkspaceStatus::Failed)
    }
}

/// The workspaces whose status changed after `$1`.
macro_rules! changed_after {
    () => {
        "FROM workspaces WHERE status_changed_at > $1"
    };
}
pub(crate) use changed_after;

const CHANGED: &str = concat!("SELECT id, status, k8s_sa_uid ", changed_after!());

/// The workspaces whose status changed after this time.
pub(super) async fn changed_since(db: &Db, since: i64) -> sqlx::Result<Vec<Changed>> {
    on_engine!(db.reader(), pool => sqlx::query_as(CHANGED).bind(since).fetch_all(pool).await)
}

const STANDING: &str = "SELECT id, status, k8s_sa_uid FROM workspaces WHERE id = $1";

/// The status of a workspace now.
pub(super) async fn standing(db: &Db, id: Uuid) -> sqlx::Result<Option<Changed>> {
    on_engine!(db.reader(), pool => sqlx::query_as(STANDING).bind(id).fetch_optional(pool).await)
}

impl Owned for Found {
    fn id(&self) -> Uuid {
        self.id
    }

    fn owner(&self) -> Uuid {
        self.user_id
    }
}

impl Found {
    /// Its status. One that this version does not know counts as failed: nothing is issued.
    pub fn status(&self) -> WorkspaceStatus {
        WorkspaceStatus::parse(&self.status).unwrap_or(WorkspaceStatus::Failed)
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.k8s_namespace
    }

    /// The uids of what was made for it.
    pub(super) fn recorded_uids(&self) -> RecordedUids<'_> {
        RecordedUids {
            namespace: self.k8s_namespace_uid.as_deref(),
            service_account: self.k8s_sa_uid.as_deref(),
            retired_service_account: self.retired_sa_uid.as_deref(),
        }
    }

    /// Whether anything that carries rights was ever made for it.
    pub(super) fn had_rights(&self) -> bool {
        let uids = [&self.k8s_namespace_uid, &self.k8s_sa_uid, &self.retired_sa_uid];
        uids.iter().any(|uid| uid.is_some())
    }

    /// Whether its ServiceAccount has to be replaced before anything is issued.
    pub(crate) fn is_rotating(&self) -> bool {
        self.status() == WorkspaceStatus::Provisioned && self.retired_sa_uid.is_some()
    }

    /// Whether tokens are asked of the ServiceAccount of this uid.
    pub(crate) fn issues_with(&self, uid: &str) -> bool {
        self.status() == WorkspaceStatus::Provisioned && self.k8s_sa_uid.as_deref() == Some(uid)
    }

    /// As it is written on the wire, without what differs in the cluster.
    pub fn wire(&self) -> Workspace {
        Workspace {
            id: self.id,
            namespace: self.k8s_namespace.clone(),
            status: self.status(),
            quota: Quota { cpu: self.quota_cpu.clone(), memory: self.quota_memory.clone() },
            tier: self.tier.clone(),
            cluster: self.cluster.clone(),
            owner: self.user_id,
            owner_email: None,
            created_at: timestamp(self.created_at).into(),
            unfinished: progress::unfinished(self),
            drift: Vec::new(),
        }
    }
}

/// What a new row is made of.
pub(super) struct New<'a> {
    pub(super) id: Uuid,
    pub(super) user_id: Uuid,
    pub(super) cluster: &'a str,
    pub(super) namespace: &'a str,
    pub(super) tier: &'a str,
    pub(super) quota: Quota,
}

const INSERT: &str = "\
INSERT INTO workspaces (id, user_id, cluster, k8s_namespace, k8s_sa_name, tier, quota_cpu, \
  quota_memory, status, status_changed_at, created_at, sweep_at) \
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'provisioning', $9, $9, $10) \
ON CONFLICT (k8s_namespace) DO NOTHING";

/// Makes a row; false if the namespace has one already.
pub(super) async fn insert(tx: &mut Tx, clock: &Clock, new: New<'_>) -> sqlx::Result<bool> {
    let result = on_engine!(tx.connection(), c => sqlx::query(INSERT)
        .bind(new.id).bind(new.user_id).bind(new.cluster).bind(new.namespace)
        .bind(tenant_shared::SERVICE_ACCOUNT_NAME).bind(new.tier)
        .bind(new.quota.cpu).bind(new.quota.memory)
        .bind(clock.now_ms()).bind(clock.now_ms() + work::GRACE_MS)
        .execute(c).await.map(|done| done.rows_affected()))?;
    Ok(result == 1)
}

/// The columns of a [`Found`].
macro_rules! columns {
    () => {
        "id, user_id, cluster, k8s_namespace, k8s_namespace_uid, k8s_sa_uid, retired_sa_uid, tier, \
         quota_cpu, quota_memory, status, status_changed_at, created_at, sweep_at, sweep_attempts, open_step"
    };
}
use columns;

macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT ", $crate::workspace::store::columns!(), " FROM workspaces ", $rest)
    };
}
use select;

/// The workspace of this id.
pub(super) async fn by_id(db: &Db, id: Uuid) -> sqlx::Result<Option<Found>> {
    on_engine!(db.reader(), pool =>
        sqlx::query_as(select!("WHERE id = $1")).bind(id).fetch_optional(pool).await)
}

/// The workspace of this namespace, as the transaction sees it.
pub(super) async fn by_namespace(tx: &mut Tx, namespace: &str) -> sqlx::Result<Option<Found>> {
    on_engine!(tx.connection(), c => sqlx::query_as(select!("WHERE k8s_namespace = $1"))
        .bind(namespace).fetch_optional(c).await)
}

/// The workspaces of a person, oldest first.
pub(super) async fn of_user(db: &Db, user: Uuid) -> sqlx::Result<Vec<Found>> {
    on_engine!(db.reader(), pool =>
        sqlx::query_as(select!("WHERE user_id = $1 ORDER BY created_at, id"))
            .bind(user).fetch_all(pool).await)
}

/// The same, as a transaction sees them.
pub(super) async fn of_user_in(tx: &mut Tx, user: Uuid) -> sqlx::Result<Vec<Found>> {
    on_engine!(tx.connection(), c =>
        sqlx::query_as(select!("WHERE user_id = $1 ORDER BY created_at, id"))
            .bind(user).fetch_all(c).await)
}

const MOVE: &str = "\
UPDATE workspaces SET status = $1, status_changed_at = $2, sweep_at = $8, sweep_attempts = 0, \
  open_step = NULL \
WHERE id = $3 AND status IN ($4, $5, $6, $7) \
  AND status_changed_at = COALESCE($9, status_changed_at)";

/// Moves a workspace on; false if it is in no state from which the event leads.
pub(super) async fn advance(
    tx: &mut Tx,
    clock: &Clock,
    id: Uuid,
    event: Event,
) -> sqlx::Result<bool> {
    advance_since(tx, clock, id, event, None).await
}

/// Moves on a workspace whose status is since then what it is; false as well if it changed later: whoever ends
/// some work ends the one that was begun, not the next of its kind.
pub(super) async fn advance_since(
    tx: &mut Tx,
    clock: &Clock,
    id: Uuid,
    event: Event,
    since: Option<i64>,
) -> sqlx::Result<bool> {
    let (from, to) = transition(event);
    // Four places, filled up with the first state: one statement serves every event.
    let from = |place: usize| from.get(place).unwrap_or(&from[0]).as_str();
    let moved = on_engine!(tx.connection(), c => sqlx::query(MOVE)
        .bind(to.as_str()).bind(clock.now_ms()).bind(id)
        .bind(from(0)).bind(from(1)).bind(from(2)).bind(from(3))
        .bind(clock.now_ms() + work::GRACE_MS).bind(since)
        .execute(c).await.map(|done| done.rows_affected()))?;
    Ok(moved == 1)
}

const REPLACE_LOST: &str = "\
UPDATE workspaces SET k8s_sa_uid = $1 WHERE id = $2 AND status = 'provisioned' AND k8s_sa_uid = $3";

/// Takes the uid of a ServiceAccount that was made in the place of another one; false if the
/// workspace moved on meanwhile.
pub(super) async fn replace_lost_service_account(
    tx: &mut Tx,
    id: Uuid,
    old: &str,
    new: &str,
) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(REPLACE_LOST)
        .bind(new).bind(id).bind(old).execute(c).await.map(|done| done.rows_affected() == 1))
}

/// The uids of the objects that were made for a workspace.
#[derive(Clone, Debug, Default)]
pub(super) struct MadeUids {
    pub(super) namespace: String,
    pub(super) service_account: String,
}

const SET_UIDS: &str = "\
UPDATE workspaces SET k8s_namespace_uid = $1, k8s_sa_uid = $2, retired_sa_uid = NULL, \
  sa_retired_at = NULL \
WHERE id = $3";

/// Keeps the uids of the namespace and of the ServiceAccount that tokens are asked of.
pub(super) async fn set_uids(tx: &mut Tx, id: Uuid, made: &MadeUids) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(SET_UIDS)
        .bind(&made.namespace).bind(&made.service_account).bind(id).execute(c).await.map(drop))
}

const SET_NAMESPACE_UID: &str = "\
UPDATE workspaces SET k8s_namespace_uid = $1 WHERE id = $2 AND status = $3 AND status_changed_at = $4";

/// Keeps the uid of the namespace of a workspace that did not move on meanwhile.
pub(super) async fn set_namespace_uid(db: &Db, found: &Found, uid: &str) -> sqlx::Result<()> {
    let mut tx = db.begin().await?;
    on_engine!(tx.connection(), c => sqlx::query(SET_NAMESPACE_UID)
        .bind(uid).bind(found.id).bind(&found.status).bind(found.status_changed_at)
        .execute(c).await.map(drop))?;
    tx.commit().await
}

const RETIRE: &str = "\
UPDATE workspaces SET retired_sa_uid = k8s_sa_uid, k8s_sa_uid = NULL, sa_retired_at = $3, \
  sweep_at = $4, sweep_attempts = 0 \
WHERE id = $1 AND k8s_sa_uid = $2 AND status = 'provisioned'";

/// Keeps the uid for deletion, so that no token is asked of it any more; `false` if none is now.
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

/// Puts another ServiceAccount in the place of a retired one; `false` if that was done already, or
/// the workspace is provisioned no more.
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
