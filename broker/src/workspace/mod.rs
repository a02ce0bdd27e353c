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

use tenant_shared::{Workspace, WorkspaceStatus};
use uuid::Uuid;

pub use bell::{Bell, Heard, Rung, bell};
pub use error::{WorkspaceError, cluster_failure};
pub use objects::{LIMITS_NAME, QUOTA_NAME};
pub(crate) use progress::Steps;
pub(crate) use rotate::ROTATION;
pub(crate) use store::changed_after;
pub use store::{Changed, Found};

use crate::{
    access::{self, Permit, ReadEverything, UseWorkspace},
    audit::{self, Action},
    clock::Clock,
    cluster::Cluster,
    config::{GatewayLimits, Tiers},
    db::{Db, Tx},
    identity::Caller,
    problem::Failure,
    telemetry::Metrics,
    throttle::Allowance,
};

/// Workspaces in one answer of `list_all`.
const MOST_LISTED: u32 = 10_000;

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
    pub async fn described(&self, found: &[Found]) -> sqlx::Result<Vec<Workspace>> {
        let drifts = match found {
            [] => Vec::new(),
            [one] => store::drift::of(&self.db, one.id).await?,
            _ => store::drift::all(&self.db, MOST_LISTED).await?,
        };
        let drift_of = |id| drifts.iter().filter(move |drift| drift.workspace_id == id);
        let describe = |found: &Found| Workspace {
            drift: drift_of(found.id).map(store::drift::Row::wire).collect(),
            ..found.wire()
        };
        Ok(found.iter().map(describe).collect())
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

    /// The same as a transaction sees them.
    ///
    /// # Errors
    /// The database's.
    pub(crate) async fn of_user_in(&self, tx: &mut Tx, user: Uuid) -> sqlx::Result<Vec<Found>> {
        store::of_user_in(tx, user).await
    }

    /// Everybody's workspaces, oldest first, 10 000 at most.
    ///
    /// # Errors
    /// The database's.
    pub async fn list_all(&self, _: &Permit<ReadEverything>) -> sqlx::Result<Vec<Found>> {
        store::all(&self.db, MOST_LISTED).await
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
