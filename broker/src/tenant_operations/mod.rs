//! Operations on tenants that people request: lists, membership, creation of namespaces, and for
//! administrators suspension, resumption, and writes of Tenants.
//!
//! The copy of the Tenants in [`TenantCache`] answers reads and chooses tenants. Rights are decided
//! on a Tenant that the API server returned just now (`current_tenant`). Decisions are recorded
//! before the cluster is changed, and the row of a tenant is not locked while a request to the
//! cluster is under way. [`TenantController`] finishes what a request leaves open.
//!
//! | file | responsibility |
//! |---|---|
//! | `tenant_reader` | callers, and tenants as they see them |
//! | `current_tenant` | the Tenant that decides on a right |
//! | `list`, `members` | reads |
//! | `join`, `wait_for_binding` | membership |
//! | `choose`, `create`, `creation_limiter`, `wait_for_deletion` | creation of namespaces, and access reviews of it |
//! | `wait_for_rbac`, `probe_access` | the wait until the rights in a new namespace are in force |
//! | `authorize` | authorization |
//! | `suspend` | suspension and resumption |
//! | `write` | creation, change and deletion of Tenants |

pub mod api;
mod authorize;
mod choose;
mod create;
mod creation_limiter;
mod current_tenant;
mod error;
mod join;
mod list;
mod members;
mod move_namespace;
mod move_plan;
mod probe_access;
mod revocation_steps;
mod suspend;
mod tenant_reader;
mod wait_for_binding;
mod wait_for_deletion;
mod wait_for_rbac;
mod write;

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use uuid::Uuid;

pub use error::TenantError;
pub use list::CallerTenants;
pub use members::TenantMembers;
pub use tenant_reader::TenantView;
pub use write::{DeleteOptions, TenantWriteError, WriteOptions};

use crate::{
    base::{clock::Clock, db::Db, telemetry::Metrics},
    cluster::Cluster,
    credential::TokenCache,
    identity::{self, RbacUserRules},
    tenant::{CachedTenant, TenantCache, TenantName, TenantSettings, Tenants},
    tenant_controller::TenantController,
    tier::Tiers,
    workspace::Workspaces,
};
use creation_limiter::CreationLimiter;

/// The dependencies of [`TenantOperations`].
#[derive(Debug)]
pub struct Dependencies {
    /// The database, for tenants, persons and audit rows.
    pub db: Db,
    /// The database pool for suspensions, which other requests cannot exhaust.
    pub authority: Db,
    /// Source of times.
    pub clock: Clock,
    /// Counts audited actions.
    pub metrics: Metrics,
    /// The cluster with the Tenants.
    pub cluster: Cluster,
    /// Creates namespaces, and carries out everything else.
    pub controller: Arc<TenantController>,
    /// The copy of the Tenants, for reads.
    pub cache: TenantCache,
    /// The memberships.
    pub workspaces: Workspaces,
    /// The tokens of memberships, for reviews of their rights.
    pub tokens: TokenCache,
    /// How people are named in Tenants.
    pub rbac_user_rules: RbacUserRules,
    /// Settings of tenants.
    pub settings: TenantSettings,
    /// Tier of the members of a tenant that names none.
    pub default_tier: String,
    /// The tiers that Tenants name.
    pub tiers: Tiers,
}

/// The service for tenants. Clones share everything.
#[derive(Clone, Debug)]
pub struct TenantOperations {
    db: Db,
    authority: Db,
    clock: Clock,
    metrics: Metrics,
    cluster: Cluster,
    controller: Arc<TenantController>,
    cache: TenantCache,
    workspaces: Workspaces,
    tokens: TokenCache,
    rbac_user_rules: Arc<RbacUserRules>,
    settings: Arc<TenantSettings>,
    default_tier: Arc<str>,
    tiers: Tiers,
    tenants: Tenants,
    creations: CreationLimiter,
    /// The rows on the database pool for suspensions.
    suspensions: Tenants,
}

impl TenantOperations {
    /// A service with these dependencies.
    pub fn new(dependencies: Dependencies) -> Self {
        let Dependencies { db, authority, clock, metrics, cluster, controller, cache, .. } =
            dependencies;
        Self {
            tenants: Tenants::new(db.clone(), clock.clone()),
            creations: CreationLimiter::default(),
            suspensions: Tenants::new(authority.clone(), clock.clone()),
            db,
            authority,
            clock,
            metrics,
            cluster,
            controller,
            cache,
            workspaces: dependencies.workspaces,
            tokens: dependencies.tokens,
            rbac_user_rules: Arc::new(dependencies.rbac_user_rules),
            settings: Arc::new(dependencies.settings),
            default_tier: dependencies.default_tier.into(),
            tiers: dependencies.tiers,
        }
    }

    /// The same service on the database pool for suspensions, for the gateway's looks after
    /// rights that ended. Requests cannot delay these by using up the connections.
    #[must_use]
    pub fn on_authority(&self) -> Self {
        Self {
            db: self.authority.clone(),
            tenants: self.suspensions.clone(),
            workspaces: self.workspaces.with_db(&self.authority),
            ..self.clone()
        }
    }

    /// A number that grows with each change of what a Tenant says, as far as this replica knows.
    pub fn revision(&self) -> u64 {
        self.cache.revision()
    }

    /// The Tenant of this name that counts, with what its status says.
    pub fn cached(&self, name: &TenantName) -> Option<Arc<CachedTenant>> {
        self.cache.tenant(name)
    }

    /// All Tenants that keep the rules of the definition, by name.
    pub fn all(&self) -> Vec<Arc<CachedTenant>> {
        self.cache.all()
    }

    /// The users whose user name or groups changed after this time, and when, both in milliseconds
    /// since 1970.
    ///
    /// # Errors
    /// The database failed.
    pub async fn rbac_users_changed_since(&self, since: i64) -> sqlx::Result<BTreeMap<Uuid, i64>> {
        Ok(identity::rbac_users_changed_since(&self.db, since).await?.into_iter().collect())
    }

    /// The tenant that a namespace of the cluster belongs to, by its label. Also that of a home.
    pub fn tenant_of_namespace(&self, namespace: &str) -> Option<TenantName> {
        self.cache.tenant_of_namespace(namespace)
    }

    /// Whether a namespace has the label of this tenant; `None` if it has that of none.
    pub fn is_namespace_of(&self, namespace: &str, tenant: &TenantName) -> Option<bool> {
        self.cache.is_namespace_of(namespace, tenant)
    }

    /// Time since which this process does not know changes of Tenants and their namespaces; `None`
    /// if it knows them.
    pub fn out_of_date_since(&self) -> Option<Instant> {
        self.cache.interrupted_since()
    }
}
