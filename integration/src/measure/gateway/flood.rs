//! A tenant who asks without a pause, whatever the answer: a process of its own with one thread, so
//! that what it needs itself is known, and is not more than it has to be.

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
use super::place::Place;
use super::way::{Name, Way};
use crate::measure::process_time::cpu_ms;
use crate::process::{Captured, Program};

/// Connections, each with a request under way at all times.
const CONNECTIONS: usize = 64;
/// Until all are open.
const OPEN_LIMIT: Duration = Duration::from_secs(20);
/// What the process says when they are.
const BEGUN: &str = "flooding";

/// The tenant, and what they can ask for.
#[derive(Clone, Debug)]
pub(super) struct Flooding {
    pub(super) gateway: Url,
    /// The CA's PEM.
    pub(super) authority: String,
    pub(super) token: String,
    /// One small object.
    pub(super) small: String,
    /// A list of 1 MiB.
    pub(super) list: String,
}

/// What the process is told on its standard input.
#[derive(Deserialize, Serialize)]
struct Told {
    gateway: Url,
    authority: String,
    token: String,
    path: String,
}

/// What it says at its end.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
struct Answers {
    served: u32,
    refused: u32,
}

/// A flood that goes on.
pub(super) struct Flood {
    process: Captured,
    api_server: u32,
    broker: u32,
    before: [f64; 3],
    began: Instant,
}

/// What it was, by second: answers, and CPU time in percent of one core.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flooded {
    pub(super) served: f64,
    pub(super) refused: f64,
    pub(super) client: f64,
    pub(super) broker: f64,
    pub(super) api_server: f64,
}

impl Flood {
    /// Begins to ask for this path.
    pub(super) async fn begin(place: &Place, path: &str) -> Result<Self> {
        let flooding = place.flooding();
        let told = Told {
            gateway: flooding.gateway.clone(),
            authority: flooding.authority.clone(),
            token: flooding.token.clone(),
            path: path.to_owned(),
        };
        let process = Program::new(place.world().binaries().flood())
            .input(serde_json::to_vec(&told)?)
            .spawn_captured()?;
        process.until_stdout("the flood", OPEN_LIMIT, |said| said.contains(BEGUN)).await?;
        let broker = place.world().broker().pid().context("the broker runs no more")?;
        let mut flood = Self {
            process,
            api_server: place.api_server(),
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

    /// Ends it.
    pub(super) async fn end(self) -> Result<Flooded> {
        let seconds = self.began.elapsed().as_secs_f64();
        let after = self.cpu()?;
        let share = |which: usize| (after[which] - self.before[which]) / seconds / 10.0;
        let (client, broker, api_server) = (share(0), share(1), share(2));
        self.process.process().signal(rustix::process::Signal::TERM)?;
        let finished = self.process.finish(OPEN_LIMIT).await?.success()?;
        let last = finished.stdout.lines().next_back().unwrap_or_default();
        let answers: Answers = serde_json::from_str(last).context("read what the flood says")?;
        ensure!(answers.served > 0, "the flood did not get through at all");
        let [served, refused] =
            [answers.served, answers.refused].map(|count| f64::from(count) / seconds);
        Ok(Flooded { served, refused, client, broker, api_server })
    }
}

/// The process: reads what to ask for, asks until SIGTERM, and says what came of it.
///
/// # Errors
/// A connection breaks.
#[expect(clippy::print_stdout, reason = "the measuring process reads it")]
pub async fn run() -> Result<()> {
    let told = std::io::read_to_string(std::io::stdin()).context("read what to ask for")?;
    let told: Told = serde_json::from_str(&told).context("read what to ask for")?;
    let way = Way::new(Name::Gateway, &told.gateway, &told.authority)?.with_token(&told.token)?;
    let mut callers = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        callers.push(Caller::connect(&way, false).await?);
    }
    let mut end = signal(SignalKind::terminate()).context("wait for SIGTERM")?;
    println!("{BEGUN}");
    let answers = Rc::new(Cell::new(Answers::default()));
    let flood = LocalSet::new();
    let mut asking = tokio::task::JoinSet::new();
    for mut caller in callers {
        let (path, answers) = (told.path.clone(), Rc::clone(&answers));
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
