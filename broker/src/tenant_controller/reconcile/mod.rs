//! The workers, and one run on a tenant.

mod cleanup;
mod close;
mod converge;
mod identify;
mod keep_suspended;
mod lease;
mod lost_rows;
pub(super) mod members;
mod report;
mod resume;
mod revocation_attempt;
pub(super) mod revocation_progress;
mod revoke;
mod revoke_all;
pub(super) mod runs;
pub(super) mod suspend;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::Instrument as _;

use self::identify::{RACE_INTERVAL, TenantLookup};
use super::{
    IN_FLIGHT_TIMEOUT, TenantController,
    error::ReconcileError,
    queue::{Run, RunKind},
};
use crate::{
    base::error_chain,
    tenant::{TenantName, TenantStatus},
};

/// How long a run may take. What it did until then is kept, and the next run does the rest. This and
/// [`IN_FLIGHT_TIMEOUT`] are together shorter than the lease.
const RUN_TIMEOUT: Duration = Duration::from_secs(50);
/// Pause before another attempt on a tenant that another replica works on.
const LEASE_RETRY: Duration = Duration::from_secs(2);

/// Values of the label `outcome` of runs.
pub const RECONCILE_OUTCOMES: [&str; 3] = ["done", "again", "failed"];

impl TenantController {
    /// Reconciles one tenant of the queue after the other, until the broker stops.
    pub(super) async fn work(self: Arc<Self>) {
        loop {
            let name = self.queue.next(RunKind::Ordinary).await;
            let _run = self.runs.begin().await;
            let span = tracing::debug_span!("reconcile", tenant = %name);
            let began = Instant::now();
            let result = self.run_with_timeout(&name).instrument(span).await;
            self.queue.finish(&name, result);
            let [done, again, failed] = RECONCILE_OUTCOMES;
            let outcome = match result {
                Run::Done => done,
                Run::Again(_) => again,
                Run::Failed => failed,
            };
            self.metrics.tenant_reconciled(outcome, began.elapsed());
            self.metrics.set_tenant_queue(self.queue.len());
        }
    }

    /// Revokes the rights in one tenant after the other that is being suspended.
    pub(super) async fn enforce_suspensions(self: Arc<Self>) {
        loop {
            let name = self.queue.next(RunKind::Suspension).await;
            let _run = self.runs.begin().await;
            let span = tracing::debug_span!("suspension", tenant = %name);
            let enforced = Box::pin(self.enforce(&name)).instrument(span);
            let error = match tokio::time::timeout(RUN_TIMEOUT, enforced).await {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(error_chain(&error)),
                Err(_) => Some(format!("not done in {RUN_TIMEOUT:?}")),
            };
            if let Some(error) = error {
                tracing::warn!(
                    tenant = %name, error,
                    "revoking the rights in a suspended tenant failed; it is tried again"
                );
            }
            self.queue.finish_suspension(&name);
        }
    }

    async fn run_with_timeout(&self, name: &TenantName) -> Run {
        let began = Instant::now();
        let result = tokio::time::timeout(RUN_TIMEOUT, Box::pin(self.reconcile(name))).await;
        let error = match result {
            Ok(Ok(result)) => return result,
            Ok(Err(error)) => error_chain(&error),
            Err(_) => {
                // Amounts of quotas are divided by what was read, so no request may be under way.
                // A suspension does not wait for that, because it divides none.
                tokio::select! {
                    () = tokio::time::sleep(IN_FLIGHT_TIMEOUT) => {}
                    () = self.wait_until_status(name, |status| status == TenantStatus::Suspending) => {}
                }
                format!("not done in {RUN_TIMEOUT:?}")
            }
        };
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(tenant = %name, error, duration_ms, "reconciling a tenant failed");
        Run::Failed
    }

    async fn reconcile(&self, name: &TenantName) -> Result<Run, ReconcileError> {
        // Before the objects are read, because a suspension follows from the row alone.
        let enforced = Box::pin(self.enforce(name)).await?;
        let end = |run| enforced.as_ref().map_or(run, |enforced| enforced.end(run));
        if enforced.as_ref().is_some_and(|enforced| !enforced.held_lease) {
            return Ok(end(Run::Again(LEASE_RETRY)));
        }
        let row = match Box::pin(self.identify(name)).await? {
            TenantLookup::Tenant(row) => row,
            TenantLookup::Nothing(result) => return Ok(end(result)),
        };
        let Some(lease) = self.lease(&row).await? else { return Ok(end(Run::Again(LEASE_RETRY))) };
        let result = Box::pin(self.converge(row.id, enforced.as_ref())).await;
        self.release(lease).await;
        match result? {
            Some(run) => Ok(end(run)),
            // The watch has not passed its deletion yet.
            None => match Box::pin(self.identify_live(name)).await? {
                TenantLookup::Tenant(_) => Ok(end(Run::Again(RACE_INTERVAL))),
                TenantLookup::Nothing(run) => Ok(end(run)),
            },
        }
    }
}
