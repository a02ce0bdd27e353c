//! Table `namespace_moves`: announced moves of namespaces into tenants.
//!
//! An announcement alone moves nothing, because whoever uses the broker's API could make one: the
//! namespace also needs labels that only an administrator of the cluster can write. The labels alone
//! move nothing either. The controller carries a move out:
//!
//! | state | who has the namespace | rights in it |
//! |---|---|---|
//! | `Announced` | the earlier tenant, or nobody | those of the earlier tenant, until the labels are written |
//! | `Received` | the new tenant | nobody's of the broker |
//! | `Cleared` | the new tenant | those of the new tenant; no binding from before is left |

use uuid::Uuid;

use super::{
    NamespaceStatus, Tenants,
    claim::{lock_namespace, quota_usage},
    lock_active_tenant, undecodable,
};
use crate::{audit, base::db::Tx, identity::users::lock_administrator, on_engine};

/// Announced moves of one tenant that a run reads. Others are carried out once these are done.
pub(super) const MAX_ANNOUNCED: i64 = 1_000;

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveState {
    /// An administrator announced it.
    Announced,
    /// The row of the namespace is the new tenant's.
    Received,
    /// The bindings from before are gone, so the new tenant may give rights.
    Cleared,
}

impl MoveState {
    const ALL: [Self; 3] = [Self::Announced, Self::Received, Self::Cleared];

    fn as_str(self) -> &'static str {
        match self {
            Self::Announced => "announced",
            Self::Received => "received",
            Self::Cleared => "cleared",
        }
    }
}

/// A move of a namespace into a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceMove {
    /// Name of the namespace.
    pub namespace: String,
    /// `metadata.uid` of the namespace. One that is made again is another one.
    pub namespace_uid: String,
    /// The tenant that has the namespace, or the closed one that had it; `None` if it was no
    /// tenant's.
    pub from_tenant: Option<Uuid>,
    /// The tenant that gets the namespace.
    pub to_tenant: Uuid,
    /// The administrator.
    pub requested_by: Uuid,
    pub state: MoveState,
    /// When the announcement ends, in milliseconds since 1970. A move that has begun does not end.
    pub expires_at: i64,
}

/// An announcement with its audit rows: one for each tenant concerned.
#[derive(Clone, Debug)]
pub struct Announcement {
    pub namespace: String,
    pub namespace_uid: String,
    pub from_tenant: Option<Uuid>,
    pub to_tenant: Uuid,
    pub requested_by: Uuid,
    pub expires_at: i64,
    pub events: Vec<audit::Event>,
}

/// Reason why a move was not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveRefusal {
    /// This tenant is suspended, being suspended or resumed, or closed.
    #[error("one of the tenants is not active any more")]
    NotActive(Uuid),
    /// The namespace is not, or no longer, the one of the tenant that the move names.
    #[error("the namespace was deleted, or went to another tenant")]
    OtherHolder,
    /// Another move of the namespace is being carried out, or the announcement ended.
    #[error("the announcement ended, or another move of the namespace is being carried out")]
    OtherMove,
    /// The tenant has as many namespaces as it may have.
    #[error("exceeded namespace quota: the tenant has {used} of {quota}")]
    QuotaExceeded {
        /// Namespaces that are counted.
        used: u32,
        /// The limit.
        quota: u32,
    },
    /// Who announced the move is no active administrator any more.
    #[error("only an administrator announces a move")]
    NotAdministrator,
}

const SELECT: &str = "\
SELECT namespace, namespace_uid, from_tenant, to_tenant, requested_by, state, expires_at \
FROM namespace_moves WHERE namespace = $1";

const SELECT_TO: &str = "\
SELECT namespace, namespace_uid, from_tenant, to_tenant, requested_by, state, expires_at \
FROM namespace_moves WHERE to_tenant = $1 AND (state <> 'announced' OR namespace IN ( \
  SELECT namespace FROM namespace_moves WHERE to_tenant = $1 AND state = 'announced' \
  ORDER BY namespace LIMIT $2)) \
ORDER BY namespace";

/// Takes the place of an announcement that was not carried out.
const ANNOUNCE: &str = "\
INSERT INTO namespace_moves \
  (namespace, namespace_uid, from_tenant, to_tenant, requested_by, state, expires_at, changed_at) \
VALUES ($1, $2, $3, $4, $5, 'announced', $6, $7) \
ON CONFLICT (namespace) DO UPDATE SET \
  namespace_uid = $2, from_tenant = $3, to_tenant = $4, requested_by = $5, expires_at = $6, \
  changed_at = $7 \
WHERE namespace_moves.state = 'announced'";

const BEGIN: &str = "\
UPDATE namespace_moves SET state = 'received', changed_at = $6 \
WHERE namespace = $1 AND namespace_uid = $2 AND to_tenant = $3 AND requested_by = $4 \
  AND expires_at = $5 AND state = 'announced' AND expires_at > $6";

const CHANGED_SINCE: &str = "\
SELECT namespace, from_tenant, to_tenant, changed_at FROM namespace_moves WHERE changed_at > $1";

