//! How soon a suspension cuts a tenant off: a request of theirs is sent every five milliseconds
//! while an administrator suspends the workspace.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use reqwest::Client;
use secrecy::ExposeSecret;
use serde_json::json;
use tenant_shared::{SuspendRequest, WorkspaceStatus};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::api;
use crate::http_client;
use crate::measure::figure::{Spread, Timing};
use crate::measure::issuance::Target;
use crate::person::Person;
use crate::probe::{self, Probe};
use crate::world::World;

/// Pause between two requests of the tenant.
const EVERY: Duration = Duration::from_millis(5);
/// Refusals in a row that end a run.
const ENOUGH: usize = 40;
/// How long anything here may take.
const LIMIT: Duration = Duration::from_mins(1);
/// Who ask for tokens through the broker meanwhile.
const CALLERS: usize = 64;
/// Steps of a suspension.
const STEPS: usize = 6;
/// RoleBindings of the fuller namespace, the broker's included.
const MANY: usize = 100;

/// How many of them a finalizer holds, in the last case.
const HELD: usize = 20;

/// One suspension.
struct Cut {
    /// The broker's steps and how long each took, in ms.
    steps: Vec<(String, f64)>,
    /// From the call to its answer, in ms; so the next two.
    answer: f64,
    first_refusal: f64,
    last_success: f64,
    /// Requests that passed although they were sent after the answer.
    too_late: usize,
}

/// Suspends one workspace after the other: with one RoleBinding, with a hundred, and with a hundred of which
/// finalizers hold twenty; with nothing else to do and with callers who ask for tokens without a pause.
///
/// # Errors
/// A call fails, or a suspension stays open.
pub async fn latency(world: &World, runs: usize) -> Result<Vec<Timing>> {
    let operator = world.administrator("operator").await?.api().await?;
    let busy = world.person("busy").await?;
    busy.api().await?.init("basic").await?;
    let mut timings = Vec::new();
    for callers in [0, CALLERS] {
        for (bindings, held) in [(1, 0), (MANY, 0), (MANY, HELD)] {
            let mut cuts = Vec::with_capacity(runs);
            for run in 0..runs {
                let tenant =
                    world.person(&format!("tenant-{callers}-{bindings}-{held}-{run}")).await?;
                let noise = Noise::start(world, &busy, callers).await?;
                let cut = suspend(world, &operator, &tenant, bindings, held).await?;
                noise.stop().await?;
                cuts.push(cut);
            }
            let plural = if bindings == 1 { "" } else { "s" };
            let load = if callers == 0 { "idle" } else { "64 callers" };
            let held = if held == 0 { String::new() } else { format!(", {held} held") };
            let name = format!("{bindings} RoleBinding{plural}{held}, {load}");
            timings.extend(summary(&name, &cuts));
        }
    }
    Ok(timings)
}

fn summary(name: &str, cuts: &[Cut]) -> Vec<Timing> {
    let timing = |what: &str, unit, values: Vec<f64>| {
        let value = Spread::of(values)?;
        Some(Timing { name: format!("{name}: {what}"), unit, value })
    };
    let of = |pick: fn(&Cut) -> f64| cuts.iter().map(pick).collect();
    let mut timings = vec![
        timing("call to first refusal", "ms", of(|cut| cut.first_refusal)),
        timing("call to last success", "ms", of(|cut| cut.last_success)),
        timing("call to its answer", "ms", of(|cut| cut.answer)),
    ];
    for (place, (step, _)) in cuts.iter().flat_map(|cut| cut.steps.iter().enumerate()).take(STEPS) {
        let values = cuts.iter().filter_map(|cut| Some(cut.steps.get(place)?.1)).collect();
        timings.push(timing(&format!("  step {step}"), "ms", values));
    }
    let late = cuts.iter().map(|cut| f64::from(u32::try_from(cut.too_late).unwrap_or(u32::MAX)));
    timings.push(timing("requests passed that were sent after the answer", "", late.collect()));
    timings.into_iter().flatten().collect()
}

