//! What the policies cost the API server for one request.
//!
//! Two API servers side by side: one has the policies, the other has none, or those of an earlier
//! version; they are asked in turn for a fraction of a second each, so that both see the same
//! machine. Then they change places, so that what is peculiar to one of the two processes falls on
//! both sides alike.
//!
//! A difference of a few percent is lost in what two such processes differ by anyway. What the
//! policies cost requests that they are not for is therefore read from the API server's profiler as
//! well: the time spent in the admission of policies, of all.

use std::time::Duration;

use anyhow::Result;

use super::guarded::{Guarded, Set};
use super::load::Load;
use crate::measure::figure::{Figure, Promise};

/// How much is asked.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How often the two servers change places and back; one pair of values each.
    pub rounds: usize,
    /// Length of one turn.
    pub length: Duration,
    /// Length of a profile, in whole seconds.
    pub profile: Duration,
}

/// What the cost of the policies stands beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// No policies.
    Without,
    /// The policies of an earlier version.
    Before,
}

impl Floor {
    fn name(self) -> &'static str {
        match self {
            Self::Without => "without the policies",
            Self::Before => "with those of before",
        }
    }
}

/// One kind of request, and what its cost is to keep to.
struct Kind {
    name: &'static str,
    load: fn(&Guarded) -> Load,
    /// How often each server is asked in a round: the finer the promise, the oftener.
    turns: usize,
    /// Beside no policies.
    promise: Promise,
    /// Beside those of an earlier version.
    promise_beside_before: Promise,
}

/// How much more CPU than before a change of the policies.
const MORE: Promise = Promise::AtMost(1.1);

const KINDS: [Kind; 5] = [
    Kind {
        name: "API server's CPU for a TokenRequest of the broker",
        load: Guarded::tokens,
        turns: 16,
        // Half of what the first set of policies cost.
        promise: Promise::AddedAtMost(0.25),
        promise_beside_before: MORE,
    },
    Kind {
        name: "API server's CPU for a Service of the tenant",
        load: Guarded::services,
        turns: 16,
        promise: Promise::None,
        promise_beside_before: MORE,
    },
    Kind {
        name: "API server's CPU for a pod of the tenant",
        load: Guarded::pods,
        turns: 16,
        promise: Promise::None,
        promise_beside_before: MORE,
    },
    Kind {
        name: "API server's CPU for a ConfigMap elsewhere",
        load: Guarded::config_maps,
        turns: 24,
        // That is what the profiles are for.
        promise: Promise::None,
        promise_beside_before: Promise::None,
    },
    Kind {
        name: "API server's CPU for a ServiceAccount elsewhere",
        load: Guarded::service_accounts,
        turns: 4,
        promise: Promise::None,
        promise_beside_before: Promise::None,
    },
];

/// The part of the API server that evaluates policies, as its profiles name it.
const POLICIES: &str = "admission/plugin/policy/validating.(*Plugin).Validate";

/// CPU for each kind of request with the policies, beside that of the floor.
///
/// # Errors
/// A request fails, or the policies cannot be changed.
pub async fn cost(servers: &[Guarded; 2], floor: Floor, plan: Plan) -> Result<Vec<Figure>> {
    let [one, other] = servers;
    let mut pairs = KINDS.map(|_| Vec::with_capacity(plan.rounds));
    for round in 0..plan.rounds {
        // Whoever has the policies at the end of a round has them at the start of the next.
        let (first, second) = if round % 2 == 0 { (one, other) } else { (other, one) };
        let before = side_by_side(first, second, plan).await?;
        let after = side_by_side(second, first, plan).await?;
        for ((pairs, before), after) in pairs.iter_mut().zip(before).zip(after) {
            // The mean, because a turn with a garbage collection costs a multiple of one without.
            let mean = |pick: fn(&(f64, f64)) -> f64| {
                let turns = before.iter().chain(&after);
                turns.map(pick).sum::<f64>()
                    / f64::from(u32::try_from(before.len() + after.len()).unwrap_or(u32::MAX))
            };
            pairs.push((mean(|turn| turn.0), mean(|turn| turn.1)));
        }
    }
    let figures = KINDS.iter().zip(&pairs).filter_map(|(kind, pairs)| {
        let promise = match floor {
            Floor::Without => kind.promise,
            Floor::Before => kind.promise_beside_before,
        };
        Figure::of_pairs(kind.name, "ms", floor.name(), pairs, promise)
    });
    let mut figures: Vec<_> = figures.collect();
    figures.extend(shares(servers, floor, plan).await?);
    Ok(figures)
}

/// How much of its time the API server spends on policies that are not for what it is asked.
async fn shares(servers: &[Guarded; 2], floor: Floor, plan: Plan) -> Result<Option<Figure>> {
    let mut shares = Vec::with_capacity(plan.rounds);
    for round in 0..plan.rounds {
        let (with, without) = (&servers[round % 2], &servers[(round + 1) % 2]);
        tokio::try_join!(with.use_set(Set::Current), without.use_set(Set::Floor))?;
        let guarded = with.profile(&with.config_maps(), plan.profile).await?;
        let free = without.profile(&without.config_maps(), plan.profile).await?;
        shares.push((guarded.percent_below(POLICIES), free.percent_below(POLICIES)));
    }
    let name = "API server's time in policies, of all for a ConfigMap elsewhere";
    Ok(Figure::of_pairs(name, "%", floor.name(), &shares, Promise::AddedAtMost(2.0)))
}

/// For each kind and turn the CPU of a request with the policies and without.
async fn side_by_side(
    with: &Guarded,
    without: &Guarded,
    plan: Plan,
) -> Result<[Vec<(f64, f64)>; KINDS.len()]> {
    tokio::try_join!(with.use_set(Set::Current), without.use_set(Set::Floor))?;
    let mut values = KINDS.map(|kind| Vec::with_capacity(kind.turns));
    for (kind, values) in KINDS.iter().zip(&mut values) {
        let (guarded, free) = ((kind.load)(with), (kind.load)(without));
        // The first requests find connections and caches cold.
        guarded.run(with.pid(), plan.length).await?;
        free.run(without.pid(), plan.length).await?;
        for turn in 0..kind.turns {
            values.push(if turn % 2 == 0 {
                let cost = guarded.run(with.pid(), plan.length).await?;
                (cost, free.run(without.pid(), plan.length).await?)
            } else {
                let floor = free.run(without.pid(), plan.length).await?;
                (guarded.run(with.pid(), plan.length).await?, floor)
            });
        }
    }
    Ok(values)
}
