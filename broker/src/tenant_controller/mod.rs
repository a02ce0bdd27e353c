//! The controller of Tenants: it brings the objects of each tenant in the cluster to the desired
//! state that [`crate::tenant::desired_state`] computes from the Tenant, its members and the settings.
//!
//! Every replica watches Tenants and their objects. Each event names a tenant, which a worker takes
//! from a queue and reconciles as a whole. A lease in the database gives a tenant to one replica at
//! a time. Besides events, all tenants are reconciled at an interval (`drift_seconds`). The watches
//! also write the [`TenantCache`].
//!
//! Limits are created before bindings, and bindings are deleted before anything else: a namespace
//! has its limits before anybody is bound in it, and a tenant that is suspended, or whose object is
//! gone, loses bindings and members before anything is recorded as done. A right that moves from
//! one binding to another is created before it is taken away.
//!
//! | folder | responsibility |
//! |---|---|
//! | `watches` | changes in the cluster and in the database, as names in the queue |
//! | `queue` | the queue, with its pauses; suspensions have workers of their own |
//! | `reconcile` | the workers, and one run: lease, time limit, which object is the tenant, its members and its status; suspension and resumption; the end of a tenant whose object is gone |
//! | `namespaces` | which namespaces belong to a tenant: claims, moves, the division of quotas, and a namespace that a person requested |
//! | `objects` | live objects, their changes, and what others deleted or altered |

mod error;
mod namespaces;
mod objects;
mod queue;
mod reconcile;
#[cfg(test)]
mod testing;
mod watches;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, RwLock},
    time::Duration,
};

use k8s_openapi::api::core::v1::LimitRange;
use tokio::{sync::Notify, task::JoinSet};
use uuid::Uuid;

pub use self::{
    error::ReconcileError,
    namespaces::{
        CreateNamespaceError, CreatedNamespace, NamespaceRequest, has_label_of_a_move,
        is_terminating,
    },
    reconcile::{
        RECONCILE_OUTCOMES,
        revocation_progress::{RevocationStep, StepAttemptEnd},
    },
};

use self::{
    namespaces::{divide_quotas::UnfinishedDivisions, recorded_deletions::RecordedDeletions},
    objects::{drift::DriftLog, foreign_bindings::ForeignBindings},
    queue::{Queue, creations::Creations},
    reconcile::{members::UnnamedMembers, revocation_progress::RevocationProgress, runs::Runs},
};
use crate::{
    base::{clock::Clock, db::Db, telemetry::Metrics},
    cluster::Cluster,
    identity::RbacUserRules,
    tenant::{
        ApiGroup, Condition, Inputs, Tenant, TenantCache, TenantName, TenantSettings, Tenants,
        desired_state,
    },
    tier::Tiers,
    workspace::Workspaces,
};

/// Tenants that this process reconciles concurrently.
const WORKERS: usize = 4;
/// How long runs under way may take when the broker stops. Most take less than a second.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Tenants whose suspension this process enforces concurrently, besides those.
const SUSPENSION_WORKERS: usize = 4;
/// How long a request without an answer may still be carried out: longer than the API server may
/// stay silent. Until then amounts of quotas are not divided again.
const IN_FLIGHT_TIMEOUT: Duration = Duration::from_secs(16);

/// The dependencies of [`TenantController`].
#[derive(Debug)]
pub struct Dependencies {
    /// The database, for leases and persons.
    pub db: Db,
    /// The database pool for requests, which create namespaces.
    pub requests: Db,
    /// Source of times and identifiers.
    pub clock: Clock,
    /// The cluster with the Tenants.
    pub cluster: Cluster,
    /// The Tenants in memory, which the watches keep up to date.
    pub cache: TenantCache,
    /// The memberships.
    pub workspaces: Workspaces,
    /// How people are named in Tenants.
    pub rbac_user_rules: RbacUserRules,
    /// Settings of tenants.
    pub settings: TenantSettings,
    /// The tiers that Tenants name.
    pub tiers: Tiers,
    /// Counts runs.
    pub metrics: Metrics,
    /// Interval at which all tenants are reconciled.
    pub resync_interval: Duration,
}

/// Rows for creations of namespaces, on the database pool for requests. There may
/// be many of them, and the connections of the controller are those for suspensions.
#[derive(Debug)]
struct RequestRows {
    db: Db,
    tenants: Tenants,
    workspaces: Workspaces,
}

