//! The results of all routes, compared with each other.

use std::fmt;

use serde::Serialize;

use super::route::RouteName;
use super::sample::Sample;
use super::{Measured, Round};
use crate::measure::figure::{Figure, Spread, Threshold};

/// The number of connections that the thresholds are for; measurements from before the gateway
/// used it.
const BUSY_CONNECTIONS: usize = 16;

/// The result of one route with one number of connections.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Kind of request.
    pub what: String,
    /// Number of concurrent connections.
    pub connections: usize,
    way: RouteName,
    /// Requests a second.
    pub rate: Spread,
    /// Median latency in milliseconds.
    pub p50_ms: Spread,
    /// 99th percentile of the latency in milliseconds.
    pub p99_ms: Spread,
    /// CPU time of the proxy for one request, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_cpu_us: Option<Spread>,
    /// CPU time of the API server for one request, in microseconds.
    pub server_cpu_us: Spread,
}

impl Row {
    /// Header line of the rows.
    pub const HEADER: &str = "medians: what, connections, way, requests a second, p50 and p99 in \
        ms, CPU of the proxy and of the API server for a request in us";

    fn of(what: &str, connections: usize, way: RouteName, rounds: &[Round]) -> Option<Self> {
        let of = |pick: fn(&Sample) -> f64| {
            Spread::of(rounds.iter().filter_map(|round| Some(pick(find(round, way)?))))
        };
        Some(Self {
            what: what.to_owned(),
            connections,
            way,
            rate: of(|sample| sample.rate)?,
            p50_ms: of(|sample| sample.p50)?,
            p99_ms: of(|sample| sample.p99)?,
            proxy_cpu_us: of(|sample| sample.proxy_cpu).filter(|_| way != RouteName::Direct),
            server_cpu_us: of(|sample| sample.server_cpu)?,
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

fn find(round: &Round, way: RouteName) -> Option<&Sample> {
    round.iter().find(|(name, _)| *name == way).map(|(_, sample)| sample)
}

/// Adds the rows of all routes, and the figures of the gateway compared with the other routes.
pub(super) fn add(measured: &mut Measured, what: &str, connections: usize, rounds: &[Round]) {
    let mut names: Vec<RouteName> = rounds.iter().flatten().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    let rows = names.iter().filter_map(|&way| Row::of(what, connections, way, rounds));
    measured.rows.extend(rows);
    let is_get = what.starts_with("GET");
    let when = |is_so: bool, threshold| if is_so && is_get { threshold } else { Threshold::None };
    let busy = |threshold| when(connections == BUSY_CONNECTIONS, threshold);
    let alone = |threshold| when(connections == 1, threshold);
    let beside = |named: &str, unit, other: RouteName, pick: fn(&Sample) -> f64, threshold| {
        let pairs: Vec<_> = rounds
            .iter()
            .filter_map(|round| {
                Some((pick(find(round, RouteName::Gateway)?), pick(find(round, other)?)))
            })
            .collect();
        let plural = if connections == 1 { "" } else { "s" };
        let name = format!("{what}, {connections} connection{plural}: {named}");
        Figure::of_pairs(name, unit, other.to_string(), &pairs, threshold)
    };
    let figures = [
        beside(
            "a second",
            "1/s",
            RouteName::Direct,
            |sample| sample.rate,
            busy(Threshold::AtLeast(0.75)),
        ),
        beside(
            "p50",
            "ms",
            RouteName::Direct,
            |sample| sample.p50,
            alone(Threshold::AddedAtMost(0.15)),
        ),
        beside(
            "CPU of the proxy for one",
            "us",
            RouteName::Nginx,
            |sample| sample.proxy_cpu,
            busy(Threshold::AtMost(1.5)),
        ),
        beside(
            "CPU of the proxy for one",
            "us",
            RouteName::KubectlProxy,
            |sample| sample.proxy_cpu,
            busy(Threshold::AtMost(0.5)),
        ),
        beside(
            "CPU of the API server for one",
            "us",
            RouteName::Direct,
            |sample| sample.server_cpu,
            Threshold::None,
        ),
    ];
    measured.figures.extend(figures.into_iter().flatten());
    for other in names.into_iter().filter(|name| matches!(name, RouteName::OtherBuild(_))) {
        let figures = [
            beside("a second", "1/s", other, |sample| sample.rate, Threshold::None),
            beside("p50", "ms", other, |sample| sample.p50, Threshold::None),
            beside(
                "CPU of the proxy for one",
                "us",
                other,
                |sample| sample.proxy_cpu,
                Threshold::None,
            ),
        ];
        measured.figures.extend(figures.into_iter().flatten());
    }
}
