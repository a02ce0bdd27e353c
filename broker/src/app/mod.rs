//! The composition root: the only module that names every other one.

mod api;
mod background;
mod backup;
mod database;
mod loops;
mod metrics;
mod operator;
mod serve;
mod services;
mod start;

use std::sync::Arc;

use self::api::Api;
pub use self::{
    api::{document, model_services_document},
    backup::{back_up, restore},
    database::open_database,
    metrics::metrics_reference,
};
use crate::{
    audit::{AuditKeys, chain::Sealer},
    base::{
        clock::Clock,
        db::ConnectionPools,
        reload::{Reloaded, Reloader},
        telemetry::Metrics,
    },
    config::Config,
    credential::Credentials,
    gateway::Gateway,
    identity::Identity,
    install::PolicyWatcher,
    issuer::Issuer,
    model_services::ModelServices,
    tenant_controller::TenantController,
    tenant_operations::TenantOperations,
    tier_role,
    workspace::{NotificationReceiver, Workspaces},
};

/// The broker with all its parts.
pub struct App {
    config: Config,
    pools: ConnectionPools,
    issuer: Issuer,
    workspaces: Workspaces,
    credentials: Credentials,
    api: Api,
    identity: Identity,
    clock: Clock,
    metrics: Metrics,
    sealer: Sealer,
    audit_keys: Reloaded<AuditKeys>,
    reloader: Reloader,
    watch: PolicyWatcher,
    tier_roles: tier_role::RoleWatcher,
    /// `None` without `tenants.enabled`.
    tenant_controller: Option<Arc<TenantController>>,
    /// `None` without `tenants.enabled`.
    tenants: Option<TenantOperations>,
    gateway: Gateway,
    model_services: Option<ModelServices>,
    notifications: NotificationReceiver,
    /// Whether the cluster's admission policies were checked at the start.
    policies_checked: bool,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("config", &self.config).finish_non_exhaustive()
    }
}
