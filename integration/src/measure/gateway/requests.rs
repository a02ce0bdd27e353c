//! The same request again and again, by so many callers at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::sync::Barrier;

use super::caller::Caller;
use super::place::{LIST_BYTES, Place};
use super::turn::{Started, Turn};
use super::way::Way;

/// Requests of each caller that do not count: they find connections and caches cold.
const WARM_UP: usize = 10;
const NO_PAUSE: Duration = Duration::ZERO;

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) name: &'static str,
    path: Arc<str>,
    /// Bytes of the answer at least.
    least: usize,
    /// From one request to the next of one caller at least; nothing: without a pause.
    every: Duration,
}

impl Ask {
    /// One small ConfigMap.
    pub(super) fn small_get(place: &Place) -> Self {
        Self {
            name: "GET of a ConfigMap",
            path: place.small_path().into(),
            least: 100,
            every: NO_PAUSE,
        }
    }

    /// ConfigMaps of 1 MiB together.
    pub(super) fn long_list(place: &Place) -> Self {
        let path = place.list_path().into();
        Self { name: "list of 1 MiB", path, least: LIST_BYTES, every: NO_PAUSE }
    }

    /// The same, and not more often than that.
    pub(super) fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }
}

/// Asks for so long.
pub(super) async fn turn(
    place: &Place,
    way: &Way,
    ask: &Ask,
    callers: usize,
    length: Duration,
) -> Result<Turn> {
    let ready = Arc::new(Barrier::new(callers + 1));
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (way, ask, ready) = (way.clone(), ask.clone(), Arc::clone(&ready));
            tokio::spawn(async move {
                let caller = warm(&way, &ask).await;
                // Twice: all are warm, and the clocks are read.
                ready.wait().await;
                ready.wait().await;
                again_and_again(caller?, &ask, length).await
            })
        })
        .collect();
    ready.wait().await;
    let started = Started::now(place, way)?;
    ready.wait().await;
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await.context("a caller panicked")??);
    }
    started.end(took)
}

async fn warm(way: &Way, ask: &Ask) -> Result<Caller> {
    let mut caller = Caller::connect(way, false).await?;
    for _ in 0..WARM_UP {
        let length = caller.get(&ask.path).await?;
        ensure!(length >= ask.least, "{} answered only {length} bytes", way.name);
    }
    Ok(caller)
}

async fn again_and_again(mut caller: Caller, ask: &Ask, length: Duration) -> Result<Vec<Duration>> {
    let end = Instant::now() + length;
    let mut took = Vec::with_capacity(4096);
    let mut began = Instant::now();
    while began < end {
        caller.get(&ask.path).await?;
        let now = Instant::now();
        took.push(now - began);
        if ask.every.is_zero() {
            began = now;
        } else {
            tokio::time::sleep_until((began + ask.every).into()).await;
            began = Instant::now();
        }
    }
    Ok(took)
}