/// Counted, because the caller checked the quota of the new tenant, whose row is locked.
const ADOPT: &str = "\
INSERT INTO tenant_namespaces (name, tenant_id, status, made_by, created_at, change_at) \
VALUES ($1, $2, 'creating', NULL, $3, $3) \
ON CONFLICT (name) DO UPDATE SET \
  tenant_id = $2, status = 'creating', made_by = NULL, created_at = $3, change_at = $3";

const CLEAR: &str = "\
UPDATE namespace_moves SET state = 'cleared' \
WHERE namespace = $1 AND to_tenant = $2 AND state = 'received'";

const FINISH: &str = "\
DELETE FROM namespace_moves WHERE namespace = $1 AND namespace_uid = $2 AND to_tenant = $3";

const PURGE: &str = "\
DELETE FROM namespace_moves WHERE (state = 'announced' AND expires_at <= $1) \
  OR to_tenant IN (SELECT id FROM tenants WHERE name IS NULL)";

#[derive(sqlx::FromRow)]
struct StoredMove {
    namespace: String,
    namespace_uid: String,
    from_tenant: Option<Uuid>,
    to_tenant: Uuid,
    requested_by: Uuid,
    state: String,
    expires_at: i64,
}

impl TryFrom<StoredMove> for NamespaceMove {
    type Error = sqlx::Error;

    fn try_from(stored: StoredMove) -> Result<Self, sqlx::Error> {
        let state = MoveState::ALL.into_iter().find(|state| state.as_str() == stored.state);
        Ok(Self {
            state: state.ok_or_else(|| undecodable("state", &stored.state))?,
            namespace: stored.namespace,
            namespace_uid: stored.namespace_uid,
            from_tenant: stored.from_tenant,
            to_tenant: stored.to_tenant,
            requested_by: stored.requested_by,
            expires_at: stored.expires_at,
        })
    }
}

impl Tenants {
    /// Records an announcement with its events, if both tenants are active and the namespace is the
    /// one of the tenant that it names. It takes the place of an earlier announcement.
    ///
    /// # Errors
    /// The database failed, or a row has a value that this version does not know.
    pub async fn announce_move(
        &self,
        announcement: Announcement,
    ) -> sqlx::Result<Result<(), MoveRefusal>> {
        let Announcement { namespace, from_tenant, to_tenant, requested_by, .. } = &announcement;
        let mut tx = self.db.begin().await?;
        if !lock_administrator(&mut tx, *requested_by).await? {
            return Ok(Err(MoveRefusal::NotAdministrator));
        }
        if let Err(refusal) = self.lock_move(&mut tx, namespace, *from_tenant, *to_tenant).await? {
            return Ok(Err(refusal));
        }
        let announced = on_engine!(tx.connection(), c => sqlx::query(ANNOUNCE)
            .bind(namespace).bind(&announcement.namespace_uid).bind(*from_tenant).bind(*to_tenant)
            .bind(announcement.requested_by).bind(announcement.expires_at)
            .bind(self.clock.now_ms())
            .execute(c).await.map(|done| done.rows_affected()))?;
        if announced != 1 {
            return Ok(Err(MoveRefusal::OtherMove));
        }
        for event in announcement.events {
            audit::record(&mut tx, &self.clock, event).await?;
        }
        tx.commit().await?;
        Ok(Ok(()))
    }

    /// The move of a namespace that is announced or being carried out.
    ///
    /// # Errors
    /// The database failed, or the row has a value that this version does not know.
    pub async fn move_of(&self, namespace: &str) -> sqlx::Result<Option<NamespaceMove>> {
        let stored: Option<StoredMove> = on_engine!(self.db.reader(), pool =>
            sqlx::query_as(SELECT).bind(namespace).fetch_optional(pool).await)?;
        stored.map(NamespaceMove::try_from).transpose()
    }

    /// The moves into a tenant, by namespace: all that have begun, and at most 1,000 others.
    ///
    /// # Errors
    /// See [`Self::move_of`].
    pub async fn moves_into(&self, tenant: Uuid) -> sqlx::Result<Vec<NamespaceMove>> {
        let stored: Vec<StoredMove> = on_engine!(self.db.reader(), pool =>
            sqlx::query_as(SELECT_TO).bind(tenant).bind(MAX_ANNOUNCED).fetch_all(pool).await)?;
        stored.into_iter().map(NamespaceMove::try_from).collect()
    }

    /// Announcements and begun moves since this time, in milliseconds since 1970: the namespace, the
    /// tenants concerned, and the time.
    ///
    /// # Errors
    /// The database failed.
    pub async fn moves_changed_since(
        &self,
        since: i64,
    ) -> sqlx::Result<Vec<(String, Vec<Uuid>, i64)>> {
        let rows: Vec<(String, Option<Uuid>, Uuid, i64)> = on_engine!(self.db.reader(), pool =>
            sqlx::query_as(CHANGED_SINCE).bind(since).fetch_all(pool).await)?;
        let changed = rows.into_iter().map(|(namespace, from, to, changed_at)| {
            (namespace, from.into_iter().chain([to]).collect(), changed_at)
        });
        Ok(changed.collect())
    }

