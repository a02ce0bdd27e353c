//! Effect of one tenant's flood on another tenant: small requests alone and during the flood, in
//! turn. The flooding client observes no limit; its tier limits it.

use std::time::Duration;

use anyhow::Result;

use super::flood::{TenantFlood, TenantFloodRates};
use super::requests::{RequestSpec, sample};
use super::sample::Sample;
use super::testbed::GatewayTestbed;
use super::{Measured, Plan};
use crate::measure::figure::{Figure, Spread, Threshold, Timing};

/// Interval of the requests of a tenant who sends 100 a second.
const REQUEST_INTERVAL: Duration = Duration::from_millis(10);
/// Factor for the length of a sample, because p99 needs more requests than the median.
const TURN_LENGTH_FACTOR: u32 = 4;
/// Time until no request of a flood is in flight.
const SETTLE_TIME: Duration = Duration::from_millis(400);

/// The path that the flood requests.
#[derive(Clone, Copy)]
enum FloodPath {
    SmallGets,
    Lists,
}

/// Measures all combinations of requests and floods.
pub(super) async fn measure(testbed: &GatewayTestbed, plan: Plan) -> Result<Measured> {
    let mut measured = Measured::default();
    let gets = || RequestSpec::small_get(testbed);
    for (name, spec, with, threshold) in [
        (
            "100 GETs a second",
            gets().every(REQUEST_INTERVAL),
            FloodPath::SmallGets,
            Threshold::AtMost(1.5),
        ),
        ("GETs without a pause", gets(), FloodPath::SmallGets, Threshold::AtMost(1.5)),
        ("100 GETs a second", gets().every(REQUEST_INTERVAL), FloodPath::Lists, Threshold::None),
    ] {
        let (flood, path) = match with {
            FloodPath::SmallGets => ("GETs", &testbed.flooding().small),
            FloodPath::Lists => ("lists of 1 MiB", &testbed.flooding().list),
        };
        let (mut alone, mut beside, mut floods) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..plan.rounds {
            for is_flooded in [round % 2 == 0, round % 2 != 0] {
                let flood =
                    if is_flooded { Some(TenantFlood::begin(testbed, path).await?) } else { None };
                let (server, length) = (testbed.api_server(), plan.length * TURN_LENGTH_FACTOR);
                let one = sample(server, testbed.gateway(), &spec, 1, length).await?;
                match flood {
                    Some(flood) => {
                        floods.push(flood.end().await?);
                        beside.push(one);
                    }
                    None => alone.push(one),
                }
                tokio::time::sleep(SETTLE_TIME).await;
            }
        }
        let name = format!("{name}, another tenant floods with {flood}");
        add(&mut measured, &name, threshold, &beside, &alone, &floods);
    }
    Ok(measured)
}

/// Selects one value of a flood's result.
type RateField = fn(&TenantFloodRates) -> f64;

fn add(
    measured: &mut Measured,
    name: &str,
    threshold: Threshold,
    beside: &[Sample],
    alone: &[Sample],
    floods: &[TenantFloodRates],
) {
    let figure = |what: &str, pick: fn(&Sample) -> f64, threshold| {
        let pairs: Vec<_> =
            beside.iter().zip(alone).map(|(one, other)| (pick(one), pick(other))).collect();
        Figure::of_pairs(format!("{name}: {what}"), "ms", "with nothing else", &pairs, threshold)
    };
    measured.figures.extend(figure("p50", |sample| sample.p50, Threshold::None));
    measured.figures.extend(figure("p99", |sample| sample.p99, threshold));
    let timings: [(_, _, RateField); 5] = [
        ("served", "1/s", |flood| flood.served),
        ("refused", "1/s", |flood| flood.refused),
        ("CPU of the flooding client", "% of a core", |flood| flood.client),
        ("CPU of the broker", "% of a core", |flood| flood.broker),
        ("CPU of the API server", "% of a core", |flood| flood.api_server),
    ];
    measured.timings.extend(timings.into_iter().filter_map(|(what, unit, pick)| {
        let value = Spread::of(floods.iter().map(pick))?;
        Some(Timing { name: format!("{name}: {what}"), unit, value })
    }));
}
