//! Latency of a suspension: a tenant's request is sent every five milliseconds while an
//! administrator suspends the workspace.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use secrecy::ExposeSecret;
use serde_json::json;
use tenant_shared::{SuspendRequest, WorkspaceStatus};
use uuid::Uuid;

use crate::api;
use crate::http_client;
use crate::measure::figure::{Spread, Timing};
use crate::measure::issuance::TokenEndpoint;
use crate::measure::tenant_requests::{RequestTarget, TenantRequests};
use crate::person::Person;
use crate::probe::{self, Probe};
use crate::world::World;

/// Interval of the tenant's requests.
const REQUEST_INTERVAL: Duration = Duration::from_millis(5);
/// Number of refusals that end a run.
const MIN_REFUSALS: usize = 40;
/// Time limit of every condition that is waited for.
const WAIT_TIMEOUT: Duration = Duration::from_mins(1);
/// Number of callers who request tokens through the broker meanwhile.
const BACKGROUND_CALLERS: usize = 64;
/// Number of steps of a suspension.
const SUSPENSION_STEPS: usize = 6;
/// Number of RoleBindings in the fuller namespace, the broker's included.
const MANY_BINDINGS: usize = 100;

/// Number of these that a finalizer holds, in the last case.
const HELD_BINDINGS: usize = 20;

/// The latencies of one suspension.
struct SuspensionLatency {
    /// The broker's steps with their durations in ms.
    steps: Vec<(String, f64)>,
    /// Time from the call to its response, in ms; the next two fields likewise.
    answer: f64,
    first_refusal: f64,
    last_success: f64,
    /// Number of requests that passed although they were sent after the response.
    too_late: usize,
}

/// Suspends one workspace after the other: with one RoleBinding, with a hundred, and with a hundred
/// of which finalizers hold twenty; on an idle broker and with callers who request tokens without a
/// pause.
///
/// # Errors
/// A call fails, or a suspension stays incomplete.
pub async fn latency(world: &World, runs: usize) -> Result<Vec<Timing>> {
    let operator = world.administrator("operator").await?.api().await?;
    let busy = world.person("busy").await?;
    busy.api().await?.init("basic").await?;
    let mut timings = Vec::new();
    for callers in [0, BACKGROUND_CALLERS] {
        for (bindings, held) in [(1, 0), (MANY_BINDINGS, 0), (MANY_BINDINGS, HELD_BINDINGS)] {
            let mut latencies = Vec::with_capacity(runs);
            for run in 0..runs {
                let tenant =
                    world.person(&format!("tenant-{callers}-{bindings}-{held}-{run}")).await?;
                let background = BackgroundLoad::start(world, &busy, callers).await?;
                let latency = suspend(world, &operator, &tenant, bindings, held).await?;
                background.stop().await?;
                latencies.push(latency);
            }
            let plural = if bindings == 1 { "" } else { "s" };
            let load = if callers == 0 { "idle" } else { "64 callers" };
            let held = if held == 0 { String::new() } else { format!(", {held} held") };
            let name = format!("{bindings} RoleBinding{plural}{held}, {load}");
            timings.extend(summary(&name, &latencies));
        }
    }
    Ok(timings)
}

fn summary(name: &str, latencies: &[SuspensionLatency]) -> Vec<Timing> {
    let timing = |what: &str, unit, values: Vec<f64>| {
        let value = Spread::of(values)?;
        Some(Timing { name: format!("{name}: {what}"), unit, value })
    };
    let of = |pick: fn(&SuspensionLatency) -> f64| latencies.iter().map(pick).collect();
    let mut timings = vec![
        timing("call to first refusal", "ms", of(|latency| latency.first_refusal)),
        timing("call to last success", "ms", of(|latency| latency.last_success)),
        timing("call to its answer", "ms", of(|latency| latency.answer)),
    ];
    for (index, (step, _)) in
        latencies.iter().flat_map(|latency| latency.steps.iter().enumerate()).take(SUSPENSION_STEPS)
    {
        let values =
            latencies.iter().filter_map(|latency| Some(latency.steps.get(index)?.1)).collect();
        timings.push(timing(&format!("  step {step}"), "ms", values));
    }
    let late = latencies
        .iter()
        .map(|latency| f64::from(u32::try_from(latency.too_late).unwrap_or(u32::MAX)));
    timings.push(timing("requests passed that were sent after the answer", "", late.collect()));
    timings.into_iter().flatten().collect()
}

