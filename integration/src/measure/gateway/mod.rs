//! `cargo measure gateway`: requests and watches through the gateway, compared with the same
//! directly, through nginx and through `kubectl proxy`.
//!
//! All processes share the machine's cores, including the client's. A rate is therefore a figure of
//! the whole machine; the cost of a proxy is its CPU time for one request.

pub(crate) mod caller;
mod fairness;
mod figures;
mod flood;
mod flooding_tenant;
mod kubectl_proxy;
mod limits;
mod memory;
mod nginx;
pub(crate) mod requests;
pub(crate) mod route;
pub(crate) mod sample;
mod testbed;
mod watch;

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

pub use figures::Row;
pub use flood::run as flood;
pub use limits::without_limits;
pub use testbed::GatewayTestbed;

use self::requests::RequestSpec;
use self::route::{Route, RouteName};
use self::sample::Sample;
use crate::measure::figure::{Figure, Timing};

/// The numbers of concurrent connections.
const CONNECTIONS: [usize; 3] = [1, 16, 64];

/// The parts of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// One small ConfigMap, repeatedly
    Get,
    /// A list of 1 MiB, repeatedly
    List,
    /// The changes of one ConfigMap, with one watcher for each connection
    Watch,
    /// One tenant's small requests while another floods
    Fairness,
    /// Resident memory, idle and for each idle watch
    Memory,
}

impl Part {
    /// All parts; memory comes last because it restarts the broker.
    pub const ALL: [Self; 5] = [Self::Get, Self::List, Self::Watch, Self::Fairness, Self::Memory];
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "one small object",
            Self::List => "a list of 1 MiB",
            Self::Watch => "watch events",
            Self::Fairness => "one tenant beside another's flood",
            Self::Memory => "memory, idle and with watches",
        })
    }
}

/// The extent of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of samples of each route with each number of connections.
    pub rounds: usize,
    /// Length of one sample.
    pub length: Duration,
    /// Number of concurrent idle watches.
    pub watches: usize,
    /// Number of rounds in which these are opened, each time with a freshly started proxy.
    pub memory_rounds: usize,
}

/// The results.
#[derive(Debug, Default, Serialize)]
pub struct Measured {
    /// The result of each route by itself.
    pub rows: Vec<Row>,
    /// The gateway compared with the other routes, with the thresholds.
    pub figures: Vec<Figure>,
    /// Figures without a baseline.
    pub timings: Vec<Timing>,
}

/// Measures one part.
///
/// # Errors
/// A program is missing, or a request fails.
pub async fn measure(testbed: &GatewayTestbed, part: Part, plan: Plan) -> Result<Measured> {
    match part {
        Part::Get => calls(testbed, RequestSpec::small_get(testbed), plan).await,
        Part::List => calls(testbed, RequestSpec::long_list(testbed), plan).await,
        Part::Watch => {
            let sample = async |route: &Route, watchers| {
                watch::sample(testbed, route, watchers, plan.length).await
            };
            side_by_side(testbed, "watch event", plan, sample).await
        }
        Part::Fairness => fairness::measure(testbed, plan).await,
        Part::Memory => Ok(Measured {
            figures: memory::figures(testbed, plan.watches, plan.memory_rounds).await?,
            ..Measured::default()
        }),
    }
}

async fn calls(testbed: &GatewayTestbed, spec: RequestSpec, plan: Plan) -> Result<Measured> {
    let sample = async |route: &Route, callers| {
        requests::sample(testbed.api_server(), route, &spec, callers, plan.length).await
    };
    side_by_side(testbed, spec.name, plan, sample).await
}

/// Measures all routes in turn, with each number of connections.
async fn side_by_side(
    testbed: &GatewayTestbed,
    name: &'static str,
    plan: Plan,
    sample: impl AsyncFn(&Route, usize) -> Result<Sample>,
) -> Result<Measured> {
    let mut measured = Measured::default();
    for connections in CONNECTIONS {
        let mut rounds = Vec::with_capacity(plan.rounds);
        for round in 0..plan.rounds {
            let mut samples = Vec::with_capacity(4);
            for route in testbed.routes_in_turn(round) {
                samples.push((route.name, sample(route, connections).await?));
            }
            rounds.push(samples);
        }
        figures::add(&mut measured, name, connections, &rounds);
    }
    Ok(measured)
}

/// The samples of all routes in one round.
type Round = Vec<(RouteName, Sample)>;
