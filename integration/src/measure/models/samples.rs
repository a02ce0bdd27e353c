//! Samples of an operation and of its baseline.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::ModelPlan;
use super::testbed::ModelTestbed;
use crate::measure::alternation::alternate;
use crate::measure::figure::{Figure, Threshold};
use crate::measure::gateway::sample::{RunningSample, Sample};

/// Operations that find connections and caches cold.
const WARM_UP_OPERATIONS: usize = 10;

/// Repeats an operation of the broker and its baseline in turn.
pub(super) async fn pairs(
    testbed: &ModelTestbed,
    plan: ModelPlan,
    mut value: impl AsyncFnMut() -> Result<()>,
    mut baseline: impl AsyncFnMut() -> Result<()>,
) -> Result<Vec<(Sample, Sample)>> {
    testbed.until_quiet().await?;
    for _ in 0..WARM_UP_OPERATIONS {
        value().await?;
        baseline().await?;
    }
    let (broker, server) = (testbed.broker_pid()?, testbed.server());
    alternate(
        plan.rounds,
        async || sample(broker, server, plan.length, &mut value).await,
        async || sample(broker, server, plan.length, &mut baseline).await,
    )
    .await
}

async fn sample(
    broker: u32,
    server: u32,
    length: Duration,
    operation: &mut impl AsyncFnMut() -> Result<()>,
) -> Result<Sample> {
    let mut took = Vec::with_capacity(4096);
    let running = RunningSample::start(&[broker], server)?;
    let mut began = Instant::now();
    let end = began + length;
    while began < end {
        operation().await?;
        let now = Instant::now();
        took.push(now - began);
        began = now;
    }
    running.end(took)
}

/// The figure of one value of the samples, compared with that of the baseline's samples.
pub(super) fn compared(
    name: impl Into<String>,
    unit: &'static str,
    baseline: &str,
    pairs: &[(Sample, Sample)],
    pick: fn(&Sample) -> f64,
    threshold: Threshold,
) -> Option<Figure> {
    let pairs: Vec<_> =
        pairs.iter().map(|(value, baseline)| (pick(value), pick(baseline))).collect();
    Figure::of_pairs(name, unit, baseline, &pairs, threshold)
}

/// The CPU time of the broker for one operation, compared with that of the API server for it.
pub(super) fn broker_cpu(
    name: &str,
    pairs: &[(Sample, Sample)],
    threshold: Threshold,
) -> Option<Figure> {
    let of_broker: Vec<_> =
        pairs.iter().map(|(value, _)| (value.proxy_cpu / 1e3, value.server_cpu / 1e3)).collect();
    let name = format!("{name}: CPU of the broker for one");
    Figure::of_pairs(name, "ms", "CPU of the API server", &of_broker, threshold)
}