async fn suspend(
    world: &World,
    operator: &api::Api,
    tenant: &Person,
    bindings: usize,
    held: usize,
) -> Result<SuspensionLatency> {
    let session = tenant.api().await?;
    let (workspace, _) = session.init("basic").await?;
    fill(world, &workspace.namespace, bindings, held).await?;
    let credential = session.credential(workspace.id).await?;
    let cluster = world.cluster();
    let client = http_client::http_client(Some(cluster.authority().certificate()))?;
    let url = format!("{}api/v1/namespaces/{}/configmaps", cluster.url(), workspace.namespace);
    let targets = vec![RequestTarget::get(url)];
    let requests =
        TenantRequests::start(client, targets, &credential.token, REQUEST_INTERVAL).await?;
    requests.until_passed(20).await?;
    let called = Instant::now();
    let reason = SuspendRequest { reason: Some("measured".to_owned()) };
    let suspension = operator.suspend(workspace.id, &reason).await?;
    let answered = Instant::now();
    ensure!(suspension.status == WorkspaceStatus::Suspended, "not suspended: {suspension:?}");
    requests.until_refused(MIN_REFUSALS).await?;
    let sent = requests.stop().await?;
    let since_call = |moment: Instant| match moment.checked_duration_since(called) {
        Some(after) => after.as_secs_f64() * 1e3,
        None => -(called - moment).as_secs_f64() * 1e3,
    };
    let refusals = sent.iter().filter(|one| !one.passed).map(|one| since_call(one.answered));
    let successes = sent.iter().filter(|one| one.passed).map(|one| since_call(one.sent));
    Ok(SuspensionLatency {
        steps: suspension.steps.into_iter().map(|step| (step.step, step.duration_ms)).collect(),
        answer: since_call(answered),
        first_refusal: refusals.min_by(f64::total_cmp).context("nothing was refused")?,
        last_success: successes.max_by(f64::total_cmp).context("nothing passed")?,
        too_late: sent.iter().filter(|one| one.passed && one.sent > answered).count(),
    })
}

/// Creates RoleBindings until the namespace has `bindings`. The quota allows a tenant twenty, so
/// that no tenant can make a suspension slow; here it is raised. `held` of them have a finalizer,
/// which the policies let administrators alone write.
async fn fill(world: &World, namespace: &str, bindings: usize, held: usize) -> Result<()> {
    if bindings < 2 {
        return Ok(());
    }
    let admin = world.cluster().admin().await?;
    let quotas: Api<ResourceQuota> = Api::namespaced(admin.clone(), namespace);
    let count = "count/rolebindings.rbac.authorization.k8s.io";
    let raise = json!({"spec": {"hard": {count: (2 * bindings).to_string()}}});
    quotas.patch("tenant-quota", &PatchParams::default(), &Patch::Merge(raise)).await?;
    let api: Api<RoleBinding> = Api::namespaced(admin, namespace);
    for number in 1..bindings {
        let binding = RoleBinding {
            metadata: ObjectMeta {
                name: Some(format!("own-{number}")),
                finalizers: (number <= held).then(|| vec!["measure.example.com/hold".to_owned()]),
                ..Default::default()
            },
            role_ref: RoleRef {
                api_group: "rbac.authorization.k8s.io".to_owned(),
                kind: "ClusterRole".to_owned(),
                name: "view".to_owned(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name: "default".to_owned(),
                namespace: Some(namespace.to_owned()),
                ..Default::default()
            }]),
        };
        // The raised quota takes effect a moment later.
        probe::until("a RoleBinding to be made", WAIT_TIMEOUT, || async {
            match api.create(&PostParams::default(), &binding).await {
                Ok(_) => Ok(Probe::Ready(())),
                Err(kube::Error::Api(status)) if status.message.contains("exceeded quota") => {
                    Ok(Probe::NotYet(status.message.clone()))
                }
                Err(error) => Err(error.into()),
            }
        })
        .await?;
    }
    Ok(())
}

/// Callers who request tokens from the broker without a pause.
struct BackgroundLoad {
    stop: Arc<AtomicBool>,
    callers: Vec<tokio::task::JoinHandle<Result<()>>>,
}

impl BackgroundLoad {
    async fn start(world: &World, person: &Person, callers: usize) -> Result<Self> {
        let session = person.sign_in().await?;
        let api = world.anonymous_api()?.with_token(session.access_token.clone());
        let workspace: Uuid =
            api.workspaces(false).await?.items.first().context("there is no workspace")?.id;
        let authority = world.cluster().authority().certificate();
        let broker = world.broker().public_url()?;
        let target = TokenEndpoint {
            client: http_client::builder(Some(authority))?.http1_only().build()?,
            url: format!("{broker}api/v1/workspaces/{workspace}/credentials"),
            body: None,
            bearer: Some(session.access_token.expose_secret().to_owned()),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let callers = (0..callers).map(|_| {
            let (target, stop) = (target.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    target.request_token().await?;
                }
                Ok(())
            })
        });
        Ok(Self { callers: callers.collect(), stop })
    }

    async fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::SeqCst);
        for caller in self.callers {
            caller.await.context("a caller panicked")??;
        }
        Ok(())
    }
}
