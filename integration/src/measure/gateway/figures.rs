//! The turns of all ways, side by side.

use std::fmt;

use serde::Serialize;

use super::turn::Turn;
use super::way::Name;
use super::{Measured, Round};
use crate::measure::figure::{Figure, Promise, Spread};

/// Where requests were measured before there was a gateway; what it is to keep to is for this.
const BUSY: usize = 16;

/// One way at one number of connections.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was asked for.
    pub what: String,
    /// By how many at once.
    pub connections: usize,
    way: Name,
    /// Requests a second.
    pub rate: Spread,
    /// Milliseconds that half of the requests took at most.
    pub p50_ms: Spread,
    /// Milliseconds that 99 of 100 requests took at most.
    pub p99_ms: Spread,
    /// CPU of the proxy for a request, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_cpu_us: Option<Spread>,
    /// CPU of the API server for a request, in microseconds.
    pub server_cpu_us: Spread,
}

impl Row {
    /// The line above the rows.
    pub const HEAD: &str = "medians: what, connections, way, requests a second, p50 and p99 in ms, \
        CPU of the proxy and of the API server for a request in us";

    fn of(what: &str, connections: usize, way: Name, rounds: &[Round]) -> Option<Self> {
        let of = |pick: fn(&Turn) -> f64| {
            Spread::of(rounds.iter().filter_map(|round| Some(pick(find(round, way)?))))
        };
        Some(Self {
            what: what.to_owned(),
            connections,
            way,
            rate: of(|turn| turn.rate)?,
            p50_ms: of(|turn| turn.p50)?,
            p99_ms: of(|turn| turn.p99)?,
            proxy_cpu_us: of(|turn| turn.proxy_cpu).filter(|_| way != Name::Direct),
            server_cpu_us: of(|turn| turn.server_cpu)?,
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let proxy = match &self.proxy_cpu_us {
            Some(cpu) => format!("{:.0}", cpu.median),
            None => "-".to_owned(),
        };
        write!(
            f,
            "{:<20} {:>3} {:<14} {:>8.0} {:>9.3} {:>9.3} {:>7} {:>7.0}",
            self.what,
            self.connections,
            self.way,
            self.rate.median,
            self.p50_ms.median,
            self.p99_ms.median,
            proxy,
            self.server_cpu_us.median,
        )
    }
}

fn find(round: &Round, way: Name) -> Option<&Turn> {
    round.iter().find(|(name, _)| *name == way).map(|(_, turn)| turn)
}

/// Adds the rows of all ways, and the gateway's figures beside the others'.
pub(super) fn add(measured: &mut Measured, what: &str, connections: usize, rounds: &[Round]) {
    let rows = Name::ALL.into_iter().filter_map(|way| Row::of(what, connections, way, rounds));
    measured.rows.extend(rows);
    let is_get = what.starts_with("GET");
    let when = |is_so: bool, promise| if is_so && is_get { promise } else { Promise::None };
    let busy = |promise| when(connections == BUSY, promise);
    let alone = |promise| when(connections == 1, promise);
    let beside = |named: &str, unit, other: Name, pick: fn(&Turn) -> f64, promise| {
        let pairs: Vec<_> = rounds
            .iter()
            .filter_map(|round| {
                Some((pick(find(round, Name::Gateway)?), pick(find(round, other)?)))
            })
            .collect();
        let plural = if connections == 1 { "" } else { "s" };
        let name = format!("{what}, {connections} connection{plural}: {named}");
        Figure::of_pairs(name, unit, other.to_string(), &pairs, promise)
    };
    let figures = [
        beside("a second", "1/s", Name::Direct, |turn| turn.rate, busy(Promise::AtLeast(0.75))),
        beside("p50", "ms", Name::Direct, |turn| turn.p50, alone(Promise::AddedAtMost(0.15))),
        beside(
            "CPU of the proxy for one",
            "us",
            Name::Nginx,
            |turn| turn.proxy_cpu,
            busy(Promise::AtMost(1.5)),
        ),
        beside(
            "CPU of the proxy for one",
            "us",
            Name::KubectlProxy,
            |turn| turn.proxy_cpu,
            busy(Promise::AtMost(0.5)),
        ),
        beside(
            "CPU of the API server for one",
            "us",
            Name::Direct,
            |turn| turn.server_cpu,
            Promise::None,
        ),
    ];
    measured.figures.extend(figures.into_iter().flatten());
}
