//! Resident memory of the broker with all tenants, compared with an idle one.

use std::time::Duration;

use anyhow::Result;

use super::plan::{Measured, TenantPlan};
use super::testbed::TenantTestbed;
use crate::measure::figure::{Figure, Threshold};
use crate::measure::process_memory::rss_mib;

/// Time until the memory that a start needed is returned.
const SETTLE_TIME: Duration = Duration::from_secs(3);
/// MB (10^6 bytes) in a MiB (2^20 bytes).
const MB_PER_MIB: f64 = 1.048_576;

/// Restarts the broker and returns its memory in MB after it has looked at all tenants, for each
/// round.
///
/// # Errors
/// The broker does not start.
pub(super) async fn of_restarts(testbed: &TenantTestbed, plan: TenantPlan) -> Result<Vec<f64>> {
    let broker = testbed.world().broker();
    let mut sizes = Vec::with_capacity(plan.restarts);
    for _ in 0..plan.restarts {
        broker.stop().await?;
        broker.start().await?;
        // The first runs come once the watches have listed their objects.
        tokio::time::sleep(SETTLE_TIME).await;
        testbed.until_quiet().await?;
        tokio::time::sleep(SETTLE_TIME).await;
        sizes.push(rss_mib(testbed.broker_pid()?) * MB_PER_MIB);
    }
    Ok(sizes)
}

/// Compares the memory before the population with that after it.
pub(super) fn figure(testbed: &TenantTestbed, idle: Vec<f64>, populated: Vec<f64>) -> Measured {
    let size = testbed.size();
    let name = format!(
        "resident memory of the broker, {} tenants, {} namespaces",
        size.tenants, size.namespaces
    );
    let pairs: Vec<_> = populated.into_iter().zip(idle).collect();
    let figure = Figure::of_pairs(name, "MB", "idle", &pairs, Threshold::AddedAtMost(20.0));
    Measured { figures: figure.into_iter().collect(), ..Measured::default() }
}
