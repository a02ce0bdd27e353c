//! Acceptance of tenants: long random runs against the API server. The end-to-end tests make short
//! ones.

mod crash_tally;
mod crashes;
mod first_request;
mod fixture;
mod interrupted;
mod move_recorder;
mod rights;
mod rng;

use anyhow::Result;

pub use crashes::check_crashes;
pub use first_request::check_first_requests;
pub use fixture::{ClusterClient, Credential, Fixture, RECONCILE_TIMEOUT, SignedIn};
pub use interrupted::{check_interrupted_creations, check_interrupted_moves};
pub use move_recorder::MoveRecorder;
pub use rights::check_rights;
pub use rng::Rng;

use super::step;
use crate::progress::print_message;
use crate::world::World;

/// People of the random Tenants.
const PEOPLE: [&str; 5] = ["alice", "bob", "carol", "dave", "erin"];
/// The random Tenants.
const TENANTS: [&str; 3] = ["solar", "lunar", "wind"];

/// The size of a run.
#[derive(Clone, Copy, Debug)]
pub struct TenantsRun {
    /// Random changes of random Tenants.
    pub changes: usize,
    /// Namespaces with a first request each.
    pub namespaces: usize,
    /// Crashes of the broker.
    pub crashes: usize,
    /// Moves of a namespace, each with a replica that is killed.
    pub moves: usize,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// Runs all parts; those with kills during moves and creations only if there are moves.
///
/// # Errors
/// A check fails; the error names the step and the seed.
pub async fn run(size: TenantsRun) -> Result<()> {
    let TenantsRun { changes, namespaces, crashes, moves, seed } = size;
    print_message(&format!("tenants, with the seed {seed}"));
    let builder = World::builder().setting("log.level", "info").setting("drift_seconds", 3600);
    let start = Fixture::start(builder.clone().postgres().replicas(2));
    let fixture = step("start the control plane and two replicas", Box::pin(start)).await?;
    let what = format!("rights of everybody after {changes} random changes");
    let rights = check_rights(&fixture, seed, changes, &PEOPLE, &TENANTS);
    step(&what, Box::pin(rights)).await?;
    let owner = fixture.person("owner").await?;
    let what = format!("first requests in {namespaces} namespaces");
    step(&what, check_first_requests(&fixture, &owner, "first", namespaces)).await?;
    if moves > 0 {
        let what = format!("{moves} moves of a namespace with kills of replicas");
        step(&what, Box::pin(check_interrupted_moves(&fixture, moves))).await?;
        drop(fixture);
        let fixture = Fixture::start(builder.clone().fault_proxy());
        let fixture = step("start a broker behind a fault proxy", Box::pin(fixture)).await?;
        let what = "kills of the broker at each request of a creation";
        step(what, Box::pin(check_interrupted_creations(&fixture))).await?;
    } else {
        drop(fixture);
    }
    let fixture = Fixture::start(builder);
    let fixture = step("start a control plane and a broker", Box::pin(fixture)).await?;
    let what = format!("{crashes} crashes of the broker");
    step(&what, Box::pin(check_crashes(&fixture, seed, crashes))).await?;
    print_message("tenants: passed");
    Ok(())
}
