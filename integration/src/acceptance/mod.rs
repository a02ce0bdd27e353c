//! Acceptance runs before a release, against the programs that companies really use. Each part
//! prints its steps with their times, and keeps screenshots of the pages.

pub mod conformance;
pub mod keycloak;
pub mod restore;
pub mod streams;
pub mod tenants;
pub mod upgrade;
pub mod watches;

use std::time::Instant;

use anyhow::{Context, Result};

use crate::progress::print_message;

/// Runs one step and prints its time, or names the step if it fails.
async fn step<T>(what: &str, doing: impl Future<Output = Result<T>>) -> Result<T> {
    let start = Instant::now();
    let done = doing.await.with_context(|| format!("this failed: {what}"))?;
    print_message(&format!("  {:>8.2} s  {what}", start.elapsed().as_secs_f64()));
    Ok(done)
}
