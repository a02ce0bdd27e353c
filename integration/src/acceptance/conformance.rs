//! The conformance suite of Kubernetes, directly and through the gateway.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use super::step;
use crate::conformance::{Outcome, Place, SPECS, Way};
use crate::progress::say;

/// How much longer than directly it may take through the gateway before that is said.
const MOST_LONGER: f64 = 1.2;

/// Runs the selection both ways, and compares.
///
/// # Errors
/// A spec passes directly and not through the gateway, or fewer are run than were selected.
pub async fn run() -> Result<()> {
    say("conformance");
    let start = Box::pin(Place::new());
    let place = step("start the control plane, a node, a scheduler and the broker", start).await?;
    let direct = step("directly", place.run(Way::Direct)).await?;
    tell("directly", &direct);
    let gateway = step("through the gateway", place.run(Way::Gateway)).await?;
    tell("through the gateway", &gateway);
    let ratio = gateway.took.as_secs_f64() / direct.took.as_secs_f64();
    say(&format!("  {ratio:.2} times as long through the gateway"));
    if ratio > MOST_LONGER {
        say(&format!("  warning: that is more than {MOST_LONGER} times"));
    }
    for (way, outcome) in [("directly", &direct), ("through the gateway", &gateway)] {
        let count = outcome.specs.len();
        ensure!(count == SPECS, "{count} specs were run {way}, and {SPECS} were selected");
    }
    let failed = |outcome: &Outcome| -> BTreeSet<String> {
        outcome.failed().map(|(name, _)| name.to_owned()).collect()
    };
    let only_here: Vec<_> = failed(&gateway).difference(&failed(&direct)).cloned().collect();
    ensure!(only_here.is_empty(), "these fail only through the gateway: {only_here:#?}");
    ensure!(
        direct.passed() == SPECS,
        "some specs fail directly, so they say nothing of the gateway"
    );
    Ok(())
}

fn tell(way: &str, outcome: &Outcome) {
    let (passed, all) = (outcome.passed(), outcome.specs.len());
    say(&format!("  {way}: {passed} of {all} passed in {} s", outcome.took.as_secs()));
    for (name, why) in outcome.failed() {
        say(&format!("  failed: {name}\n    {}", why.lines().next().unwrap_or_default()));
    }
    let mut longest: Vec<_> = outcome.specs.iter().collect();
    longest.sort_by_key(|(_, spec)| std::cmp::Reverse(spec.took));
    for (name, spec) in longest.into_iter().take(5) {
        say(&format!("  {:>8.2} s  {name}", spec.took.as_secs_f64()));
    }
}
