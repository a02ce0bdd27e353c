//! Requests of a tenant that are sent at an interval while the tenant is being suspended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::Method;
use reqwest::Client;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::probe::{self, Probe};

/// Time limit until enough requests passed or were refused.
const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// A request that a tenant repeats.
#[derive(Clone, Debug)]
pub(super) struct RequestTarget {
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) body: Option<Value>,
}

impl RequestTarget {
    pub(super) fn get(url: String) -> Self {
        Self { method: Method::GET, url, body: None }
    }
}

/// One request of the tenant.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentRequest {
    /// Index of its target.
    pub(super) target: usize,
    pub(super) sent: Instant,
    pub(super) answered: Instant,
    pub(super) passed: bool,
}

#[derive(Debug, Default)]
struct RequestCounters {
    stop: AtomicBool,
    passed: AtomicUsize,
    refused: AtomicUsize,
}

/// A task that sends a tenant's requests, one target after the other, until it is stopped.
#[derive(Debug)]
pub(super) struct TenantRequests {
    counters: Arc<RequestCounters>,
    task: tokio::task::JoinHandle<Result<Vec<SentRequest>>>,
}

impl TenantRequests {
    /// Starts them with this bearer token, after each target was requested once with success.
    pub(super) async fn start(
        client: Client,
        targets: Vec<RequestTarget>,
        token: &str,
        interval: Duration,
    ) -> Result<Self> {
        let (targets, token): (Arc<[RequestTarget]>, Arc<str>) = (targets.into(), token.into());
        for (index, target) in targets.iter().enumerate() {
            let sent = send(&client, (index, target), &token).await?;
            ensure!(sent.passed, "the tenant is refused from the start: {}", target.url);
        }
        let counters = Arc::new(RequestCounters::default());
        let task = tokio::spawn({
            let counters = Arc::clone(&counters);
            async move {
                let mut tick = tokio::time::interval(interval);
                let mut asked = JoinSet::new();
                for index in (0..targets.len()).cycle() {
                    if counters.stop.load(Ordering::SeqCst) {
                        break;
                    }
                    tick.tick().await;
                    let (client, targets) = (client.clone(), Arc::clone(&targets));
                    let (token, counters) = (Arc::clone(&token), Arc::clone(&counters));
                    asked.spawn(async move {
                        let one = send(&client, (index, &targets[index]), &token).await?;
                        let counter = if one.passed { &counters.passed } else { &counters.refused };
                        counter.fetch_add(1, Ordering::SeqCst);
                        anyhow::Ok(one)
                    });
                }
                asked.join_all().await.into_iter().collect()
            }
        });
        Ok(Self { counters, task })
    }

    /// Waits until this number of requests passed.
    pub(super) async fn until_passed(&self, count: usize) -> Result<()> {
        Self::until("requests to pass", &self.counters.passed, count).await
    }

    /// Waits until this number of requests was refused.
    pub(super) async fn until_refused(&self, count: usize) -> Result<()> {
        Self::until("requests to be refused", &self.counters.refused, count).await
    }

    async fn until(what: &str, counter: &AtomicUsize, count: usize) -> Result<()> {
        probe::until(what, WAIT_TIMEOUT, || async {
            let now = counter.load(Ordering::SeqCst);
            Ok(if now >= count { Probe::Ready(()) } else { Probe::NotYet(format!("{now} so far")) })
        })
        .await
    }

    /// Stops, and returns all requests.
    pub(super) async fn stop(self) -> Result<Vec<SentRequest>> {
        self.counters.stop.store(true, Ordering::SeqCst);
        self.task.await.context("the tenant panicked")?
    }
}

async fn send(
    client: &Client,
    (index, target): (usize, &RequestTarget),
    token: &str,
) -> Result<SentRequest> {
    let mut request = client.request(target.method.clone(), &target.url).bearer_auth(token);
    if let Some(body) = &target.body {
        request = request.json(body);
    }
    let sent = Instant::now();
    let answer = request.send().await?;
    let (status, answered) = (answer.status(), Instant::now());
    let refused = status == 401 || status == 403;
    ensure!(refused || status.is_success(), "the tenant's request was answered {status}");
    Ok(SentRequest { target: index, sent, answered, passed: !refused })
}
