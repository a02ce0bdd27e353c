//! Cost of the admission policies for the API server, per request.
//!
//! Two API servers run side by side: one has the policies, the other has none, or those of an
//! earlier version. They get requests in turn for a fraction of a second each, so that the
//! machine's load affects both alike. Then they swap their policies, so that any difference between
//! the two processes affects both sides alike.
//!
//! A difference of a few percent is within the difference of two such processes. The cost of the
//! policies for requests that they do not match is therefore also read from the API server's
//! profiler: the share of time that is spent in the admission of policies.

use std::time::Duration;

use anyhow::Result;

use super::load::Load;
use super::profile::Profile;
use super::testbed::{PolicySet, PolicyTestbed};
use crate::measure::figure::{Figure, Threshold};

/// The extent of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of times that the two servers swap and swap back; one pair of values each.
    pub rounds: usize,
    /// Length of one turn.
    pub length: Duration,
    /// Length of a profile, in whole seconds.
    pub profile: Duration,
}

/// The baseline of the cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// No policies.
    NoPolicies,
    /// The policies of an earlier version.
    PreviousPolicies,
}

impl Baseline {
    fn name(self) -> &'static str {
        match self {
            Self::NoPolicies => "without the policies",
            Self::PreviousPolicies => "with the previous policies",
        }
    }
}

/// One kind of request, and the thresholds of its cost.
struct RequestKind {
    name: &'static str,
    load: fn(&PolicyTestbed) -> Load,
    /// Turns of each server in a round; a tighter threshold needs more.
    turns: usize,
    /// The limit compared with no policies.
    threshold: Threshold,
    /// The limit compared with the policies of an earlier version.
    threshold_against_previous: Threshold,
}

/// Threshold of the CPU growth by a change of the policies.
const MAX_CPU_GROWTH: Threshold = Threshold::AtMost(1.1);

const KINDS: [RequestKind; 5] = [
    RequestKind {
        name: "API server's CPU for a TokenRequest of the broker",
        load: PolicyTestbed::tokens,
        turns: 16,
        // Half the cost of the first set of policies.
        threshold: Threshold::AddedAtMost(0.25),
        threshold_against_previous: MAX_CPU_GROWTH,
    },
    RequestKind {
        name: "API server's CPU for a Service of the tenant, created and deleted",
        load: PolicyTestbed::services,
        turns: 16,
        threshold: Threshold::None,
        threshold_against_previous: MAX_CPU_GROWTH,
    },
    RequestKind {
        name: "API server's CPU for a pod of the tenant",
        load: PolicyTestbed::pods,
        turns: 16,
        threshold: Threshold::None,
        threshold_against_previous: MAX_CPU_GROWTH,
    },
    RequestKind {
        name: "API server's CPU for a ConfigMap elsewhere",
        load: PolicyTestbed::config_maps,
        turns: 24,
        // The profiles measure this.
        threshold: Threshold::None,
        threshold_against_previous: Threshold::None,
    },
    RequestKind {
        name: "API server's CPU for a ServiceAccount elsewhere",
        load: PolicyTestbed::service_accounts,
        turns: 4,
        threshold: Threshold::None,
        threshold_against_previous: Threshold::None,
    },
];

/// The functions of the API server that evaluate policies, as its profiles name them: of the mutating
/// and of the validating ones.
const POLICY_FUNCTIONS: [&str; 2] = [
    "admission/plugin/policy/mutating.(*Plugin).Admit",
    "admission/plugin/policy/validating.(*Plugin).Validate",
];

/// A write that is in no tenant, and the threshold of the time in policies.
struct ForeignWrite {
    name: &'static str,
    load: fn(&PolicyTestbed) -> Load,
    threshold: Threshold,
}

const FOREIGN_WRITES: [ForeignWrite; 2] = [
    ForeignWrite {
        name: "API server's time in policies, of all for a ConfigMap elsewhere",
        load: PolicyTestbed::config_maps,
        threshold: Threshold::AddedAtMost(2.0),
    },
    // Policies for namespaces match it, the mutating one too.
    ForeignWrite {
        name: "API server's time in policies, of all for a namespace elsewhere (dry run)",
        load: PolicyTestbed::namespaces,
        threshold: Threshold::None,
    },
];

/// Measures CPU time for each kind of request with the policies, compared with the baseline.
///
/// # Errors
/// A request fails, or the policies cannot be changed.
pub async fn cost(
    servers: &[PolicyTestbed; 2],
    baseline: Baseline,
    plan: Plan,
) -> Result<Vec<Figure>> {
    let [one, other] = servers;
    let mut pairs = KINDS.map(|_| Vec::with_capacity(plan.rounds));
    for round in 0..plan.rounds {
        // The server that has the policies at the end of a round has them at the start of the next.
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
        let threshold = match baseline {
            Baseline::NoPolicies => kind.threshold,
            Baseline::PreviousPolicies => kind.threshold_against_previous,
        };
        Figure::of_pairs(kind.name, "ms", baseline.name(), pairs, threshold)
    });
    let mut figures: Vec<_> = figures.collect();
    figures.extend(shares(servers, baseline.name(), plan).await?);
    Ok(figures)
}

/// Measures the share of time that the API server spends in policies, for writes that are in no
/// tenant.
pub(in crate::measure) async fn shares(
    servers: &[PolicyTestbed; 2],
    baseline: &str,
    plan: Plan,
) -> Result<Vec<Figure>> {
    let mut shares = FOREIGN_WRITES.map(|_| Vec::with_capacity(plan.rounds));
    for round in 0..plan.rounds {
        let (with, without) = (&servers[round % 2], &servers[(round + 1) % 2]);
        tokio::try_join!(with.use_set(PolicySet::Current), without.use_set(PolicySet::Baseline))?;
        for (write, shares) in FOREIGN_WRITES.iter().zip(&mut shares) {
            let checked = with.profile(&(write.load)(with), plan.profile).await?;
            let free = without.profile(&(write.load)(without), plan.profile).await?;
            let share = |profile: &Profile| profile.percent_below(&POLICY_FUNCTIONS);
            shares.push((share(&checked), share(&free)));
        }
    }
    let figures = FOREIGN_WRITES.iter().zip(&shares).filter_map(|(write, shares)| {
        Figure::of_pairs(write.name, "%", baseline, shares, write.threshold)
    });
    Ok(figures.collect())
}

/// Measures the CPU time of a request with the policies and without, for each kind and turn.
async fn side_by_side(
    with: &PolicyTestbed,
    without: &PolicyTestbed,
    plan: Plan,
) -> Result<[Vec<(f64, f64)>; KINDS.len()]> {
    tokio::try_join!(with.use_set(PolicySet::Current), without.use_set(PolicySet::Baseline))?;
    let mut values = KINDS.map(|kind| Vec::with_capacity(kind.turns));
    for (kind, values) in KINDS.iter().zip(&mut values) {
        let (checked, free) = ((kind.load)(with), (kind.load)(without));
        // The first requests find connections and caches cold.
        checked.run(with.pid(), plan.length).await?;
        free.run(without.pid(), plan.length).await?;
        for turn in 0..kind.turns {
            values.push(if turn % 2 == 0 {
                let cost = checked.run(with.pid(), plan.length).await?;
                (cost, free.run(without.pid(), plan.length).await?)
            } else {
                let baseline = free.run(without.pid(), plan.length).await?;
                (checked.run(with.pid(), plan.length).await?, baseline)
            });
        }
    }
    Ok(values)
}
