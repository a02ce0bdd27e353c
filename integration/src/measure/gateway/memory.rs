//! Resident memory of the gateway's broker and of `kubectl proxy`: idle, and for each idle watch.
//!
//! Each value is of a freshly started process, so that the memory of an earlier load is neither
//! counted nor hides the current need.

use std::time::Duration;

use anyhow::{Context, Result};

use super::caller::Caller;
use super::route::{Route, RouteName};
use super::testbed::GatewayTestbed;
use crate::measure::figure::{Figure, Promise};
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
    let (mut idle, mut watch) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let gateway = gateway_memory(testbed, watches).await?;
        let kubectl = kubectl_proxy_memory(testbed, watches).await?;
        idle.push((gateway.idle * MB_PER_MIB, kubectl.idle * MB_PER_MIB));
        watch.push((gateway.watch * 1024.0, kubectl.watch * 1024.0));
    }
    let figures = [
        Figure::of_pairs(
            "resident memory of the gateway's broker, idle",
            "MB",
            "kubectl proxy",
            &idle,
            Promise::ValueBelow(20.0),
        ),
        Figure::of_pairs(
            format!("resident memory for each of {watches} idle watches"),
            "KiB",
            "kubectl proxy",
            &watch,
            Promise::AtMost(0.5),
        ),
    ];
    Ok(figures.into_iter().flatten().collect())
}

/// Memory in MiB.
struct MemoryUse {
    idle: f64,
    watch: f64,
}

async fn gateway_memory(testbed: &GatewayTestbed, watches: usize) -> Result<MemoryUse> {
    let broker = testbed.world().broker();
    broker.stop().await?;
    broker.start().await?;
    let pid = broker.pid().context("the broker has stopped")?;
    measure_memory(testbed, testbed.gateway(), pid, watches).await
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
