//! A run of the broker on a tenant with many namespaces, with nothing to do and with a new owner.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::objects::{TENANTS, owner, role_bindings, role_bindings_of_tenant, user};
use super::plan::{Measured, TenantPlan};
use super::population::{BIG, BIG_ROLES, email};
use super::testbed::{Reconciles, TenantTestbed};
use crate::measure::figure::{Figure, Threshold};
use crate::measure::process_time::cpu_ms;
use crate::measure::raw::{RawApi, ms};
use crate::probe::{self, Probe};

/// Requests for one tenant that the broker has in flight.
const IN_FLIGHT: usize = 8;
/// Time limit of a run.
const RUN_TIMEOUT: Duration = Duration::from_mins(3);
/// Pause between two looks at the metrics, which cost the broker CPU time.
const METRICS_INTERVAL: Duration = Duration::from_millis(500);
/// Pause between two looks at the status of the Tenant.
const STATUS_INTERVAL: Duration = Duration::from_millis(10);

/// Measures runs with nothing to do, and runs that add an owner.
///
/// # Errors
/// A request fails, or a run does not end.
pub(super) async fn measure(testbed: &TenantTestbed, plan: TenantPlan) -> Result<Measured> {
    let namespaces = testbed.size().namespaces / 5;
    let name = format!("reconcile of {namespaces} namespaces x {} bindings", BIG_ROLES.len());
    let (mut times, mut cpu) = (Vec::new(), Vec::new());
    for round in 0..=plan.runs {
        let run = idle_run(testbed, round).await?;
        let path = role_bindings_of_tenant(BIG);
        let listed = testbed.broker().succeed(Method::GET, &path, None).await?;
        if round > 0 {
            times.push((run.time, ms(listed.took)));
            cpu.push((run.cpu, run.idle_cpu));
        }
    }
    let mut added = Vec::with_capacity(plan.owners);
    for round in 0..plan.owners {
        let baseline = raw_updates(testbed, round).await?;
        added.push((add_owner(testbed).await?, baseline));
        set_owners(testbed, false).await?;
        until_observed(testbed).await?;
    }
    let figures = [
        Figure::of_pairs(
            format!("{name}, nothing to do"),
            "ms",
            "one list of the bindings",
            &times,
            Threshold::AtMost(2.0),
        ),
        Figure::of_pairs(
            format!("{name}, nothing to do: CPU of the broker"),
            "ms",
            "idle, as long",
            &cpu,
            Threshold::AddedAtMost(100.0),
        ),
        Figure::of_pairs(
            format!("{name}, one owner added"),
            "ms",
            format!("{namespaces} raw PUTs"),
            &added,
            Threshold::AtMost(1.2),
        ),
    ];
    Ok(Measured { figures: figures.into_iter().flatten().collect(), ..Measured::default() })
}

/// A run with nothing to do.
struct IdleRun {
    /// In ms, as the broker measures it.
    time: f64,
    /// CPU time of the broker from the event to the end of the run in ms.
    cpu: f64,
    /// The same without a run, for as long.
    idle_cpu: f64,
}

async fn idle_run(testbed: &TenantTestbed, round: usize) -> Result<IdleRun> {
    testbed.until_quiet().await?;
    let pid = testbed.broker_pid()?;
    let before = testbed.reconciles().await?;
    let (cpu_before, began) = (cpu_ms(pid)?, Instant::now());
    testbed.touch_big_tenant(round).await?;
    let after = until_run(testbed, before).await?;
    let (cpu, length) = (cpu_ms(pid)? - cpu_before, began.elapsed());
    testbed.until_quiet().await?;
    let idle_before = cpu_ms(pid)?;
    let end = Instant::now() + length;
    while Instant::now() < end {
        tokio::time::sleep(METRICS_INTERVAL).await;
        testbed.reconciles().await?;
    }
    let runs = after.count - before.count;
    ensure!(runs == 1, "the event caused {runs} runs");
    let time = (after.seconds - before.seconds) * 1e3;
    Ok(IdleRun { time, cpu, idle_cpu: cpu_ms(pid)? - idle_before })
}

async fn until_run(testbed: &TenantTestbed, before: Reconciles) -> Result<Reconciles> {
    probe::until("a run of the broker", RUN_TIMEOUT, || async {
        tokio::time::sleep(METRICS_INTERVAL).await;
        let now = testbed.reconciles().await?;
        let has_run = now.count > before.count;
        Ok(if has_run { Probe::Ready(now) } else { Probe::NotYet("none".to_owned()) })
    })
    .await
}

/// Adds an owner with one role, and returns the time until the status says that this is done, in ms.
async fn add_owner(testbed: &TenantTestbed) -> Result<f64> {
    testbed.until_quiet().await?;
    let began = Instant::now();
    set_owners(testbed, true).await?;
    until_observed(testbed).await?;
    let took = ms(began.elapsed());
    testbed.until_quiet().await?;
    Ok(took)
}

async fn set_owners(testbed: &TenantTestbed, with_new: bool) -> Result<()> {
    let mut owners = vec![owner(&user(&email("big")), &BIG_ROLES)];
    if with_new {
        owners.push(owner(&user(&email("new")), &["view"]));
    }
    let patch = json!({"spec": {"owners": owners}});
    testbed.admin().succeed(Method::PATCH, &big_tenant(), Some(&patch)).await.map(drop)
}

/// Waits until the status of the Tenant is that of its specification.
async fn until_observed(testbed: &TenantTestbed) -> Result<()> {
    let began = Instant::now();
    loop {
        let tenant = testbed.admin().get(&big_tenant()).await?;
        if tenant["status"]["observedGeneration"] == tenant["metadata"]["generation"] {
            return Ok(());
        }
        ensure!(began.elapsed() < RUN_TIMEOUT, "the tenant was not reconciled");
        tokio::time::sleep(STATUS_INTERVAL).await;
    }
}

fn big_tenant() -> String {
    format!("{TENANTS}/{BIG}")
}

/// Changes as many bindings as a new owner needs, with the broker's credential, and returns the time
/// in ms. The broker stands still meanwhile.
async fn raw_updates(testbed: &TenantTestbed, round: usize) -> Result<f64> {
    testbed.until_quiet().await?;
    let broker = testbed.world().broker();
    broker.signal(Signal::STOP)?;
    let updated = update_all(testbed.broker(), round).await;
    broker.signal(Signal::CONT)?;
    testbed.until_quiet().await?;
    updated
}

async fn update_all(api: &RawApi, round: usize) -> Result<f64> {
    let list = api.get(&role_bindings_of_tenant(BIG)).await?;
    let items = list["items"].as_array().context("there is no list of RoleBindings")?;
    let of_role = format!("tenant-{BIG}-view");
    let bindings = items.iter().filter(|binding| binding["metadata"]["name"] == of_role.as_str());
    let bindings: Vec<(String, Value)> = bindings
        .map(|binding| {
            let mut binding = binding.clone();
            let round = round.to_string();
            binding["metadata"]["annotations"]["measure.example.com/raw"] = round.into();
            let namespace = binding["metadata"]["namespace"].as_str().unwrap_or_default();
            (format!("{}/{of_role}", role_bindings(namespace)), binding)
        })
        .collect();
    let began = Instant::now();
    let requests =
        bindings.iter().map(|(path, binding)| api.succeed(Method::PUT, path, Some(binding)));
    stream::iter(requests).buffer_unordered(IN_FLIGHT).try_for_each(|_| async { Ok(()) }).await?;
    Ok(ms(began.elapsed()))
}
