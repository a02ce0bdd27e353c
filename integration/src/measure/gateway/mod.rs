//! `cargo measure gateway`: requests and watches through the gateway, beside the same directly,
//! through nginx and through `kubectl proxy`.
//!
//! All processes share the machine's cores, the client that asks included. A rate is therefore a
//! figure of the whole machine; what a proxy costs is its CPU time for one request.

pub(crate) mod caller;
mod fairness;
mod figures;
mod flood;
mod kubectl_proxy;
mod memory;
mod nginx;
mod place;
mod requests;
mod turn;
mod watch;
pub(crate) mod way;

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

pub use figures::Row;
pub use flood::run as flood;
pub use place::Place;

use self::requests::Ask;
use self::turn::Turn;
use self::way::{Name, Way};
use crate::measure::figure::{Figure, Timing};
use crate::world::WorldBuilder;

/// How many connections at once.
const CONNECTIONS: [usize; 3] = [1, 16, 64];

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// One small ConfigMap, again and again
    Get,
    /// A list of 1 MiB, again and again
    List,
    /// The changes of one ConfigMap, by as many watchers as there are connections
    Watch,
    /// One tenant's small requests while another floods
    Fairness,
    /// Resident memory, idle and for each idle watch
    Memory,
}

impl Part {
    /// All of them; the memory last, for its broker is started anew.
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

/// How much is asked.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How often each way has its turn at each number of connections.
    pub rounds: usize,
    /// Length of one turn.
    pub length: Duration,
    /// Idle watches at once.
    pub watches: usize,
    /// How often these are opened, each time with a proxy that was just started.
    pub memory_rounds: usize,
}

/// What was measured.
#[derive(Debug, Default, Serialize)]
pub struct Measured {
    /// Each way by itself.
    pub rows: Vec<Row>,
    /// The gateway beside the others, and what it is to keep to.
    pub figures: Vec<Figure>,
    /// What has no floor.
    pub timings: Vec<Timing>,
}

/// The tier that keeps the limits which `basic` is shipped with.
const LIMITED: &str = "limited";
/// These limits.
const LIMITS: [(&str, i64); 4] = [
    ("requests_per_second", 50),
    ("requests_at_once", 50),
    ("streams", 100),
    ("mebibytes_per_second", 64),
];

/// The settings of a world in which the gateway is measured, and not the limits of a tier; but for
/// one tier, which keeps them.
#[must_use]
pub fn without_limits(world: WorldBuilder) -> WorldBuilder {
    let key = |tier: &str, limit: &str| format!("tiers.{tier}.gateway_{limit}");
    LIMITS
        .iter()
        .fold(world, |world, (limit, usual)| {
            world.setting(&key("basic", limit), 100_000).setting(&key(LIMITED, limit), *usual)
        })
        // One session is enough for a whole run.
        .setting("issuer.access_token_seconds", 3600)
}

/// Measures one part.
///
/// # Errors
/// A program is missing, or a request fails.
pub async fn measure(place: &Place, part: Part, plan: Plan) -> Result<Measured> {
    match part {
        Part::Get => calls(place, Ask::small_get(place), plan).await,
        Part::List => calls(place, Ask::long_list(place), plan).await,
        Part::Watch => {
            let turn =
                async |way: &Way, watchers| watch::turn(place, way, watchers, plan.length).await;
            side_by_side(place, "watch event", plan, turn).await
        }
        Part::Fairness => fairness::measure(place, plan).await,
        Part::Memory => Ok(Measured {
            figures: memory::figures(place, plan.watches, plan.memory_rounds).await?,
            ..Measured::default()
        }),
    }
}

async fn calls(place: &Place, ask: Ask, plan: Plan) -> Result<Measured> {
    let turn =
        async |way: &Way, callers| requests::turn(place, way, &ask, callers, plan.length).await;
    side_by_side(place, ask.name, plan, turn).await
}

/// All ways in turn, with each number of connections.
async fn side_by_side(
    place: &Place,
    name: &'static str,
    plan: Plan,
    turn: impl AsyncFn(&Way, usize) -> Result<Turn>,
) -> Result<Measured> {
    let mut measured = Measured::default();
    for connections in CONNECTIONS {
        let mut rounds = Vec::with_capacity(plan.rounds);
        for round in 0..plan.rounds {
            let mut turns = Vec::with_capacity(4);
            for way in place.ways_in_turn(round) {
                turns.push((way.name, turn(way, connections).await?));
            }
            rounds.push(turns);
        }
        figures::add(&mut measured, name, connections, &rounds);
    }
    Ok(measured)
}

/// The turns of all ways in one round.
type Round = Vec<(Name, Turn)>;
