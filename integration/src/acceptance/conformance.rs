//! Acceptance of the gateway by the Kubernetes conformance suite, which runs directly and through
//! the gateway.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use super::step;
use crate::conformance::{ConformanceCluster, Route, SPEC_COUNT, SuiteResult};
use crate::progress::print_message;

/// Highest ratio of the run time through the gateway to the direct run time before a warning is
/// printed.
const MAX_SLOWDOWN: f64 = 1.2;

/// Runs the selected specs on both routes and compares the results.
///
/// # Errors
/// A spec passes directly and fails through the gateway, or fewer specs ran than were selected.
pub async fn run() -> Result<()> {
    print_message("conformance");
    let start = Box::pin(ConformanceCluster::new());
    let cluster =
        step("start the control plane, a node, a scheduler and the broker", start).await?;
    let direct = step("directly", cluster.run(Route::Direct)).await?;
    tell("directly", &direct);
    let gateway = step("through the gateway", cluster.run(Route::Gateway)).await?;
    tell("through the gateway", &gateway);
    let ratio = gateway.took.as_secs_f64() / direct.took.as_secs_f64();
    print_message(&format!("  {ratio:.2} times as long through the gateway"));
    if ratio > MAX_SLOWDOWN {
        print_message(&format!("  warning: that is more than {MAX_SLOWDOWN} times"));
    }
    for (route, outcome) in [("directly", &direct), ("through the gateway", &gateway)] {
        let count = outcome.specs.len();
        ensure!(
            count == SPEC_COUNT,
            "{count} specs were run {route}, and {SPEC_COUNT} were selected"
        );
    }
    let failed = |outcome: &SuiteResult| -> BTreeSet<String> {
        outcome.failed().map(|(name, _)| name.to_owned()).collect()
    };
    let only_here: Vec<_> = failed(&gateway).difference(&failed(&direct)).cloned().collect();
    ensure!(only_here.is_empty(), "these fail only through the gateway: {only_here:#?}");
    ensure!(
        direct.passed() == SPEC_COUNT,
        "some specs fail directly, so they prove nothing about the gateway"
    );
    Ok(())
}

fn tell(route: &str, outcome: &SuiteResult) {
    let (passed, all) = (outcome.passed(), outcome.specs.len());
    print_message(&format!("  {route}: {passed} of {all} passed in {} s", outcome.took.as_secs()));
    for (name, why) in outcome.failed() {
        print_message(&format!("  failed: {name}\n    {}", why.lines().next().unwrap_or_default()));
    }
    let mut longest: Vec<_> = outcome.specs.iter().collect();
    longest.sort_by_key(|(_, spec)| std::cmp::Reverse(spec.took));
    for (name, spec) in longest.into_iter().take(5) {
        print_message(&format!("  {:>8.2} s  {name}", spec.took.as_secs_f64()));
    }
}
