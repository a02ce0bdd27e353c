//! What one tenant notices of another's flood: their own small requests alone, and beside it, in
//! turn. The flood keeps to no limit by itself; its tier does.

use std::time::Duration;

use anyhow::Result;

use super::flood::{Flood, Flooded};
use super::place::Place;
use super::requests::{Ask, turn};
use super::turn::Turn;
use super::{Measured, Plan};
use crate::measure::figure::{Figure, Promise, Spread, Timing};

/// Between two requests of a tenant who does not hurry.
const PACE: Duration = Duration::from_millis(10);
/// One of a hundred requests is looked at, so a turn is longer than where the middle is.
const LONGER: u32 = 4;
/// Until nothing of a flood is under way any more.
const SETTLE: Duration = Duration::from_millis(400);

/// What is flooded with.
#[derive(Clone, Copy)]
enum With {
    SmallGets,
    Lists,
}

/// Measures it.
pub(super) async fn measure(place: &Place, plan: Plan) -> Result<Measured> {
    let mut measured = Measured::default();
    let gets = || Ask::small_get(place);
    for (name, ask, with, promise) in [
        ("100 GETs a second", gets().every(PACE), With::SmallGets, Promise::AtMost(1.5)),
        ("GETs without a pause", gets(), With::SmallGets, Promise::AtMost(1.5)),
        ("100 GETs a second", gets().every(PACE), With::Lists, Promise::None),
    ] {
        let (flood, path) = match with {
            With::SmallGets => ("GETs", &place.flooding().small),
            With::Lists => ("lists of 1 MiB", &place.flooding().list),
        };
        let (mut alone, mut beside, mut floods) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..plan.rounds {
            for is_flooded in [round % 2 == 0, round % 2 != 0] {
                let flood = if is_flooded { Some(Flood::begin(place, path).await?) } else { None };
                let one = turn(place, place.gateway(), &ask, 1, plan.length * LONGER).await?;
                match flood {
                    Some(flood) => {
                        floods.push(flood.end().await?);
                        beside.push(one);
                    }
                    None => alone.push(one),
                }
                tokio::time::sleep(SETTLE).await;
            }
        }
        let name = format!("{name}, another tenant floods with {flood}");
        add(&mut measured, &name, promise, &beside, &alone, &floods);
    }
    Ok(measured)
}

/// One figure of a flood.
type Pick = fn(&Flooded) -> f64;

fn add(
    measured: &mut Measured,
    name: &str,
    promise: Promise,
    beside: &[Turn],
    alone: &[Turn],
    floods: &[Flooded],
) {
    let figure = |what: &str, pick: fn(&Turn) -> f64, promise| {
        let pairs: Vec<_> =
            beside.iter().zip(alone).map(|(one, other)| (pick(one), pick(other))).collect();
        Figure::of_pairs(format!("{name}: {what}"), "ms", "with nothing else", &pairs, promise)
    };
    measured.figures.extend(figure("p50", |turn| turn.p50, Promise::None));
    measured.figures.extend(figure("p99", |turn| turn.p99, promise));
    let timings: [(_, _, Pick); 5] = [
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
