//! Fixture of unit tests: a controller on a database, with a cluster that refuses connections.

use std::{collections::BTreeMap, time::Duration};

use kube::api::DynamicObject;
use uuid::Uuid;

use super::{Dependencies, TenantController};
use crate::{
    base::telemetry::Metrics,
    cluster::WatchEvent,
    identity::RbacUserRules,
    tenant::{
        ApiGroup, MoveState, NamespaceMove, NamespaceReflector, Observed, TenantCache,
        TenantReflector, TenantRow, TenantSettings,
    },
    testing::{On, Storage},
    tier::Tiers,
    workspace::MembershipRequest,
};

impl TenantController {
    /// A controller on this database that watches nothing, with a cluster that refuses connections.
    pub(super) async fn for_tests(storage: &Storage) -> Self {
        Self::new(Dependencies {
            db: storage.db.clone(),
            requests: storage.db.clone(),
            clock: storage.clock.clone(),
            cluster: storage.no_cluster().await,
            cache: TenantCache::default(),
            workspaces: storage.workspaces().await,
            rbac_user_rules: RbacUserRules::default(),
            settings: TenantSettings::default(),
            tiers: Tiers::new(BTreeMap::new()),
            metrics: Metrics::default(),
            resync_interval: Duration::from_mins(1),
        })
    }
}

/// The move of the namespace `solar-a`, which was no tenant's, that an administrator announced.
pub(super) fn announced_move() -> NamespaceMove {
    NamespaceMove {
        namespace: "solar-a".to_owned(),
        namespace_uid: "n-1".to_owned(),
        from_tenant: None,
        to_tenant: Uuid::nil(),
        requested_by: Uuid::nil(),
        state: MoveState::Announced,
        expires_at: 0,
    }
}

pub(super) struct Fixture {
    pub(super) controller: TenantController,
    pub(super) storage: Storage,
}

impl Fixture {
    pub(super) async fn new(on: On) -> Self {
        let storage = Storage::new(on).await;
        let controller = TenantController::for_tests(&storage).await;
        Self { controller, storage }
    }

    /// Passes complete lists to the cache: these Tenants, and no namespaces.
    pub(super) fn list_tenants(&self, tenants: impl IntoIterator<Item = DynamicObject>) {
        let cache = &self.controller.cache;
        let mut ours = TenantReflector::new(cache.clone(), ApiGroup::TenantBroker);
        ours.apply_event(&WatchEvent::Init);
        for tenant in tenants {
            ours.apply_event(&WatchEvent::Apply(tenant));
        }
        ours.apply_event(&WatchEvent::InitDone);
        NamespaceReflector::new(cache.clone()).apply_event(&WatchEvent::InitDone);
        TenantReflector::new(cache.clone(), ApiGroup::Capsule).not_served();
    }

    /// The row of a new Tenant of this name.
    pub(super) async fn tenant(&self, name: &str) -> TenantRow {
        let (name, group) = (name.parse().unwrap(), ApiGroup::TenantBroker);
        let uid = self.storage.clock.random_id().to_string();
        match self.controller.tenants.observe(&name, group, &uid).await.unwrap() {
            Observed::Current(row) | Observed::Recreated(row) => row,
            Observed::NameTaken(row) => panic!("{row:?}"),
        }
    }

    /// A new user who joined a tenant. The cluster did not create the ServiceAccount.
    pub(super) async fn member(&self, tenant: &TenantRow) -> Uuid {
        let user = self.storage.user().await;
        let request = MembershipRequest { tenant: tenant.clone(), user, tier: "basic".to_owned() };
        self.controller.workspaces.add_member(&request).await.unwrap_err();
        user
    }
}
