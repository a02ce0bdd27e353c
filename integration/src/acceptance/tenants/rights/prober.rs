//! A prober that tries requests all the time: nobody has a right that neither the state before a
//! change nor the one after it gives, and nobody lacks one that both give.
//!
//! Each kind of probe has a worker of its own, because most random pairs of a credential and a
//! namespace are of people and their own tenants.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior};

use super::model::Identity;
use super::requests::Request;
use crate::acceptance::tenants::fixture::{ClusterClient, Credential, SignedIn};
use crate::acceptance::tenants::rng::Rng;

/// Interval of the requests of a worker at the API server.
const API_SERVER_INTERVAL: Duration = Duration::from_millis(4);
/// Interval of the requests through the gateway, which has a limit for each tenant.
const GATEWAY_INTERVAL: Duration = Duration::from_millis(25);

/// What somebody may and must be able to do in a namespace at present.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) who: Identity,
    /// Another one for each credential of the identity.
    pub(super) generation: usize,
    pub(super) credential: Credential,
    pub(super) namespace: String,
    /// Whether it is the membership of another tenant, which gives no right here at any time.
    pub(super) is_foreign: bool,
    /// Roles by which requests may succeed.
    pub(super) at_most: BTreeSet<&'static str>,
    /// Roles by which requests have to succeed.
    pub(super) at_least: BTreeSet<&'static str>,
}

/// What a person may be able to do in a namespace through the gateway at present.
#[derive(Clone, Debug)]
pub(super) struct GatewayBound {
    /// Number of the person.
    pub(super) person: usize,
    pub(super) namespace: String,
    /// Roles by which requests may succeed.
    pub(super) at_most: BTreeSet<&'static str>,
}

/// The bounds at present, for all pairs of somebody and a namespace.
#[derive(Debug)]
pub(super) struct Bounds<T>(Arc<Mutex<Arc<Vec<T>>>>);

/// What is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeKind {
    /// Any credential in any namespace, at the API server.
    Anybody,
    /// Members in namespaces of other tenants, at the API server.
    Foreign,
    /// People in namespaces where they have no right, through the gateway.
    Gateway,
}

/// Running workers.
#[derive(Debug)]
pub(super) struct Prober {
    is_over: Arc<AtomicBool>,
    workers: Vec<(ProbeKind, JoinHandle<Result<usize>>)>,
}

/// Numbers of requests that were compared with the bounds.
#[derive(Clone, Debug)]
pub(super) struct ProbeCounts(Vec<(ProbeKind, usize)>);

/// The people who send requests through the gateway.
#[derive(Clone, Debug)]
pub(super) struct GatewayPeople {
    pub(super) people: Vec<SignedIn>,
    /// Number of replicas of the broker.
    pub(super) replicas: usize,
}

/// The times of the requests of a worker, until the prober ends.
struct Pace {
    is_over: Arc<AtomicBool>,
    interval: Interval,
}

impl<T> Clone for Bounds<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Bounds<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Bounds<T> {
    pub(super) fn set(&self, bounds: Vec<T>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(bounds);
    }

    fn get(&self) -> Arc<Vec<T>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Display for ProbeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anybody => "with any credential at the API server",
            Self::Foreign => "of members in namespaces of other tenants at the API server",
            Self::Gateway => "of people without a right through the gateway",
        })
    }
}

impl fmt::Display for ProbeCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (kind, count)) in self.0.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            write!(f, "{separator}{count} {kind}")?;
        }
        Ok(())
    }
}

