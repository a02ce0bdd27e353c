//! The same request, repeated by concurrent callers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::sync::Barrier;

use super::caller::{Caller, CallerRequest};
use super::route::Route;
use super::sample::{RunningSample, Sample};
use super::testbed::{GatewayTestbed, LIST_BYTES};

/// Requests of each caller that do not count, because connections and caches are cold.
const WARM_UP_REQUESTS: usize = 10;
const NO_PAUSE: Duration = Duration::ZERO;

/// The request to repeat.
#[derive(Clone, Debug)]
pub(crate) struct RequestSpec {
    pub(super) name: &'static str,
    request: CallerRequest,
    /// Minimum length of the response in bytes.
    min_bytes: usize,
    /// Minimum interval between two requests of one caller; zero means no pause.
    every: Duration,
}

impl RequestSpec {
    /// A request whose response has at least this number of bytes.
    pub(crate) fn new(name: &'static str, request: CallerRequest, min_bytes: usize) -> Self {
        Self { name, request, min_bytes, every: NO_PAUSE }
    }

    /// GET of one small ConfigMap.
    pub(super) fn small_get(testbed: &GatewayTestbed) -> Self {
        Self::new("GET of a ConfigMap", CallerRequest::get(testbed.small_path()), 100)
    }

    /// List of ConfigMaps of 1 MiB together.
    pub(super) fn long_list(testbed: &GatewayTestbed) -> Self {
        Self::new("list of 1 MiB", CallerRequest::get(testbed.list_path()), LIST_BYTES)
    }

    /// Sets the minimum interval between two requests of one caller.
    pub(super) fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }
}

/// Runs one sample of this length with this number of callers. `server` is the process of the API
/// server.
pub(crate) async fn sample(
    server: u32,
    route: &Route,
    spec: &RequestSpec,
    callers: usize,
    length: Duration,
) -> Result<Sample> {
    let ready = Arc::new(Barrier::new(callers + 1));
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (route, spec, ready) = (route.clone(), spec.clone(), Arc::clone(&ready));
            tokio::spawn(async move {
                let caller = warm(&route, &spec).await;
                // Waits twice: all callers are warm, then the clocks are read.
                ready.wait().await;
                ready.wait().await;
                repeat_until_end(caller?, &spec, length).await
            })
        })
        .collect();
    ready.wait().await;
    let started = RunningSample::start(&route.processes, server)?;
    ready.wait().await;
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await.context("a caller panicked")??);
    }
    started.end(took)
}

async fn warm(route: &Route, spec: &RequestSpec) -> Result<Caller> {
    let mut caller = Caller::connect(route, false).await?;
    for _ in 0..WARM_UP_REQUESTS {
        let length = caller.succeed(&spec.request).await?;
        ensure!(length >= spec.min_bytes, "{} answered only {length} bytes", route.name);
    }
    Ok(caller)
}

async fn repeat_until_end(
    mut caller: Caller,
    spec: &RequestSpec,
    length: Duration,
) -> Result<Vec<Duration>> {
    let end = Instant::now() + length;
    let mut took = Vec::with_capacity(4096);
    let mut began = Instant::now();
    while began < end {
        caller.succeed(&spec.request).await?;
        let now = Instant::now();
        took.push(now - began);
        if spec.every.is_zero() {
            began = now;
        } else {
            tokio::time::sleep_until((began + spec.every).into()).await;
            began = Instant::now();
        }
    }
    Ok(took)
}
