//! Workspaces: their life cycle, their rows and their objects in the cluster.
//!
//! `init`, `suspend` and `resume` first commit the decision to the database, then change the
//! cluster. All steps are idempotent, so a sweep finishes with the same code what a crash left half
//! done.

pub mod api;
mod drift;
mod error;
mod notifier;
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

pub use error::{WorkspaceError, cluster_failure};
pub use notifier::{NotificationReceiver, Notifier, PendingAcks, notification_channel};
pub use objects::{LIMITS_NAME, NETWORK_POLICY_NAME, QUOTA_NAME};
pub(crate) use progress::Steps;
pub(crate) use rotate::ROTATION_STEPS;
pub(crate) use store::changed_after;
pub use store::{WorkspaceRow, WorkspaceStatusRow, list::ListedWorkspace};

use crate::{
    access::{self, Permit, ReadEverything, UseWorkspace},
    audit::{self, Action},
    base::{
        clock::Clock,
        db::{Db, Tx},
        paging::{self, Cursor},
        telemetry::Metrics,
        throttle::Allowance,
    },
    cluster::Cluster,
    http::ApiError,
    identity::Caller,
    tier::{GatewayLimits, Tiers},
};

/// Maximum number of workspaces in the response to a lookup by name.
const MAX_NAMED: u32 = 100;

/// The workspace service. Clones share everything.
#[derive(Clone, Debug)]
pub struct Workspaces {
    db: Db,
    clock: Clock,
    cluster: Cluster,
    tiers: Tiers,
    init_limit: Allowance,
    metrics: Metrics,
    /// Identifier of this process among its replicas.
    replica: Uuid,
    /// Notifies the gateway of this process.
    notifier: Notifier,
}

/// Proof that a user may use a workspace and that the workspace is provisioned. Credentials are
/// issued only against this proof.
#[derive(Debug)]
pub struct Active {
    permit: Permit<UseWorkspace>,
    namespace: String,
    service_account_uid: Arc<str>,
}

impl Active {
    /// The permit that it was made with; it names the caller and the workspace.
    pub fn permit(&self) -> &Permit<UseWorkspace> {
        &self.permit
    }

    /// Name of the workspace's namespace in the cluster.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Uid of the ServiceAccount that tokens are requested for.
    pub fn service_account_uid(&self) -> &Arc<str> {
        &self.service_account_uid
    }
}

impl Workspaces {
    /// Names of the tiers that a workspace can have, sorted.
    pub fn tiers(&self) -> Vec<&str> {
        self.tiers.names()
    }

    /// A service on this database and this cluster.
    pub fn new(
        db: Db,
        clock: Clock,
        cluster: Cluster,
        tiers: Tiers,
        init_limit: Allowance,
        metrics: Metrics,
        notifier: Notifier,
    ) -> Self {
        let replica = clock.random_id();
        Self { db, clock, cluster, tiers, init_limit, metrics, replica, notifier }
    }

    /// The same service on another share of the database connections.
    #[must_use]
    pub fn with_db(&self, db: &Db) -> Self {
        Self { db: db.clone(), ..self.clone() }
    }

    /// The gateway limits of this workspace's tier. A tier that is no longer configured has the
    /// limits of `basic`.
    pub fn gateway_limits(&self, workspace: &WorkspaceRow) -> GatewayLimits {
        let tier = self.tiers.get(&workspace.tier).or_else(|| self.tiers.get("basic"));
        tier.map_or(GatewayLimits::MIN, |tier| tier.gateway)
    }

    /// The cluster that the workspaces are in.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Records a refused action in the audit trail and returns the refusal.
    ///
    /// # Errors
    /// Always: the refusal, or that the database failed.
    pub(crate) async fn refuse<T>(
        &self,
        by: &Caller,
        action: Action,
        workspace_id: Uuid,
        refusal: ApiError,
    ) -> Result<T, ApiError> {
        let event = audit::Event {
            user_id: Some(by.user_id()),
            session_id: Some(by.session_id()),
            workspace_id: Some(workspace_id),
            ..audit::Event::success(action)
        };
        self.metrics.action(action, "refused");
        audit::record_refusal(&self.db, &self.clock, event, refusal).await
    }

    /// The row of a workspace that a request names. This does not check who may see it.
    ///
    /// # Errors
    /// 404 if there is none, or the database failed.
    pub async fn existing(&self, id: Uuid) -> Result<WorkspaceRow, ApiError> {
        store::by_id(&self.db, id).await?.ok_or_else(access::workspace_not_found)
    }

