//! Workspaces: seven verbs hide all below. `init`, `suspend` and `resume` first write down what
//! they mean to do, then do it; a sweep finishes by the same code what a crash left.

pub mod api;
mod bell;
mod drift;
mod error;
mod objects;
mod progress;
mod provision;
mod rotate;
mod state;
mod store;
mod suspend;
mod sweep;

use std::sync::Arc;

use tenant_shared::{Code, Name, Workspace, WorkspaceList, WorkspaceStatus};
use uuid::Uuid;

pub use bell::{Bell, Heard, Rung, bell};
pub use error::{WorkspaceError, cluster_failure};
pub use objects::{LIMITS_NAME, NETWORK_POLICY_NAME, QUOTA_NAME};
pub(crate) use progress::Steps;
pub(crate) use rotate::ROTATION;
pub(crate) use store::changed_after;
pub use store::{Changed, Found, list::Listed};

use crate::{
    access::{self, Permit, ReadEverything, UseWorkspace},
    audit::{self, Action},
    clock::Clock,
    cluster::Cluster,
    config::{GatewayLimits, Tiers},
    db::{Db, Tx},
    identity::Caller,
    list::{self, Cursor},
    problem::Failure,
    telemetry::Metrics,
    throttle::Allowance,
};

/// Workspaces of one name at most.
const MOST_NAMED: u32 = 100;

/// All workspaces. Clones share everything.
#[derive(Clone, Debug)]
pub struct Workspaces {
    db: Db,
    clock: Clock,
    cluster: Cluster,
    tiers: Tiers,
    init_limit: Allowance,
    metrics: Metrics,
    /// Who this process is among its replicas.
    replica: Uuid,
    /// Tells the gateway of this process.
    bell: Bell,
}

/// Proof that a person may use a workspace and that it works. Credentials are issued for nothing
/// less.
#[derive(Debug)]
pub struct Active {
    permit: Permit<UseWorkspace>,
    namespace: String,
    service_account_uid: Arc<str>,
}

impl Active {
    /// The permit it was made with.
    pub fn permit(&self) -> &Permit<UseWorkspace> {
        &self.permit
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The uid of the ServiceAccount that tokens are asked of.
    pub fn service_account_uid(&self) -> &Arc<str> {
        &self.service_account_uid
    }
}

impl Workspaces {
    /// Names of the tiers that a workspace can have, sorted.
    pub fn tiers(&self) -> Vec<&str> {
        self.tiers.names()
    }

    /// The verbs on this database and cluster.
    pub fn new(
        db: Db,
        clock: Clock,
        cluster: Cluster,
        tiers: Tiers,
        init_limit: Allowance,
        metrics: Metrics,
        bell: Bell,
    ) -> Self {
        let replica = clock.random_id();
        Self { db, clock, cluster, tiers, init_limit, metrics, replica, bell }
    }

    /// The same on another share of the database.
    #[must_use]
    pub fn on(&self, db: &Db) -> Self {
        Self { db: db.clone(), ..self.clone() }
    }

    /// What this workspace may ask of the gateway; of a tier that is configured no more, what `basic` may.
    pub fn gateway_limits(&self, found: &Found) -> GatewayLimits {
        let tier = self.tiers.get(&found.tier).or_else(|| self.tiers.get("basic"));
        tier.map_or(GatewayLimits::LEAST, |tier| tier.gateway)
    }

    /// The cluster that the workspaces are in.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Records that somebody asked for what they may not have, and gives the refusal back.
    ///
    /// # Errors
    /// The refusal; the database's.
    pub(crate) async fn refuse<T>(
        &self,
        by: &Caller,
        action: Action,
        workspace_id: Uuid,
        refusal: Failure,
    ) -> Result<T, Failure> {
        let event = audit::Event {
            user_id: Some(by.user_id()),
            session_id: Some(by.session_id()),
            workspace_id: Some(workspace_id),
            ..audit::Event::success(action)
        };
        self.metrics.action(action, "refused");
        audit::record_refusal(&self.db, &self.clock, event, refusal).await
    }

    /// The row of a workspace that a request names. Who may see it is not decided here.
    ///
    /// # Errors
    /// 404 if there is none; the database's.
    pub async fn existing(&self, id: Uuid) -> Result<Found, Failure> {
        store::by_id(&self.db, id).await?.ok_or_else(access::no_such_workspace)
    }

    /// The row of this id, if there is one.
    ///
    /// # Errors
    /// The database's.
    pub(crate) async fn by_id(&self, id: Uuid) -> sqlx::Result<Option<Found>> {
        store::by_id(&self.db, id).await
    }

    /// Workspaces as they are written on the wire, with what differs in the cluster.
    ///
    /// # Errors
    /// The database's.
    async fn described(&self, listed: &[Listed]) -> sqlx::Result<Vec<Workspace>> {
        let (Some(first), Some(last)) = (listed.first(), listed.last()) else {
            return Ok(Vec::new());
        };
        // Of several owners it is a page of everybody's, and has all between its first and its last.
        let owner = first.found.user_id;
        let owner = listed.iter().all(|it| it.found.user_id == owner).then_some(owner);
        let drifts = store::drift::between(&self.db, owner, first.cursor(), last.cursor()).await?;
        let drift_of = |id| drifts.iter().filter(move |drift| drift.workspace_id == id);
        let describe = |listed: &Listed| Workspace {
            drift: drift_of(listed.found.id).map(store::drift::Row::wire).collect(),
            ..listed.wire()
        };
        Ok(listed.iter().map(describe).collect())
    }

