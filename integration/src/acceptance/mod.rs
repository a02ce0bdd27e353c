//! What is tried before a release, against the programs that companies really have. Each part prints
//! what it did and how long that took, and keeps pictures of the pages.

pub mod conformance;
pub mod keycloak;
pub mod streams;
pub mod watches;

use std::time::Instant;

use anyhow::{Context, Result};

use crate::progress::say;

/// Runs one step, says how long it took, and what it was if it fails.
async fn step<T>(what: &str, doing: impl Future<Output = Result<T>>) -> Result<T> {
    let start = Instant::now();
    let done = doing.await.with_context(|| format!("this failed: {what}"))?;
    say(&format!("  {:>8.2} s  {what}", start.elapsed().as_secs_f64()));
    Ok(done)
}
