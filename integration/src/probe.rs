//! Polling of a condition with a short interval and a deadline, instead of fixed sleeps.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The result of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe<T> {
    /// The condition holds.
    Ready(T),
    /// The condition does not hold yet; the last such text is in the error.
    NotYet(String),
}

/// Pause between two attempts.
const POLL_INTERVAL: Duration = Duration::from_millis(15);
/// Maximum time that one attempt and its pause count for. While a machine is suspended its clock
/// goes on, but the program that is waited for does not.
const MAX_ATTEMPT_TIME: Duration = Duration::from_secs(2);

/// Polls until the probe is ready. `what` completes "waited for …".
///
/// # Errors
/// The probe fails, because the condition can never hold, or `limit` passed.
pub async fn until<T, F>(what: &str, limit: Duration, mut probe: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Probe<T>>>,
{
    let mut waited = Duration::ZERO;
    loop {
        let attempt = Instant::now();
        let seen = match probe().await? {
            Probe::Ready(value) => return Ok(value),
            Probe::NotYet(seen) => seen,
        };
        if waited >= limit {
            bail!("waited {limit:?} for {what}: {seen}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        waited += attempt.elapsed().min(MAX_ATTEMPT_TIME);
    }
}