    /// The row with this identifier, if there is one.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn by_id(&self, id: Uuid) -> sqlx::Result<Option<WorkspaceRow>> {
        store::by_id(&self.db, id).await
    }

    /// The API form of these workspaces, with their drift.
    ///
    /// # Errors
    /// The database failed.
    async fn with_drift(&self, listed: &[ListedWorkspace]) -> sqlx::Result<Vec<Workspace>> {
        let (Some(first), Some(last)) = (listed.first(), listed.last()) else {
            return Ok(Vec::new());
        };
        // Rows of several owners are a page of everybody's workspaces, which is contiguous: it has
        // all workspaces between its first and its last one.
        let owner = first.workspace.user_id;
        let owner = listed.iter().all(|it| it.workspace.user_id == owner).then_some(owner);
        let drifts = store::drift::between(&self.db, owner, first.cursor(), last.cursor()).await?;
        let drift_of = |id| drifts.iter().filter(move |drift| drift.workspace_id == id);
        let describe = |listed: &ListedWorkspace| Workspace {
            drift: drift_of(listed.workspace.id).map(store::drift::Row::to_api).collect(),
            ..listed.to_api()
        };
        Ok(listed.iter().map(describe).collect())
    }

    /// The API form of a workspace.
    ///
    /// # Errors
    /// 404 if there is none or the caller may not know of it; or the database failed.
    pub async fn show(&self, caller: &Caller, id: Uuid) -> Result<Workspace, ApiError> {
        let listed =
            store::list::by_id(&self.db, id).await?.ok_or_else(access::workspace_not_found)?;
        access::read_workspace(caller, &listed.workspace)?;
        let workspaces = self.with_drift(&[listed]).await?;
        workspaces.into_iter().next().ok_or_else(access::workspace_not_found)
    }

    /// The workspaces of this name that the caller may see, oldest first.
    ///
    /// # Errors
    /// 404 if there are none, or none that the caller may know of; or the database failed.
    pub async fn by_name(&self, caller: &Caller, name: &Name) -> Result<Vec<Workspace>, ApiError> {
        let mut listed = store::list::by_name(&self.db, name, MAX_NAMED).await?;
        listed.retain(|it| access::read_workspace(caller, &it.workspace).is_ok());
        if listed.is_empty() {
            return Err(access::name_not_found());
        }
        Ok(self.with_drift(&listed).await?)
    }

    /// A page of the caller's workspaces, oldest first. A caller that is limited to one workspace
    /// gets that one only.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn page_of(
        &self,
        caller: &Caller,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<WorkspaceList, ApiError> {
        if let Some(only) = caller.only_workspace() {
            return match self.show(caller, only).await {
                Ok(workspace) => Ok(WorkspaceList { items: vec![workspace], next_cursor: None }),
                Err(failure) if failure.code() == Code::NotFound => Ok(WorkspaceList::default()),
                Err(failure) => Err(failure),
            };
        }
        self.page(Some(caller.user_id()), after, limit).await
    }

    /// A page of everybody's workspaces, oldest first.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn page_of_all(
        &self,
        _: &Permit<ReadEverything>,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<WorkspaceList, ApiError> {
        self.page(None, after, limit).await
    }

    async fn page(
        &self,
        owner: Option<Uuid>,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<WorkspaceList, ApiError> {
        let after = after.unwrap_or(Cursor::OLDEST);
        // One row more than requested shows whether there is a next page.
        let mut rows = store::list::page(&self.db, owner, after, limit + 1).await?;
        let next_cursor = paging::truncate_page(&mut rows, limit, |row| row.cursor().to_string());
        Ok(WorkspaceList { items: self.with_drift(&rows).await?, next_cursor })
    }

    /// Whether there are more workspaces than this number.
    ///
    /// # Errors
    /// The database failed.
    pub async fn are_more_than(&self, number: u32) -> sqlx::Result<bool> {
        Ok(store::list::count(&self.db, number + 1).await? > i64::from(number))
    }

    /// The workspaces of a user, oldest first.
    ///
    /// # Errors
    /// The database failed.
    pub async fn for_user(&self, user: Uuid) -> sqlx::Result<Vec<WorkspaceRow>> {
        store::for_user(&self.db, user).await
    }

    /// The workspaces whose status changed after this time, in milliseconds since 1970.
    ///
    /// # Errors
    /// The database failed.
    pub async fn changed_since(&self, since: i64) -> sqlx::Result<Vec<WorkspaceStatusRow>> {
        store::changed_since(&self.db, since).await
    }

    /// The current status and ServiceAccount of a workspace; `None` if there is no such workspace.
    ///
    /// # Errors
    /// The database failed.
    pub async fn current_status(&self, id: Uuid) -> sqlx::Result<Option<WorkspaceStatusRow>> {
        store::current_status(&self.db, id).await
    }

    /// The workspaces of a user as this transaction sees them, oldest first.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn for_user_in(
        &self,
        tx: &mut Tx,
        user: Uuid,
    ) -> sqlx::Result<Vec<WorkspaceRow>> {
        store::for_user_in(tx, user).await
    }

    /// Proof that the workspace is provisioned.
    ///
    /// # Errors
    /// The workspace is suspended or not ready, or its ServiceAccount is being replaced.
    pub fn active(
        &self,
        permit: Permit<UseWorkspace>,
        workspace: &WorkspaceRow,
    ) -> Result<Active, WorkspaceError> {
        if permit.workspace() != Some(workspace.id) {
            return Err(WorkspaceError::NotReady(workspace.status()));
        }
        match (workspace.status(), &workspace.k8s_sa_uid) {
            (WorkspaceStatus::Provisioned, Some(uid)) => Ok(Active {
                permit,
                namespace: workspace.k8s_namespace.clone(),
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