    /// A workspace as it is written on the wire.
    ///
    /// # Errors
    /// 404 if there is none, or if the caller may not know of it; the database's.
    pub async fn shown(&self, caller: &Caller, id: Uuid) -> Result<Workspace, Failure> {
        let listed =
            store::list::by_id(&self.db, id).await?.ok_or_else(access::no_such_workspace)?;
        access::read_workspace(caller, &listed.found)?;
        let described = self.described(&[listed]).await?;
        described.into_iter().next().ok_or_else(access::no_such_workspace)
    }

    /// The workspaces of this name that the caller may see, the oldest first.
    ///
    /// # Errors
    /// 404 if there are none, or none that the caller may know of; the database's.
    pub async fn named(&self, caller: &Caller, name: &Name) -> Result<Vec<Workspace>, Failure> {
        let mut listed = store::list::named(&self.db, name, MOST_NAMED).await?;
        listed.retain(|it| access::read_workspace(caller, &it.found).is_ok());
        if listed.is_empty() {
            return Err(access::nothing_of_this_name());
        }
        Ok(self.described(&listed).await?)
    }

    /// A page of somebody's workspaces, the oldest first.
    ///
    /// # Errors
    /// The database's.
    pub(crate) async fn page_of(
        &self,
        caller: &Caller,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<WorkspaceList, Failure> {
        if let Some(only) = caller.only_workspace() {
            return match self.shown(caller, only).await {
                Ok(shown) => Ok(WorkspaceList { items: vec![shown], next_cursor: None }),
                Err(failure) if failure.code() == Code::NotFound => Ok(WorkspaceList::default()),
                Err(failure) => Err(failure),
            };
        }
        self.page(Some(caller.user_id()), after, limit).await
    }

    /// A page of everybody's workspaces, the oldest first.
    ///
    /// # Errors
    /// The database's.
    pub(crate) async fn page_of_all(
        &self,
        _: &Permit<ReadEverything>,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<WorkspaceList, Failure> {
        self.page(None, after, limit).await
    }

    async fn page(
        &self,
        owner: Option<Uuid>,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<WorkspaceList, Failure> {
        let after = after.unwrap_or(Cursor::OLDEST);
        // One row more than asked for tells whether there is a next page.
        let mut rows = store::list::page(&self.db, owner, after, limit + 1).await?;
        let next_cursor = list::page(&mut rows, limit, |row| row.cursor().to_string());
        Ok(WorkspaceList { items: self.described(&rows).await?, next_cursor })
    }

    /// Whether there are more workspaces than this number.
    ///
    /// # Errors
    /// The database's.
    pub async fn are_more_than(&self, number: u32) -> sqlx::Result<bool> {
        Ok(store::list::count(&self.db, number + 1).await? > i64::from(number))
    }

    /// The workspaces of a person, oldest first.
    ///
    /// # Errors
    /// The database's.
    pub async fn of_user(&self, user: Uuid) -> sqlx::Result<Vec<Found>> {
        store::of_user(&self.db, user).await
    }

    /// The workspaces whose status changed after this time, in milliseconds since 1970.
    ///
    /// # Errors
    /// The database's.
    pub async fn changed_since(&self, since: i64) -> sqlx::Result<Vec<Changed>> {
        store::changed_since(&self.db, since).await
    }

    /// Status and ServiceAccount of a workspace now; `None` if there is no such workspace.
    ///
    /// # Errors
    /// The database's.
    pub async fn standing(&self, id: Uuid) -> sqlx::Result<Option<Changed>> {
        store::standing(&self.db, id).await
    }

    /// The same as a transaction sees them.
    ///
    /// # Errors
    /// The database's.
    pub(crate) async fn of_user_in(&self, tx: &mut Tx, user: Uuid) -> sqlx::Result<Vec<Found>> {
        store::of_user_in(tx, user).await
    }

    /// The workspace, if it works.
    ///
    /// # Errors
    /// It is suspended, or not ready.
    pub fn active(
        &self,
        permit: Permit<UseWorkspace>,
        found: &Found,
    ) -> Result<Active, WorkspaceError> {
        if permit.workspace() != Some(found.id) {
            return Err(WorkspaceError::NotReady(found.status()));
        }
        match (found.status(), &found.k8s_sa_uid) {
            (WorkspaceStatus::Provisioned, Some(uid)) => Ok(Active {
                permit,
                namespace: found.k8s_namespace.clone(),
                service_account_uid: uid.as_str().into(),
            }),
            (WorkspaceStatus::Suspended | WorkspaceStatus::Suspending, _) => {
                Err(WorkspaceError::Suspended)
            }
            (WorkspaceStatus::Provisioned, None) => Err(WorkspaceError::Rotating),
            (status, _) => Err(WorkspaceError::NotReady(status)),
        }
    }
}