async fn suspend(
    world: &World,
    operator: &api::Api,
    tenant: &Person,
    bindings: usize,
    held: usize,
) -> Result<Cut> {
    let session = tenant.api().await?;
    let (workspace, _) = session.init("basic").await?;
    fill(world, &workspace.namespace, bindings, held).await?;
    let credential = session.credential(workspace.id).await?;
    let requests = Requests::start(world, &workspace.namespace, &credential.token).await?;
    requests
        .until("some requests to pass", |seen| seen.passed.load(Ordering::SeqCst) >= 20)
        .await?;
    let called = Instant::now();
    let reason = SuspendRequest { reason: Some("measured".to_owned()) };
    let suspension = operator.suspend(workspace.id, &reason).await?;
    let answered = Instant::now();
    ensure!(suspension.status == WorkspaceStatus::Suspended, "not suspended: {suspension:?}");
    requests
        .until("the tenant to be refused", |seen| seen.refused.load(Ordering::SeqCst) >= ENOUGH)
        .await?;
    let sent = requests.stop().await?;
    let since_call = |moment: Instant| match moment.checked_duration_since(called) {
        Some(after) => after.as_secs_f64() * 1e3,
        None => -(called - moment).as_secs_f64() * 1e3,
    };
    let refusals = sent.iter().filter(|one| !one.passed).map(|one| since_call(one.answered));
    let successes = sent.iter().filter(|one| one.passed).map(|one| since_call(one.sent));
    Ok(Cut {
        steps: suspension.steps.into_iter().map(|step| (step.step, step.duration_ms)).collect(),
        answer: since_call(answered),
        first_refusal: refusals.min_by(f64::total_cmp).context("nothing was refused")?,
        last_success: successes.max_by(f64::total_cmp).context("nothing passed")?,
        too_late: sent.iter().filter(|one| one.passed && one.sent > answered).count(),
    })
}

/// Makes RoleBindings until the namespace has so many. The quota allows a tenant twenty, so that no
/// tenant can make a suspension slow; here it is raised. So many of them have a finalizer, which the policies let
/// administrators alone write.
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
        // The raised quota counts from a moment later.
        probe::until("a RoleBinding to be made", LIMIT, || async {
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

/// One request of the tenant.
struct Asked {
    sent: Instant,
    answered: Instant,
    passed: bool,
}

#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    passed: AtomicUsize,
    refused: AtomicUsize,
}

/// Requests of a tenant that go on until they are stopped.
struct Requests {
    seen: Arc<Seen>,
    task: tokio::task::JoinHandle<Result<Vec<Asked>>>,
}

impl Requests {
    async fn start(world: &World, namespace: &str, token: &str) -> Result<Self> {
        let client = http_client::http_client(Some(world.cluster().authority().certificate()))?;
        let url = format!("{}api/v1/namespaces/{namespace}/configmaps", world.cluster().url());
        let token = token.to_owned();
        // The first one makes the connection.
        ensure!(ask(&client, &url, &token).await?.passed, "the tenant is refused from the start");
        let seen = Arc::new(Seen::default());
        let task = tokio::spawn({
            let seen = Arc::clone(&seen);
            async move {
                let mut tick = tokio::time::interval(EVERY);
                let mut asked = JoinSet::new();
                while !seen.stop.load(Ordering::SeqCst) {
                    tick.tick().await;
                    let (client, url, token) = (client.clone(), url.clone(), token.clone());
                    let seen = Arc::clone(&seen);
                    asked.spawn(async move {
                        let one = ask(&client, &url, &token).await?;
                        let counter = if one.passed { &seen.passed } else { &seen.refused };
                        counter.fetch_add(1, Ordering::SeqCst);
                        anyhow::Ok(one)
                    });
                }
                asked.join_all().await.into_iter().collect()
            }
        });
        Ok(Self { seen, task })
    }

    async fn until(&self, what: &str, is_so: fn(&Seen) -> bool) -> Result<()> {
        probe::until(what, LIMIT, || async {
            Ok(if is_so(&self.seen) {
                Probe::Ready(())
            } else {
                Probe::NotYet(format!("{} passed", self.seen.passed.load(Ordering::SeqCst)))
            })
        })
        .await
    }

    async fn stop(self) -> Result<Vec<Asked>> {
        self.seen.stop.store(true, Ordering::SeqCst);
        self.task.await.context("the tenant panicked")?
    }
}

async fn ask(client: &Client, url: &str, token: &str) -> Result<Asked> {
    let sent = Instant::now();
    let answer = client.get(url).bearer_auth(token).send().await?;
    let (status, answered) = (answer.status(), Instant::now());
    let refused = status == 401 || status == 403;
    ensure!(refused || status.is_success(), "the tenant's request was answered {status}");
    Ok(Asked { sent, answered, passed: !refused })
}

/// Callers who ask the broker for tokens without a pause.
struct Noise {
    stop: Arc<AtomicBool>,
    callers: Vec<tokio::task::JoinHandle<Result<()>>>,
}

impl Noise {
    async fn start(world: &World, person: &Person, callers: usize) -> Result<Self> {
        let session = person.sign_in().await?;
        let api = world.stranger()?.with_token(session.access_token.clone());
        let workspace: Uuid =
            api.workspaces(false).await?.items.first().context("there is no workspace")?.id;
        let authority = world.cluster().authority().certificate();
        let broker = world.broker().public_url()?;
        let target = Target {
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
                    target.ask().await?;
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
