//! Resident memory of the gateway's broker and of `kubectl proxy`: idle, and for each idle watch.
//!
//! Each value is of a process that was just started, so that nothing that an earlier load needed is
//! counted, or hides what is needed now.

use std::time::Duration;

use anyhow::{Context, Result};

use super::caller::Caller;
use super::place::Place;
use super::way::{Name, Way};
use crate::measure::figure::{Figure, Promise};
use crate::measure::process_memory::rss_mib;

/// What starting needed is given back within a moment, and what opening watches needed too.
const SETTLE: Duration = Duration::from_secs(1);
/// Requests before the watches: code, tables and pools are there then.
const WARM_UP: usize = 200;
/// Of 1 MiB (2^20 bytes), in MB (10^6).
const MB: f64 = 1.048_576;

/// Both figures.
pub(super) async fn figures(place: &Place, watches: usize, rounds: usize) -> Result<Vec<Figure>> {
    let (mut idle, mut watch) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let gateway = of_gateway(place, watches).await?;
        let kubectl = of_kubectl_proxy(place, watches).await?;
        idle.push((gateway.idle * MB, kubectl.idle * MB));
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

/// In MiB.
struct Needed {
    idle: f64,
    watch: f64,
}

async fn of_gateway(place: &Place, watches: usize) -> Result<Needed> {
    let broker = place.world().broker();
    broker.stop().await?;
    broker.start().await?;
    let pid = broker.pid().context("the broker runs no more")?;
    needed(place, place.gateway(), pid, watches).await
}

async fn of_kubectl_proxy(place: &Place, watches: usize) -> Result<Needed> {
    let running = place.kubectl_proxy().start().await?;
    let authority = place.world().cluster().authority();
    let way = Way::new(Name::KubectlProxy, &running.url, authority.certificate())?;
    needed(place, &way, running.pid(), watches).await
}

async fn needed(place: &Place, way: &Way, pid: u32, watches: usize) -> Result<Needed> {
    tokio::time::sleep(SETTLE).await;
    let idle = rss_mib(pid);
    let mut caller = Caller::connect(way, false).await?;
    for _ in 0..WARM_UP {
        caller.get(&place.small_path()).await?;
    }
    tokio::time::sleep(SETTLE).await;
    let before = rss_mib(pid);
    let mut open = Vec::with_capacity(watches);
    for _ in 0..watches {
        let mut caller = Caller::connect(way, true).await?;
        let mut body = caller.begin(&place.watch_path()).await?.into_body();
        // The object as it is now: the watch is at work.
        caller.piece(&mut body).await?.context("a watch ended at once")?;
        open.push((caller, body));
    }
    tokio::time::sleep(SETTLE).await;
    let count = f64::from(u32::try_from(watches).context("count the watches")?);
    let watch = (rss_mib(pid) - before) / count;
    drop(open);
    Ok(Needed { idle, watch })
}
