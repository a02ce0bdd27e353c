//! Workspaces: their life cycle, their rows and their objects in the cluster.
//!
//! `init`, `suspend` and `resume` first commit the decision to the database, then change the
//! cluster. All steps are idempotent, so a sweep finishes with the same code what a crash left half
//! done.
//!
//! Other modules get the row of a workspace only in a [`crate::access::Permit`], for example from
//! [`Workspaces::authorize`].

mod active;
pub mod api;
mod audit_events;
mod authorize;
mod create_objects;
mod drift;
mod error;
mod membership;
mod notifier;
mod objects;
mod progress;
mod provision;
mod read;
mod restored;
mod resume;
mod revoke_access;
mod rotate;
mod state;
mod store;
mod suspend;
mod suspension_target;
mod sweep;
#[cfg(test)]
mod tests;

use uuid::Uuid;

pub use active::Active;
pub use error::{REVOCATION_FAILURE_CAUSES, WorkspaceError};
pub use membership::{ChangedMembership, Membership, MembershipRequest};
pub use notifier::{NotificationReceiver, Notifier, PendingAcks, notification_channel};
pub use objects::{LIMITS_NAME, NETWORK_POLICY_NAME, QUOTA_NAME};
pub use progress::REVOCATION_STEPS;
pub(crate) use progress::Steps;
pub use provision::Initialized;
pub use restored::orphaned_namespaces;
pub(crate) use restored::{
    invalidate_restored, is_restored, suspend_restored, suspend_restored_of,
};
pub(crate) use resume::TOKEN_CACHE_MS;
pub(crate) use rotate::ROTATION_STEPS;
pub use store::{WorkspaceRow, WorkspaceStatusRow};

use crate::{
    base::{clock::Clock, db::Db, telemetry::Metrics, throttle::WindowQuota},
    cluster::{Cluster, ClusterError, Clusters},
    tier::{DEFAULT_TIER, GatewayLimits, Tiers},
};

/// The dependencies of [`Workspaces`].
#[derive(Debug)]
pub struct Dependencies {
    /// The database.
    pub db: Db,
    /// Source of times and identifiers.
    pub clock: Clock,
    /// The clusters that workspaces are in.
    pub clusters: Clusters,
    /// The configured tiers.
    pub tiers: Tiers,
    /// Rate limit of `init`, by user.
    pub init_limit: WindowQuota,
    /// Counts audited actions.
    pub metrics: Metrics,
    /// Notifies the gateway of this process.
    pub notifier: Notifier,
}

/// The workspace service. Clones share everything.
#[derive(Clone, Debug)]
pub struct Workspaces {
    db: Db,
    /// Records refused requests. [`Workspaces::with_db`] does not change it, because such requests
    /// must not use connections that are reserved for suspensions.
    refusals: Db,
    clock: Clock,
    clusters: Clusters,
    tiers: Tiers,
    init_limit: WindowQuota,
    metrics: Metrics,
    /// Identifier of this process among its replicas.
    replica: Uuid,
    /// Notifies the gateway of this process.
    notifier: Notifier,
}

impl Workspaces {
    /// A service with these dependencies.
    pub fn new(dependencies: Dependencies) -> Self {
        let Dependencies { db, clock, clusters, tiers, init_limit, metrics, notifier } =
            dependencies;
        let (refusals, replica) = (db.clone(), clock.random_id());
        Self { db, refusals, clock, clusters, tiers, init_limit, metrics, replica, notifier }
    }

    /// The same service on another pool of database connections. Refused requests are still
    /// recorded with the first pool.
    #[must_use]
    pub fn with_db(&self, db: &Db) -> Self {
        Self { db: db.clone(), ..self.clone() }
    }

    /// Names of the tiers that a workspace can have, sorted.
    pub fn tiers(&self) -> Vec<&str> {
        self.tiers.names()
    }

    /// The gateway limits of this workspace's tier. A tier that is no longer configured has the
    /// limits of [`DEFAULT_TIER`].
    pub fn gateway_limits(&self, workspace: &WorkspaceRow) -> GatewayLimits {
        let tier = self.tiers.get(&workspace.tier).or_else(|| self.tiers.get(DEFAULT_TIER));
        tier.map_or(GatewayLimits::MIN, |tier| tier.gateway)
    }

    /// The cluster that a workspace is in.
    ///
    /// # Errors
    /// The cluster is not configured.
    fn cluster_of(&self, workspace: &WorkspaceRow) -> Result<&Cluster, ClusterError> {
        self.clusters.get(&workspace.cluster)
    }
}
