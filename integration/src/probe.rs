//! Waiting for something to become true: a probe, a short interval, a deadline; never a guess.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// What one look at a thing says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe<T> {
    /// It is so; waiting is over.
    Ready(T),
    /// Not so yet, and what was seen instead; the last such text is in the error.
    NotYet(String),
}

/// Pause between two looks.
const INTERVAL: Duration = Duration::from_millis(15);
/// What one look and its pause count for at most: while a machine is put to sleep, its clock goes on
/// and the program that is waited for does not.
const LOOK: Duration = Duration::from_secs(2);

/// Looks again and again until it is ready. `what` completes "waited for …".
///
/// # Errors
/// The probe says that it can never become ready, or `limit` passed.
pub async fn until<T, F>(what: &str, limit: Duration, mut probe: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Probe<T>>>,
{
    let mut waited = Duration::ZERO;
    loop {
        let look = Instant::now();
        let seen = match probe().await? {
            Probe::Ready(value) => return Ok(value),
            Probe::NotYet(seen) => seen,
        };
        if waited >= limit {
            bail!("waited {limit:?} for {what}: {seen}");
        }
        tokio::time::sleep(INTERVAL).await;
        waited += look.elapsed().min(LOOK);
    }
}