impl Prober {
    /// Starts to send requests.
    pub(super) fn start(
        cluster: &ClusterClient,
        bounds: &Bounds<Bound>,
        gateway_bounds: &Bounds<GatewayBound>,
        people: GatewayPeople,
        seed: u64,
    ) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let pace = |interval| Pace::new(&is_over, interval);
        let at_api_server = |kind, seed| {
            let (cluster, bounds) = (cluster.clone(), bounds.clone());
            let (pace, rng) = (pace(API_SERVER_INTERVAL), Rng::new(seed));
            (kind, tokio::spawn(probe_api_server(cluster, bounds, kind, pace, rng)))
        };
        let (gateway_pace, gateway_rng) = (pace(GATEWAY_INTERVAL), Rng::new(seed.wrapping_add(2)));
        let through_gateway =
            probe_gateway(people, gateway_bounds.clone(), gateway_pace, gateway_rng);
        let workers = vec![
            at_api_server(ProbeKind::Anybody, seed),
            at_api_server(ProbeKind::Foreign, seed.wrapping_add(1)),
            (ProbeKind::Gateway, tokio::spawn(through_gateway)),
        ];
        Self { is_over, workers }
    }

    /// Whether a worker found something, so that the run should end.
    pub(super) fn has_ended(&self) -> bool {
        self.workers.iter().any(|(_, worker)| worker.is_finished())
    }

    /// Ends the workers. Returns the numbers of requests.
    ///
    /// # Errors
    /// A request was allowed or refused against the bounds, or a worker compared none.
    pub(super) async fn end(self) -> Result<ProbeCounts> {
        self.is_over.store(true, Ordering::SeqCst);
        let mut counts = Vec::new();
        for (kind, worker) in self.workers {
            counts.push((kind, worker.await.context("the prober panicked")??));
        }
        for (kind, count) in &counts {
            ensure!(*count > 0, "the prober had no answer to a request {kind}");
        }
        Ok(ProbeCounts(counts))
    }
}

impl Pace {
    fn new(is_over: &Arc<AtomicBool>, interval: Duration) -> Self {
        let mut interval = tokio::time::interval(interval);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { is_over: Arc::clone(is_over), interval }
    }

    /// Waits for the time of the next request; `false` once the prober ends.
    async fn next(&mut self) -> bool {
        self.interval.tick().await;
        !self.is_over.load(Ordering::SeqCst)
    }
}

/// Sends requests with credentials of the API server. Returns their number.
async fn probe_api_server(
    cluster: ClusterClient,
    bounds: Bounds<Bound>,
    kind: ProbeKind,
    mut pace: Pace,
    mut rng: Rng,
) -> Result<usize> {
    let mut count = 0;
    while pace.next().await {
        let before = bounds.get();
        let is_probed = |bound: &&Bound| bound.is_foreign || kind == ProbeKind::Anybody;
        let probed: Vec<&Bound> = before.iter().filter(is_probed).collect();
        let Some(&bound) = rng.choose(&probed) else { continue };
        let request = Request::ALL[rng.below(Request::ALL.len())];
        let sent = request.send(&cluster, &bound.credential, &bound.namespace).await;
        let after = bounds.get();
        let same = after.iter().find(|it| {
            it.who == bound.who
                && it.generation == bound.generation
                && it.namespace == bound.namespace
        });
        // The namespace may be gone meanwhile.
        let (Some(after), Ok(is_allowed)) = (same, &sent) else {
            if same.is_some() {
                sent?;
            }
            continue;
        };
        let may = request.is_allowed(&bound.at_most) || request.is_allowed(&after.at_most);
        let must = request.is_allowed(&bound.at_least) && request.is_allowed(&after.at_least);
        ensure!(may || !is_allowed, "{request:?} was allowed: {bound:?}, and later {after:?}");
        ensure!(!must || *is_allowed, "{request:?} was refused: {bound:?}, and later {after:?}");
        ensure!(!bound.is_foreign || !is_allowed, "{request:?} in another tenant: {bound:?}");
        count += 1;
    }
    Ok(count)
}

/// Sends single requests through the gateway, because a repeated one does not show a right that
/// somebody has for a moment. Returns the number of those that were allowed or refused.
async fn probe_gateway(
    people: GatewayPeople,
    bounds: Bounds<GatewayBound>,
    mut pace: Pace,
    mut rng: Rng,
) -> Result<usize> {
    let mut count = 0;
    while pace.next().await {
        let before = bounds.get();
        let is_probed = |bound: &&GatewayBound| bound.at_most.is_empty();
        let probed: Vec<&GatewayBound> = before.iter().filter(is_probed).collect();
        let Some(&bound) = rng.choose(&probed) else { continue };
        let request = Request::ALL[rng.below(Request::ALL.len())];
        let person = &people.people[bound.person];
        let replica = rng.below(people.replicas);
        let sent = request.send_through_gateway(person, replica, &bound.namespace).await;
        let after = bounds.get();
        let same =
            after.iter().find(|it| it.person == bound.person && it.namespace == bound.namespace);
        let (Some(is_allowed), Some(after)) = (sent, same) else { continue };
        let may = request.is_allowed(&after.at_most);
        ensure!(
            may || !is_allowed,
            "{request:?} was allowed through the gateway to {}: {bound:?}, and later {after:?}",
            person.email
        );
        count += 1;
    }
    Ok(count)
}