/// Reconciles Tenants until the broker stops.
#[derive(Debug)]
pub struct TenantController {
    db: Db,
    clock: Clock,
    cluster: Cluster,
    cache: TenantCache,
    tenants: Tenants,
    workspaces: Workspaces,
    requests: RequestRows,
    rbac_user_rules: RbacUserRules,
    settings: TenantSettings,
    tiers: Tiers,
    metrics: Metrics,
    resync_interval: Duration,
    queue: Queue,
    runs: Runs,
    creations: Creations,
    unfinished_divisions: UnfinishedDivisions,
    unnamed_members: UnnamedMembers,
    foreign_bindings: ForeignBindings,
    revocations: RevocationProgress,
    drift: DriftLog,
    recorded_deletions: RecordedDeletions,
    /// All tenants have to be reconciled, because events may have been missed.
    resync: Notify,
    /// Names of the open rows at the last resync.
    open_tenants: RwLock<BTreeSet<TenantName>>,
    /// Names of the open rows in which nobody may have rights, at the last poll of the database.
    suspended: RwLock<BTreeSet<TenantName>>,
    /// Identifier of this process among its replicas.
    replica: Uuid,
}

impl TenantController {
    /// A controller with these dependencies. It does nothing before [`Self::run`].
    pub fn new(dependencies: Dependencies) -> Self {
        Self {
            tenants: Tenants::new(dependencies.db.clone(), dependencies.clock.clone()),
            requests: RequestRows {
                tenants: Tenants::new(dependencies.requests.clone(), dependencies.clock.clone()),
                workspaces: dependencies.workspaces.with_db(&dependencies.requests),
                db: dependencies.requests,
            },
            replica: dependencies.clock.random_id(),
            queue: Queue::default(),
            runs: Runs::default(),
            creations: Creations::default(),
            unfinished_divisions: UnfinishedDivisions::default(),
            unnamed_members: UnnamedMembers::default(),
            foreign_bindings: ForeignBindings::default(),
            revocations: RevocationProgress::default(),
            drift: DriftLog::default(),
            recorded_deletions: RecordedDeletions::default(),
            resync: Notify::new(),
            open_tenants: RwLock::default(),
            suspended: RwLock::default(),
            db: dependencies.db,
            clock: dependencies.clock,
            cluster: dependencies.cluster,
            cache: dependencies.cache,
            workspaces: dependencies.workspaces,
            rbac_user_rules: dependencies.rbac_user_rules,
            settings: dependencies.settings,
            tiers: dependencies.tiers,
            metrics: dependencies.metrics,
            resync_interval: dependencies.resync_interval,
        }
    }

    /// Watches and reconciles until the future is dropped. A lease that is held then expires, so
    /// [`Self::finish_runs`] comes first.
    ///
    /// # Panics
    /// One of its tasks panicked.
    pub async fn run(self: Arc<Self>) {
        let mut tasks = JoinSet::new();
        for group in ApiGroup::ALL {
            tasks.spawn(Arc::clone(&self).watch_tenants(group));
        }
        tasks.spawn(Arc::clone(&self).watch_namespaces());
        tasks.spawn(Arc::clone(&self).watch_bindings());
        tasks.spawn(Arc::clone(&self).watch_labelled::<LimitRange>());
        tasks.spawn(Arc::clone(&self).watch_quotas());
        tasks.spawn(Arc::clone(&self).poll_database());
        tasks.spawn(Arc::clone(&self).resync_loop());
        tasks.spawn(Arc::clone(&self).cleanup_loop());
        for _ in 0..WORKERS {
            tasks.spawn(Arc::clone(&self).work());
        }
        for _ in 0..SUSPENSION_WORKERS {
            tasks.spawn(Arc::clone(&self).enforce_suspensions());
        }
        // No task ends by itself.
        if let Some(Err(error)) = tasks.join_next().await
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }

    /// Begins no more runs, and waits until those under way have released their leases: another
    /// replica, or this one after its restart, would wait until these expire. After [`STOP_TIMEOUT`]
    /// the rest is left to that.
    pub async fn finish_runs(&self) {
        self.runs.stop(STOP_TIMEOUT).await;
    }

    /// Conditions for parts of a Tenant that the settings do not allow, or that the broker does not
    /// carry out.
    pub fn conditions_of(&self, tenant: &Tenant) -> Vec<Condition> {
        let inputs = Inputs {
            tenant,
            suspended: false,
            members: &[],
            namespaces: &[],
            settings: &self.settings,
            tiers: &self.tiers,
        };
        desired_state(&inputs).conditions
    }

    /// Adds a tenant to the queue of this process.
    pub fn reconcile_soon(&self, tenant: &TenantName) {
        self.queue.add(tenant.clone());
    }

    /// Adds a tenant that was suspended to the queue of this process. It waits for no run on another
    /// tenant.
    pub fn suspend_soon(&self, tenant: &TenantName) {
        self.queue.add_suspension(tenant.clone());
    }

    /// The last attempts of this process at the steps of a suspension that was decided at this time, in
    /// milliseconds since 1970. Empty if the suspension ended more than an hour ago.
    pub fn revocation_steps(
        &self,
        tenant: Uuid,
        decided_at: i64,
    ) -> BTreeMap<RevocationStep, StepAttemptEnd> {
        self.revocations.steps(tenant, decided_at)
    }
}
