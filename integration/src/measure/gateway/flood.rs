//! A tenant who sends requests without a pause, whatever the response. The client is a process of
//! its own with one thread, so that its own CPU use is known and as low as possible.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;
use url::Url;

use super::caller::Caller;
use super::route::{Route, RouteName};
use super::testbed::GatewayTestbed;
use crate::measure::process_time::cpu_ms;
use crate::process::{Captured, Program};

/// Number of connections, each with a request in flight at all times.
const CONNECTIONS: usize = 64;
/// Time limit until all connections are open.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Line that the process prints once they are open.
const STARTED_LINE: &str = "flooding";

/// Input of the process, as JSON on its standard input.
#[derive(Deserialize, Serialize)]
struct TenantFloodInput {
    gateway: Url,
    authority: String,
    token: String,
    path: String,
}

/// Output of the process at its end, as JSON.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
struct ResponseCounts {
    served: u32,
    refused: u32,
}

/// A running flood.
pub(super) struct TenantFlood {
    process: Captured,
    api_server: u32,
    broker: u32,
    before: [f64; 3],
    began: Instant,
}

/// The result of a flood: responses a second, and CPU time in percent of one core.
#[derive(Clone, Copy, Debug)]
pub(super) struct TenantFloodRates {
    pub(super) served: f64,
    pub(super) refused: f64,
    pub(super) client: f64,
    pub(super) broker: f64,
    pub(super) api_server: f64,
}

impl TenantFlood {
    /// Starts a flood of requests for this path.
    pub(super) async fn begin(testbed: &GatewayTestbed, path: &str) -> Result<Self> {
        let flooding = testbed.flooding();
        let input = TenantFloodInput {
            gateway: flooding.gateway.clone(),
            authority: flooding.authority.clone(),
            token: flooding.token.clone(),
            path: path.to_owned(),
        };
        let process = Program::new(testbed.world().binaries().flood())
            .input(serde_json::to_vec(&input)?)
            .spawn_captured()?;
        process
            .until_stdout("the flood", START_TIMEOUT, |said| said.contains(STARTED_LINE))
            .await?;
        let broker = testbed.world().broker().pid().context("the broker has stopped")?;
        let mut flood = Self {
            process,
            api_server: testbed.api_server(),
            broker,
            before: [0.0; 3],
            began: Instant::now(),
        };
        flood.before = flood.cpu()?;
        Ok(flood)
    }

    fn cpu(&self) -> Result<[f64; 3]> {
        let [client, broker, server] =
            [self.process.process().pid(), self.broker, self.api_server].map(cpu_ms);
        Ok([client?, broker?, server?])
    }

    /// Stops the flood and reads its result.
    pub(super) async fn end(self) -> Result<TenantFloodRates> {
        let seconds = self.began.elapsed().as_secs_f64();
        let after = self.cpu()?;
        let share = |which: usize| (after[which] - self.before[which]) / seconds / 10.0;
        let (client, broker, api_server) = (share(0), share(1), share(2));
        self.process.process().signal(rustix::process::Signal::TERM)?;
        let finished = self.process.finish(START_TIMEOUT).await?.success()?;
        let last = finished.stdout.lines().next_back().unwrap_or_default();
        let answers: ResponseCounts =
            serde_json::from_str(last).context("read the flood's output")?;
        ensure!(answers.served > 0, "the flood got no response");
        let [served, refused] =
            [answers.served, answers.refused].map(|count| f64::from(count) / seconds);
        Ok(TenantFloodRates { served, refused, client, broker, api_server })
    }
}

/// Runs the flooding process: reads its input, sends until SIGTERM, and prints the number of
/// responses.
///
/// # Errors
/// A connection breaks.
#[expect(clippy::print_stdout, reason = "the measuring process reads it")]
pub async fn run() -> Result<()> {
    let input = std::io::read_to_string(std::io::stdin()).context("read what to ask for")?;
    let input: TenantFloodInput = serde_json::from_str(&input).context("read what to ask for")?;
    let route = Route::new(RouteName::Gateway, &input.gateway, &input.authority)?
        .with_token(&input.token)?;
    let mut callers = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        callers.push(Caller::connect(&route, false).await?);
    }
    let mut end = signal(SignalKind::terminate()).context("wait for SIGTERM")?;
    println!("{STARTED_LINE}");
    let answers = Rc::new(Cell::new(ResponseCounts::default()));
    let flood = LocalSet::new();
    let mut asking = tokio::task::JoinSet::new();
    for mut caller in callers {
        let (path, answers) = (input.path.clone(), Rc::clone(&answers));
        asking.spawn_local_on(
            async move {
                loop {
                    let (status, _) = caller.try_get(&path).await?;
                    let mut counted = answers.get();
                    match status {
                        StatusCode::OK => counted.served += 1,
                        StatusCode::TOO_MANY_REQUESTS => counted.refused += 1,
                        other => anyhow::bail!("the gateway answered {other}"),
                    }
                    answers.set(counted);
                }
            },
            &flood,
        );
    }
    let ended: Result<()> = flood
        .run_until(async {
            tokio::select! {
                _ = end.recv() => Ok(()),
                Some(broken) = asking.join_next() => broken?,
            }
        })
        .await;
    ended?;
    println!("{}", serde_json::to_string(&answers.get())?);
    Ok(())
}
