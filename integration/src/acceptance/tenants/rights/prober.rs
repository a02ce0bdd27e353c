//! A prober that tries requests all the time: nobody has a right that neither the state before a
//! change nor the one after it gives, and nobody lacks one that both give.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use tokio::task::JoinHandle;

use super::model::Identity;
use super::requests::Request;
use crate::acceptance::tenants::fixture::{ClusterClient, Credential};
use crate::acceptance::tenants::rng::Rng;

/// Requests that are sent at once.
const WORKERS: u64 = 2;

/// What somebody may and must be able to do in a namespace at present.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) who: Identity,
    /// Another one for each credential of the identity.
    pub(super) generation: usize,
    pub(super) credential: Credential,
    pub(super) namespace: String,
    /// Roles by which requests may succeed.
    pub(super) at_most: BTreeSet<&'static str>,
    /// Roles by which requests have to succeed.
    pub(super) at_least: BTreeSet<&'static str>,
}

/// The bounds at present, for all pairs of a credential and a namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds(Arc<Mutex<Arc<Vec<Bound>>>>);

/// Running workers.
#[derive(Debug)]
pub(super) struct Prober {
    is_over: Arc<AtomicBool>,
    workers: Vec<JoinHandle<Result<usize>>>,
}

impl Bounds {
    pub(super) fn set(&self, bounds: Vec<Bound>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(bounds);
    }

    fn get(&self) -> Arc<Vec<Bound>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Prober {
    /// Starts to send requests.
    pub(super) fn start(cluster: &ClusterClient, bounds: &Bounds, seed: u64) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let workers = (0..WORKERS).map(|number| {
            let (cluster, bounds, is_over) =
                (cluster.clone(), bounds.clone(), Arc::clone(&is_over));
            tokio::spawn(probe(cluster, bounds, is_over, Rng::new(seed.wrapping_add(number))))
        });
        Self { workers: workers.collect(), is_over }
    }

    /// Whether a worker found something, so that the run should end.
    pub(super) fn has_ended(&self) -> bool {
        self.workers.iter().any(JoinHandle::is_finished)
    }

    /// Ends the workers. Returns the number of requests.
    ///
    /// # Errors
    /// A request was allowed or refused against the bounds.
    pub(super) async fn end(self) -> Result<usize> {
        self.is_over.store(true, Ordering::SeqCst);
        let mut count = 0;
        for worker in self.workers {
            count += worker.await.context("the prober panicked")??;
        }
        ensure!(count > 0, "the prober sent nothing");
        Ok(count)
    }
}

async fn probe(
    cluster: ClusterClient,
    bounds: Bounds,
    is_over: Arc<AtomicBool>,
    mut rng: Rng,
) -> Result<usize> {
    let mut count = 0;
    while !is_over.load(Ordering::SeqCst) {
        let before = bounds.get();
        let Some(bound) = rng.choose(&before) else {
            tokio::task::yield_now().await;
            continue;
        };
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
        count += 1;
    }
    Ok(count)
}
