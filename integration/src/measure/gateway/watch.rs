//! The changes of one ConfigMap, observed by concurrent watchers. The next change is made when all
//! watchers have received the previous one, so that no watcher lags behind and is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::caller::Caller;
use super::route::Route;
use super::sample::{RunningSample, Sample};
use super::testbed::{GatewayTestbed, TICKER};

/// Time limit for a change to reach all watchers.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(20);
/// Changes that do not count.
const WARM_UP_CHANGES: u32 = 10;
/// Prefix of each line of the watch.
const MODIFIED: &[u8] = br#"{"type":"MODIFIED""#;

/// Time at which the last change was sent, in nanoseconds since the sample began.
struct SentAt {
    began: Instant,
    at: AtomicU64,
}

impl SentAt {
    fn now(&self) {
        let at = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.at.store(at, Ordering::SeqCst);
    }

    fn ago(&self) -> Duration {
        let at = Duration::from_nanos(self.at.load(Ordering::SeqCst));
        self.began.elapsed().saturating_sub(at)
    }
}

/// Runs one sample of this length.
pub(super) async fn sample(
    testbed: &GatewayTestbed,
    route: &Route,
    watchers: usize,
    length: Duration,
) -> Result<Sample> {
    let writer: Api<ConfigMap> =
        Api::namespaced(testbed.world().cluster().admin().await?, testbed.namespace());
    let version = change(&writer, 0).await?;
    let sent = Arc::new(SentAt { began: Instant::now(), at: AtomicU64::new(0) });
    let (seen, mut all_seen) = mpsc::unbounded_channel();
    let mut watching = JoinSet::new();
    for _ in 0..watchers {
        let mut caller = Caller::connect(route, true).await?;
        let path = format!("{}&resourceVersion={version}", testbed.watch_path());
        let body = caller.open(&path).await?.into_body();
        watching.spawn(watch(caller, body, Arc::clone(&sent), seen.clone()));
    }
    let mut took = Vec::new();
    let mut started = None;
    let mut end = Instant::now() + length;
    for count in 1.. {
        if count == WARM_UP_CHANGES {
            took.clear();
            started = Some(RunningSample::start(&route.processes, testbed.api_server())?);
            end = Instant::now() + length;
        }
        if count > WARM_UP_CHANGES && Instant::now() >= end {
            break;
        }
        sent.now();
        change(&writer, count).await?;
        for _ in 0..watchers {
            let one = tokio::select! {
                one = tokio::time::timeout(CHANGE_TIMEOUT, all_seen.recv()) => one,
                Some(ended) = watching.join_next() => {
                    ended.context("a watcher panicked")??;
                    bail!("a watch through {} ended", route.name)
                }
            };
            let one =
                one.with_context(|| format!("a change did not come through {}", route.name))?;
            took.push(one.context("nobody watches any more")?);
        }
    }
    started.context("nothing was changed")?.end(took)
}

/// Changes the ConfigMap and returns its new resource version.
async fn change(writer: &Api<ConfigMap>, count: u32) -> Result<String> {
    let patch = Patch::Merge(json!({"data": {"count": count.to_string()}}));
    let changed = writer.patch(TICKER, &PatchParams::default(), &patch).await;
    let changed = changed.context("change the ConfigMap")?;
    changed.metadata.resource_version.context("the ConfigMap has no version")
}

/// Reports for each change how long ago it was sent.
async fn watch(
    mut caller: Caller,
    mut body: Incoming,
    sent: Arc<SentAt>,
    seen: mpsc::UnboundedSender<Duration>,
) -> Result<()> {
    let mut line = Vec::new();
    while let Some(piece) = caller.next_chunk(&mut body).await? {
        line.extend_from_slice(&piece);
        while let Some(end) = line.iter().position(|&byte| byte == b'\n') {
            if !line.starts_with(MODIFIED) {
                bail!("not a change: {}", String::from_utf8_lossy(&line[..end.min(300)]));
            }
            line.drain(..=end);
            if seen.send(sent.ago()).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
