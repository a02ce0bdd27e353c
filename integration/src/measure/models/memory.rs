//! Resident memory of the broker: idle, compared with one without model services, and after many
//! large lists at once. Each value is of a freshly started broker.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::StatusCode;

use super::ModelPlan;
use super::objects::{inference_services, model};
use super::testbed::{MEMBERS, ModelTestbed};
use crate::measure::figure::{Figure, Threshold};
use crate::measure::gateway::caller::{Caller, CallerRequest};
use crate::measure::process_memory::{PeakMemory, rss_mib};

/// Time until the memory that a start, or the lists, needed is returned.
const SETTLE_TIME: Duration = Duration::from_secs(3);
/// Time until the broker has closed the connections to the API server that it no longer needs (a
/// minute), with their buffers.
const IDLE_CONNECTIONS_TIME: Duration = Duration::from_secs(65);
/// MB (10^6 bytes) in a MiB (2^20 bytes).
const MB_PER_MIB: f64 = 1.048_576;
/// Large lists at once.
const LISTS: usize = 64;
/// Models of such a list.
const MODELS: usize = 64;
/// Bytes of the specification of each of these models: together the list has 1 MiB.
const SPEC_BYTES: usize = 15 * 1024;
const NAMESPACE: &str = "measure-large-list";
/// Small requests before the lists; with one list they load code and fill pools.
const WARM_UP_REQUESTS: usize = 50;
/// Pause of a client that has to try again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Measures both.
///
/// # Errors
/// The broker does not start, or a request fails.
pub(super) async fn measure(testbed: &ModelTestbed, plan: ModelPlan) -> Result<Vec<Figure>> {
    testbed.create_namespace(NAMESPACE).await?;
    let models = (0..MODELS).map(|number| model(NAMESPACE, number, 1, SPEC_BYTES));
    testbed.create_models(NAMESPACE, &inference_services(NAMESPACE), models.collect()).await?;
    let (mut idle, mut peaks) = (Vec::new(), Vec::new());
    let (mut soon, mut after) = (Vec::new(), Vec::new());
    for _ in 0..plan.restarts {
        let without = of_restart(testbed, false).await?;
        let with = of_restart(testbed, true).await?;
        idle.push((with, without));
        let before = warmed_up(testbed).await?;
        let peak = PeakMemory::of(testbed.broker_pid()?)?;
        lists_at_once(testbed).await?;
        peaks.push((before + peak.grown_mib()? * MB_PER_MIB, before));
        tokio::time::sleep(SETTLE_TIME).await;
        soon.push((rss_mib(testbed.broker_pid()?) * MB_PER_MIB, before));
        tokio::time::sleep(IDLE_CONNECTIONS_TIME).await;
        after.push((rss_mib(testbed.broker_pid()?) * MB_PER_MIB, before));
    }
    let name = "resident memory of the broker, idle";
    let lists = format!("resident memory of the broker, {LISTS} lists of 1 MiB at once");
    let later = IDLE_CONNECTIONS_TIME + SETTLE_TIME;
    let baseline = "without model services";
    let figures = [
        Figure::of_pairs(name, "MB", baseline, &idle, Threshold::AddedAtMost(0.5)),
        Figure::of_pairs(
            format!("{name}: aim"),
            "MB",
            baseline,
            &idle,
            Threshold::ValueBelow(20.0),
        ),
        Figure::of_pairs(format!("{lists}: peak"), "MB", "before", &peaks, Threshold::None),
        Figure::of_pairs(
            format!("{lists}: {SETTLE_TIME:?} after"),
            "MB",
            "before",
            &soon,
            Threshold::None,
        ),
        Figure::of_pairs(
            format!("{lists}: {later:?} after"),
            "MB",
            "before",
            &after,
            Threshold::AddedAtMost(8.0),
        ),
    ];
    Ok(figures.into_iter().flatten().collect())
}

/// Restarts the broker with or without model services, and returns its memory in MB.
async fn of_restart(testbed: &ModelTestbed, is_enabled: bool) -> Result<f64> {
    let broker = testbed.world().broker();
    broker.set("model_services.enabled", is_enabled);
    broker.stop().await?;
    broker.start().await?;
    tokio::time::sleep(SETTLE_TIME).await;
    Ok(rss_mib(testbed.broker_pid()?) * MB_PER_MIB)
}

/// The memory in MB after some requests.
async fn warmed_up(testbed: &ModelTestbed) -> Result<f64> {
    let mut caller = Caller::connect(&testbed.services(MEMBERS[0])?, false).await?;
    for _ in 0..WARM_UP_REQUESTS {
        caller.succeed(&CallerRequest::get("/user")).await?;
    }
    caller.succeed(&CallerRequest::get(list_path())).await?;
    drop(caller);
    tokio::time::sleep(SETTLE_TIME).await;
    Ok(rss_mib(testbed.broker_pid()?) * MB_PER_MIB)
}

fn list_path() -> String {
    format!("/aaa/models?namespace={NAMESPACE}")
}

/// Requests all lists at once, with several tokens because each has a share of the memory. A client
/// whose list has no room in it now tries again.
async fn lists_at_once(testbed: &ModelTestbed) -> Result<()> {
    let path = list_path();
    let mut callers = Vec::with_capacity(LISTS);
    for number in 0..LISTS {
        let route = testbed.services(MEMBERS[number % MEMBERS.len()])?;
        callers.push(Caller::connect(&route, false).await?);
    }
    let requests: Vec<_> = callers
        .into_iter()
        .map(|mut caller| {
            let path = path.clone();
            tokio::spawn(async move {
                loop {
                    let (status, _) = caller.try_get(&path).await?;
                    if status != StatusCode::TOO_MANY_REQUESTS {
                        ensure!(status == StatusCode::OK, "a list was answered {status}");
                        return Ok(());
                    }
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            })
        })
        .collect();
    for request in requests {
        request.await.context("a caller panicked")??;
    }
    Ok(())
}