    /// Gives the row of a namespace to the new tenant of an announced move, with these events in the
    /// same transaction. The caller holds the lease of the tenant that has the namespace, whose
    /// bindings in it are gone, or of the new one if nobody has it; and the namespace has the labels
    /// of the new tenant. It is counted in the quota of the new tenant; if there is no room, no row
    /// is changed.
    ///
    /// # Errors
    /// See [`Self::announce_move`].
    pub async fn receive_namespace(
        &self,
        announced: &NamespaceMove,
        quota: Option<u32>,
        events: Vec<audit::Event>,
    ) -> sqlx::Result<Result<(), MoveRefusal>> {
        let NamespaceMove { namespace, from_tenant, to_tenant, .. } = announced;
        let now = self.clock.now_ms();
        let mut tx = self.db.begin().await?;
        if let Err(refusal) = self.lock_move(&mut tx, namespace, *from_tenant, *to_tenant).await? {
            return Ok(Err(refusal));
        }
        let (used, quota) = quota_usage(&mut tx, *to_tenant, quota).await?;
        if used >= quota {
            return Ok(Err(MoveRefusal::QuotaExceeded { used, quota }));
        }
        let begun = on_engine!(tx.connection(), c => sqlx::query(BEGIN)
            .bind(namespace).bind(&announced.namespace_uid).bind(*to_tenant)
            .bind(announced.requested_by).bind(announced.expires_at).bind(now)
            .execute(c).await.map(|done| done.rows_affected()))?;
        if begun != 1 {
            return Ok(Err(MoveRefusal::OtherMove));
        }
        on_engine!(tx.connection(), c => sqlx::query(ADOPT)
            .bind(namespace).bind(*to_tenant).bind(now).execute(c).await.map(drop))?;
        for event in events {
            audit::record(&mut tx, &self.clock, event).await?;
        }
        tx.commit().await?;
        Ok(Ok(()))
    }

    /// Records that no binding from before is left in a namespace, with this event in the same
    /// transaction. Does nothing if that is recorded already.
    ///
    /// # Errors
    /// The database failed.
    pub async fn record_cleared(
        &self,
        received: &NamespaceMove,
        event: Option<audit::Event>,
    ) -> sqlx::Result<()> {
        let mut tx = self.db.begin().await?;
        let cleared = on_engine!(tx.connection(), c => sqlx::query(CLEAR)
            .bind(&received.namespace).bind(received.to_tenant)
            .execute(c).await.map(|done| done.rows_affected()))?;
        if let Some(event) = event.filter(|_| cleared == 1) {
            audit::record(&mut tx, &self.clock, event).await?;
        }
        tx.commit().await
    }

    /// Deletes the row of a move that is complete, or whose namespace is gone.
    ///
    /// # Errors
    /// The database failed.
    pub async fn finish_move(&self, complete: &NamespaceMove) -> sqlx::Result<()> {
        let mut tx = self.db.begin().await?;
        on_engine!(tx.connection(), c => sqlx::query(FINISH)
            .bind(&complete.namespace).bind(&complete.namespace_uid).bind(complete.to_tenant)
            .execute(c).await.map(drop))?;
        tx.commit().await
    }

    /// Deletes announcements that ended, and moves into tenants that are closed.
    ///
    /// # Errors
    /// The database failed.
    pub async fn purge_moves(&self) -> sqlx::Result<()> {
        let now = self.clock.now_ms();
        let mut tx = self.db.begin().await?;
        on_engine!(tx.connection(), c => sqlx::query(PURGE).bind(now).execute(c).await.map(drop))?;
        tx.commit().await
    }

    /// Locks both tenants and the row of the namespace, in an order that is the same for every move.
    /// A closed tenant has its namespaces' rows still, and gives them up.
    async fn lock_move(
        &self,
        tx: &mut Tx,
        namespace: &str,
        from: Option<Uuid>,
        to: Uuid,
    ) -> sqlx::Result<Result<(), MoveRefusal>> {
        let mut tenants: Vec<Uuid> = from.into_iter().chain([to]).collect();
        tenants.sort_unstable();
        let mut inactive = Vec::new();
        for tenant in tenants {
            if !lock_active_tenant(tx, tenant).await? {
                inactive.push(tenant);
            }
        }
        let row = lock_namespace(tx, namespace).await?;
        let held = row.filter(|row| row.status != NamespaceStatus::Gone);
        let is_orphan = held.as_ref().is_some_and(|row| row.status == NamespaceStatus::Orphaned);
        let blocking = inactive.into_iter().find(|id| *id == to || !is_orphan);
        if let Some(tenant) = blocking {
            return Ok(Err(MoveRefusal::NotActive(tenant)));
        }
        let holder = held.as_ref().map(|row| row.tenant_id);
        let is_unsettled = held.is_some_and(|row| match row.status {
            NamespaceStatus::Creating => !row.was_seen(),
            status => status == NamespaceStatus::Terminating,
        });
        let is_as_announced = holder == from && holder != Some(to) && !is_unsettled;
        Ok(if is_as_announced { Ok(()) } else { Err(MoveRefusal::OtherHolder) })
    }
}
