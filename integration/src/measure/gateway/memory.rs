//! Resident memory of the gateway's broker and of `kubectl proxy`: idle, and for each idle watch.
//!
//! Each value is of a freshly started process, so that the memory of an earlier load is neither
//! counted nor hides the current need.

use std::time::Duration;

use anyhow::{Context, Result};

use super::caller::Caller;
use super::route::{Route, RouteName};
use super::testbed::GatewayTestbed;
use crate::broker::Broker;
use crate::measure::figure::{Figure, Threshold};
use crate::measure::process_memory::rss_mib;

/// Time until the memory that a start, or opening the watches, needed is returned.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// Number of requests before the watches, which load code, tables and pools.
const WARM_UP_REQUESTS: usize = 200;
/// MB (10^6 bytes) in a MiB (2^20 bytes).
const MB_PER_MIB: f64 = 1.048_576;

/// Measures both figures.
pub(super) async fn figures(
    testbed: &GatewayTestbed,
    watches: usize,
    rounds: usize,
) -> Result<Vec<Figure>> {
    let others: Vec<_> = testbed.other_builds().collect();
    let mut baselines = vec![Pairs::new("kubectl proxy".to_owned())];
    baselines.extend(others.iter().map(|(_, route)| Pairs::new(route.name.to_string())));
    for _ in 0..rounds {
        let gateway =
            broker_memory(testbed, testbed.world().broker(), testbed.gateway(), watches).await?;
        baselines[0].push(&gateway, &kubectl_proxy_memory(testbed, watches).await?);
        for (pairs, (broker, route)) in baselines[1..].iter_mut().zip(&others) {
            pairs.push(&gateway, &broker_memory(testbed, broker, route, watches).await?);
        }
    }
    let figures = baselines.iter().enumerate().flat_map(|(index, baseline)| {
        let threshold = |threshold| if index == 0 { threshold } else { Threshold::None };
        [
            Figure::of_pairs(
                "resident memory of the gateway's broker, idle",
                "MB",
                &baseline.name,
                &baseline.idle,
                threshold(Threshold::ValueBelow(20.0)),
            ),
            Figure::of_pairs(
                format!("resident memory for each of {watches} idle watches"),
                "KiB",
                &baseline.name,
                &baseline.watch,
                threshold(Threshold::AtMost(0.5)),
            ),
        ]
    });
    Ok(figures.flatten().collect())
}

/// The memory of the gateway's broker, paired with that of another process.
struct Pairs {
    name: String,
    /// MB.
    idle: Vec<(f64, f64)>,
    /// KiB for each watch.
    watch: Vec<(f64, f64)>,
}

impl Pairs {
    fn new(name: String) -> Self {
        Self { name, idle: Vec::new(), watch: Vec::new() }
    }

    fn push(&mut self, gateway: &MemoryUse, baseline: &MemoryUse) {
        self.idle.push((gateway.idle * MB_PER_MIB, baseline.idle * MB_PER_MIB));
        self.watch.push((gateway.watch * 1024.0, baseline.watch * 1024.0));
    }
}

/// Memory in MiB.
struct MemoryUse {
    idle: f64,
    watch: f64,
}

async fn broker_memory(
    testbed: &GatewayTestbed,
    broker: &Broker,
    route: &Route,
    watches: usize,
) -> Result<MemoryUse> {
    broker.stop().await?;
    broker.start().await?;
    let pid = broker.pid().context("the broker has stopped")?;
    measure_memory(testbed, route, pid, watches).await
}

async fn kubectl_proxy_memory(testbed: &GatewayTestbed, watches: usize) -> Result<MemoryUse> {
    let running = testbed.kubectl_proxy().start().await?;
    let authority = testbed.world().cluster().authority();
    let route = Route::new(RouteName::KubectlProxy, &running.url, authority.certificate())?;
    measure_memory(testbed, &route, running.pid(), watches).await
}

async fn measure_memory(
    testbed: &GatewayTestbed,
    route: &Route,
    pid: u32,
    watches: usize,
) -> Result<MemoryUse> {
    tokio::time::sleep(SETTLE_TIME).await;
    let idle = rss_mib(pid);
    let mut caller = Caller::connect(route, false).await?;
    for _ in 0..WARM_UP_REQUESTS {
        caller.get(&testbed.small_path()).await?;
    }
    tokio::time::sleep(SETTLE_TIME).await;
    let before = rss_mib(pid);
    let mut open = Vec::with_capacity(watches);
    for _ in 0..watches {
        let mut caller = Caller::connect(route, true).await?;
        let mut body = caller.open(&testbed.watch_path()).await?.into_body();
        // The first event is the object's current state: the watch works.
        caller.next_chunk(&mut body).await?.context("a watch ended at once")?;
        open.push((caller, body));
    }
    tokio::time::sleep(SETTLE_TIME).await;
    let count = f64::from(u32::try_from(watches).context("count the watches")?);
    let watch = (rss_mib(pid) - before) / count;
    drop(open);
    Ok(MemoryUse { idle, watch })
}
