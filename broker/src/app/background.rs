//! Background tasks: loops that run at an interval until the broker stops.

use std::{sync::Arc, time::Duration};

use super::loops::{LoopEnded, Loops};
use crate::{
    audit::{self, AuditKeys, chain::Sealer},
    base::{
        clock::{Clock, ticks},
        db::Db,
        error_chain,
        reload::{Reloaded, Reloader},
    },
    config::Config,
    credential::Credentials,
    issuer::Issuer,
    tenant_controller::TenantController,
    tier_role,
    workspace::Workspaces,
};

/// Interval at which expired audit rows are deleted.
const RETENTION_INTERVAL: Duration = Duration::from_mins(1);

/// The parts of the broker that the background tasks use.
#[derive(Debug)]
pub(super) struct Dependencies {
    /// Compares the objects of workspaces with the desired state.
    pub workspaces: Workspaces,
    /// Finishes interrupted work of workspaces, on connections of the database that other requests
    /// cannot exhaust.
    pub unfinished: Workspaces,
    /// Deletes expired Secrets, on the same connections.
    pub credentials: Credentials,
    /// Deletes expired rows, and checks the sessions of browsers at the providers.
    pub issuer: Issuer,
    /// Seals audit rows.
    pub sealer: Sealer,
    /// Signs the anchor that replaces deleted audit rows, and verifies checkpoints.
    pub audit_keys: Reloaded<AuditKeys>,
    /// The database with the audit trail.
    pub db: Db,
    /// The clock for the age of audit rows.
    pub clock: Clock,
    /// Checks the tiers' ClusterRoles.
    pub tier_roles: tier_role::RoleWatcher,
    /// Reads changed files again.
    pub reloader: Reloader,
    /// Reconciles Tenants; `None` if the cluster has none (`tenants.enabled`).
    pub tenant_controller: Option<Arc<TenantController>>,
}

/// The running loops. They are aborted when the value is dropped.
#[derive(Debug)]
pub(super) struct Background {
    loops: Loops,
    tenant_controller: Option<Arc<TenantController>>,
    sealer: Sealer,
}

impl Background {
    /// Starts all loops.
    pub(super) fn start(dependencies: Dependencies, config: &Config) -> Self {
        let Dependencies {
            workspaces,
            unfinished,
            credentials,
            issuer,
            sealer,
            audit_keys,
            db,
            clock,
            tier_roles,
            reloader,
            tenant_controller,
        } = dependencies;
        let sweep = Duration::from_secs(config.sweep_seconds.into());
        let mut loops = Loops::default();
        let ledger = credentials.clone();
        loops.spawn("ledger", async move { ledger.writer_ended().await });
        loops.spawn("sweep of workspaces", sweep_loop(unfinished, sweep));
        loops.spawn("sweep of token Secrets", secret_loop(credentials, sweep));
        loops.spawn("deletion of expired rows", purge_loop(issuer.clone(), sweep));
        loops.spawn("sealing of audit rows", sealer.clone().run());
        // 0 keeps all rows.
        if let days @ 1.. = config.audit.retention_days {
            loops.spawn("deletion of audit rows", retention_loop(db, clock, audit_keys, days));
        }
        loops.spawn("check of browser sessions", check_loop(issuer, sweep));
        loops.spawn("check of tiers' roles", tier_roles.run());
        loops.spawn("drift detection", drift_loop(workspaces, config.drift_seconds));
        loops.spawn("reading of changed files", reloader.run());
        if let Some(controller) = tenant_controller.clone() {
            loops.spawn("reconciliation of tenants", controller.run());
        }
        Self { loops, tenant_controller, sealer }
    }

    /// Waits until one of the loops ends by itself, which only a panic causes.
    pub(super) async fn ended(&mut self) -> LoopEnded {
        self.loops.ended().await
    }

    /// Stops all loops, and seals the audit rows of the last requests.
    pub(super) async fn stop(mut self) {
        if let Some(controller) = &self.tenant_controller {
            controller.finish_runs().await;
        }
        self.loops.shutdown().await;
        // If this fails, another replica or the next start seals them.
        if let Err(error) = self.sealer.seal_all().await {
            tracing::warn!(
                error = error_chain(&error),
                "sealing the last audit rows failed; the next start seals them"
            );
        }
    }
}

/// Finishes interrupted work of workspaces.
async fn sweep_loop(workspaces: Workspaces, interval: Duration) {
    let mut ticks = ticks(interval);
    loop {
        ticks.tick().await;
        if let Err(error) = workspaces.sweep().await {
            tracing::error!(error = error_chain(&error), "workspace sweep failed");
        }
        if let Err(error) = workspaces.record_gauges().await {
            tracing::error!(error = error_chain(&error), "counting workspaces failed");
        }
    }
}

/// Deletes expired Secrets. It is a loop of its own, so that no suspension waits for it.
async fn secret_loop(credentials: Credentials, interval: Duration) {
    let mut ticks = ticks(interval);
    loop {
        ticks.tick().await;
        if let Err(error) = credentials.sweep().await {
            tracing::error!(error = error_chain(&error), "sweep of expired token Secrets failed");
        }
    }
}

/// Deletes expired rows of the issuer. It is a loop of its own, so that the sweep does not wait for
/// it.
async fn purge_loop(issuer: Issuer, interval: Duration) {
    let mut ticks = ticks(interval);
    loop {
        ticks.tick().await;
        if let Err(error) = issuer.purge().await {
            tracing::error!(error = error_chain(&error), "deleting expired rows failed");
        }
    }
}

/// Detects objects of workspaces that were deleted or changed by others.
async fn drift_loop(workspaces: Workspaces, seconds: u32) {
    let mut ticks = ticks(Duration::from_secs(seconds.into()));
    loop {
        ticks.tick().await;
        if let Err(error) = workspaces.detect_drift(seconds).await {
            tracing::error!(error = error_chain(&error), "drift detection failed");
        }
    }
}

/// Checks browsers' sessions at their providers. It is a loop of its own, because a provider may be
/// slow.
async fn check_loop(issuer: Issuer, interval: Duration) {
    let mut ticks = ticks(interval);
    loop {
        ticks.tick().await;
        if let Err(error) = issuer.check_browsers().await {
            tracing::error!(error = error_chain(&error), "checking browser sessions failed");
        }
    }
}

/// Deletes audit rows that are older than the retention of this number of days.
async fn retention_loop(db: Db, clock: Clock, keys: Reloaded<AuditKeys>, days: u32) {
    let mut ticks = ticks(RETENTION_INTERVAL);
    loop {
        ticks.tick().await;
        let keys = keys.get();
        match audit::prune(&db, &clock, &keys.signing, &keys.known, days).await {
            Ok(None) => {}
            // A round is limited, so there may be more rows.
            Ok(Some(sequence)) => {
                tracing::info!(up_to_sequence = sequence, days, "old audit rows deleted");
                ticks.reset_immediately();
            }
            Err(error) => {
                tracing::error!(error = error_chain(&error), "deleting old audit rows failed");
            }
        }
    }
}
